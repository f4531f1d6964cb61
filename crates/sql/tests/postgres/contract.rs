//! Every promise of the contract.

use crate::server::{Schema, connect, url};
use semel_core::store::Backend as _;
use semel_sql::postgres::Backend;
use semel_test_support::services;
use semel_testkit::Subject;

async fn open() -> Subject {
    let schema = Schema::new();
    let address = schema.address();
    opened_at(schema, address).await
}

/// Through a pooler in transaction mode; only notifications come from the server itself.
async fn open_through_pgbouncer() -> Subject {
    let schema = Schema::new();
    let pooler = services::pgbouncer_url().unwrap_or_else(url);
    let direct = url();
    let server = direct.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a host");
    let address = format!("{}&listen={server}", schema.address_at(&pooler));
    opened_at(schema, address).await
}

async fn opened_at(schema: Schema, address: String) -> Subject {
    let name = schema.name.clone();
    Backend.check(&address).expect("an address");
    Subject::opened_by(&Backend, &address)
        .await
        .damaged_by(move |id, bytes| {
            let sql = format!("UPDATE {name}.records SET entry = $2 WHERE command_id = $1");
            Box::pin(async move {
                let changed = connect().await.execute(&sql, &[&&id.as_bytes()[..], &&bytes[..]]).await;
                assert_eq!(changed.expect("overwritten"), 1, "there was nothing to damage");
            })
        })
        .holding(schema)
}

semel_testkit::contract!(store, open);
semel_testkit::contract!(through_pgbouncer, open_through_pgbouncer);

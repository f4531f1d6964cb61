//! Every promise of the contract.

use crate::server::{Schema, connect};
use semel_core::store::Backend as _;
use semel_sql::postgres::Backend;
use semel_testkit::Subject;

async fn open() -> Subject {
    opened_at(Schema::new()).await
}

async fn opened_at(schema: Schema) -> Subject {
    let (address, name) = (schema.address(), schema.name.clone());
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

//! The store of a test: a schema of a PostgreSQL database.

use semel::core::store::{Backend as _, OpenOptions, Store};
use semel_sql::postgres::Backend;
use semel_test_support::schema::{Schema, connect};
use std::sync::Arc;

pub(crate) struct TestStore {
    schema: Schema,
}

impl TestStore {
    pub(super) fn new() -> Self {
        Self { schema: Schema::new() }
    }

    pub(super) fn url(&self) -> String {
        self.schema.url_with("")
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        Backend.open(&self.schema.address(), &OpenOptions::default()).await.expect("the store opens")
    }

    pub(super) async fn lock(&self) -> Lock {
        let session = connect().await;
        let lock = format!("BEGIN; LOCK TABLE {}.records IN EXCLUSIVE MODE", self.schema.name);
        session.batch_execute(&lock).await.expect("another transaction");
        Lock(session)
    }
}

pub(crate) struct Lock(tokio_postgres::Client);

impl Lock {
    pub(super) async fn release(self) {
        self.0.batch_execute("ROLLBACK").await.expect("a rollback");
    }
}

//! The store of a test: a file.

use semel::core::store::{Backend as _, OpenOptions, Store};
use semel_sql::sqlite::Backend;
use std::path::Path;
use std::sync::Arc;

pub(crate) struct TestStore {
    file: String,
}

impl TestStore {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_str().expect("text").to_owned() }
    }

    pub(super) fn url(&self) -> String {
        format!("sqlite:{}", self.file)
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        Backend.open(&self.file, &OpenOptions::default()).await.expect("the store opens")
    }

    pub(super) fn lock(&self) -> Lock {
        let connection = rusqlite::Connection::open(&self.file).expect("the same file");
        connection.execute_batch("BEGIN IMMEDIATE").expect("another transaction");
        Lock(connection)
    }
}

pub(crate) struct Lock(rusqlite::Connection);

impl Lock {
    pub(super) fn release(self) {
        self.0.execute_batch("ROLLBACK").expect("a rollback");
    }
}

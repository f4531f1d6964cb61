//! The store of a test: a file.

use semel::core::store::{Backend as _, OpenOptions, Store};
use semel_sql::sqlite::Backend;
use std::path::Path;
use std::sync::Arc;

/// A store for this test only.
pub(crate) struct TestStore {
    file: String,
}

impl TestStore {
    /// Its path, beside the other files of the test.
    pub(crate) fn new(file: &Path) -> Self {
        Self { file: file.to_str().expect("text").to_owned() }
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file)
    }

    /// Opens it in this process.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        Backend.open(&self.file, &OpenOptions::default()).await.expect("the store opens")
    }

    /// Blocks all writes to it until the lock is released.
    #[expect(clippy::unused_async, reason = "on a server it takes a round trip")]
    pub(crate) async fn lock(&self) -> Lock {
        let connection = rusqlite::Connection::open(&self.file).expect("the same file");
        connection.execute_batch("BEGIN IMMEDIATE").expect("another transaction");
        Lock(connection)
    }
}

pub(crate) struct Lock(rusqlite::Connection);

impl Lock {
    #[expect(clippy::unused_async, reason = "on a server it takes a round trip")]
    pub(crate) async fn release(self) {
        self.0.execute_batch("ROLLBACK").expect("a rollback");
    }
}

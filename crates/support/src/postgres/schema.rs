//! The server that tests connect to, and a separate schema for each test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::runtime::Builder;
use tokio_postgres::{Client, NoTls};

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// The URL of the server, without parameters.
///
/// # Panics
/// If the environment names none.
pub fn url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL").expect(
        "SEMEL_TEST_POSTGRES_URL names the server to test against: run `cargo xtask test`, or `cargo xtask services up` and \
         set what it prints",
    )
}

/// A schema that is dropped with its tables together with this value.
pub struct Schema {
    /// The name in SQL; it needs no quotes.
    pub name: String,
}

impl Schema {
    /// A unique name. Opening a store creates the schema.
    #[expect(clippy::new_without_default, reason = "each schema is different")]
    pub fn new() -> Self {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("test_{}_{number}", std::process::id()) }
    }

    /// The part after `postgres:` in the URL of the store in this schema.
    pub fn address(&self) -> String {
        self.address_at(&url())
    }

    /// The same on another server, or through a pooler.
    ///
    /// # Panics
    /// If it is not a URL.
    pub fn address_at(&self, url: &str) -> String {
        let address = url.split_once(':').expect("a URL").1;
        let joint = if address.contains('?') { '&' } else { '?' };
        format!("{address}{joint}schema={}", self.name)
    }

    /// The store's URL with further parameters, each with its `&`.
    pub fn url_with(&self, parameters: &str) -> String {
        format!("postgres:{}{parameters}", self.address())
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        // Blocking is not allowed within a runtime, so another thread does it.
        let dropping = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { connect().await.batch_execute(&sql).await })
        });
        drop(dropping.join());
    }
}

/// A separate connection, as an operator has with psql.
///
/// # Panics
/// If the server does not answer.
pub async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("the test server answers");
    tokio::spawn(connection);
    client
}

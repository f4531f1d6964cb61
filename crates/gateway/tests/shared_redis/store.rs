//! The store of a test: its own Redis server.

use semel::core::store::{Backend as _, OpenOptions, Store};
use semel_redis::Backend;
use semel_test_support::{RedisClient, RedisServer};
use std::path::Path;
use std::sync::Arc;

/// A store for this test only.
pub(crate) struct TestStore {
    server: RedisServer,
}

impl TestStore {
    /// The server's files are beside the other files of the test.
    pub(crate) fn new(file: &Path) -> Self {
        Self { server: RedisServer::start(file.with_extension("redis"), &[]) }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Sends an operator's command to the server.
    pub(crate) fn ask(&self, command: &str) {
        self.server.ask(command);
    }

    /// Opens it in this process.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        let url = self.server.url();
        let address = url.strip_prefix("redis:").expect("a URL of a Redis server");
        Backend.open(address, &OpenOptions::default()).await.expect("the store opens")
    }

    /// Blocks all writes to it until the lock is released.
    #[expect(clippy::unused_async, reason = "elsewhere it takes a round trip")]
    pub(crate) async fn lock(&self) -> Lock {
        let mut client = self.server.client();
        client.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        Lock(client)
    }
}

pub(crate) struct Lock(RedisClient);

impl Lock {
    #[expect(clippy::unused_async, reason = "elsewhere it takes a round trip")]
    pub(crate) async fn release(mut self) {
        self.0.ask(&["CLIENT", "UNPAUSE"]);
    }
}

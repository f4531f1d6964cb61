//! The store of a test: its own Redis server.

use semel::core::store::{Backend as _, OpenOptions, Store};
use semel_redis::Backend;
use semel_test_support::{RedisClient, RedisServer};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct TestStore {
    server: RedisServer,
}

impl TestStore {
    /// The server's files are beside `file`.
    pub(super) fn new(file: &Path) -> Self {
        Self { server: RedisServer::start(file.with_extension("redis"), &[]) }
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    pub(super) fn ask(&self, command: &str) {
        self.server.ask(command);
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        let url = self.server.url();
        let address = url.strip_prefix("redis:").expect("a URL of a Redis server");
        Backend.open(address, &OpenOptions::default()).await.expect("the store opens")
    }

    pub(super) fn lock(&self) -> Lock {
        let mut client = self.server.client();
        client.ask(&["CLIENT", "PAUSE", "300000", "WRITE"]);
        Lock(client)
    }
}

pub(crate) struct Lock(RedisClient);

impl Lock {
    pub(super) fn release(mut self) {
        self.0.ask(&["CLIENT", "UNPAUSE"]);
    }
}

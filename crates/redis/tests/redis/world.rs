//! The server that tests connect to, and a separate prefix for each test.

use semel_redis::Store;
use semel_test_support::{RedisClient, RedisReply, services};
use std::sync::atomic::{AtomicU64, Ordering};

static PREFIXES: AtomicU64 = AtomicU64::new(0);

/// Keys that are removed when this is dropped.
pub(crate) struct Keys {
    pub(crate) prefix: String,
    url: String,
}

impl Keys {
    /// On the single server; `None` if there is none.
    pub(crate) fn new() -> Option<Self> {
        services::redis_url().map(|url| Self::at(&url))
    }

    pub(crate) fn at(url: &str) -> Self {
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("test-{}-{number}", std::process::id()), url: url.to_owned() }
    }

    /// The store's URL with further parameters, each with its `&`.
    pub(crate) fn url_with(&self, parameters: &str) -> String {
        let joint = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joint}prefix={}{parameters}", self.url, self.prefix)
    }

    pub(crate) async fn open(&self, parameters: &str) -> Store {
        Store::open(&self.url_with(parameters)).await.expect("the store opens")
    }

    pub(crate) fn client(&self) -> RedisClient {
        RedisClient::connect(&self.url)
    }

    /// The only key that matches, on a single server.
    pub(crate) fn only_key(&self, pattern: &str) -> String {
        let found = self.client().ask(&["KEYS", &format!("{{{}:*}}{pattern}", self.prefix)]);
        match found {
            RedisReply::Array(keys) if keys.len() == 1 => keys[0].clone().text(),
            other => panic!("expected one key, found {other:?}"),
        }
    }
}

/// Every server that has keys of a URL: each that takes writes.
pub(crate) fn servers_of(url: &str) -> Vec<RedisClient> {
    let mut first = RedisClient::connect(url);
    let slots = first.ask(&["CLUSTER", "SLOTS"]);
    let RedisReply::Array(ranges) = slots else { return vec![first] };
    let mut addresses = std::collections::BTreeSet::new();
    for range in ranges {
        if let RedisReply::Array(range) = range
            && let Some(RedisReply::Array(owner)) = range.get(2).cloned()
        {
            addresses.insert(format!("{}:{}", owner[0].clone().text(), owner[1].clone().number()));
        }
    }
    addresses.iter().map(|address| RedisClient::try_connect(address).expect("it answers")).collect()
}

impl Drop for Keys {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for mut server in servers_of(&self.url) {
            for pattern in [
                format!("{{{}:*", self.prefix),
                format!("{{{}}}*", self.prefix),
                format!("{}:*", self.prefix),
            ] {
                let RedisReply::Array(keys) = server.ask(&["KEYS", &pattern]) else { continue };
                for key in keys {
                    server.ask(&[&b"DEL"[..], &key.bytes()]);
                }
            }
        }
    }
}

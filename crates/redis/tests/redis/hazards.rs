//! Setups that lose acknowledged writes are named.

use semel_core::store::{Severity, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisServer, ScratchDir};

async fn hazards_with(settings: &[&str]) -> Vec<(Severity, &'static str)> {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "hazards");
    let server = RedisServer::start(folder.join("server"), settings);
    let store = Store::open(&server.url()).await.expect("the store opens");
    let found = store.hazards().await.expect("looked at");
    store.close().await;
    found.into_iter().map(|hazard| (hazard.severity, hazard.code)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn known_bad_setups_are_found_on_real_servers() {
    if !RedisServer::is_installed() {
        return;
    }
    assert_eq!(hazards_with(&[]).await, []);
    for (settings, code) in [
        (&["--maxmemory-policy", "allkeys-lru"][..], "redis-eviction"),
        (&["--maxmemory-policy", "volatile-ttl"], "redis-eviction"),
        (&["--appendonly", "no"], "redis-no-aof"),
        (&["--appendfsync", "everysec"], "redis-appendfsync"),
    ] {
        assert_eq!(hazards_with(settings).await, [(Severity::Danger, code)], "{settings:?}");
    }
}

//! What is refused when a store is opened, and the messages.

use crate::world::Keys;
use semel_core::store::{Backend as _, Kind, Store as _};
use semel_redis::{Backend, Store};
use semel_test_support::{RedisReply, RedisServer, ScratchDir};
use std::process::{Child, Command, Stdio};

async fn refusal(url: &str) -> (Kind, String) {
    let error = Store::open(url).await.err().unwrap_or_else(|| panic!("{url} was opened"));
    (error.kind(), error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_buckets_cannot_change() {
    let Some(keys) = Keys::new() else { return };
    keys.open("&buckets=8").await.close().await;
    keys.open("").await.close().await;
    keys.open("&buckets=8").await.close().await;
    let (kind, message) = refusal(&keys.url_with("&buckets=9")).await;
    assert_eq!(kind, Kind::Unfit);
    assert!(message.contains("8 buckets") && message.contains("buckets=9"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_builds_store_is_refused() {
    let Some(keys) = Keys::new() else { return };
    keys.open("").await.close().await;
    keys.client().ask(&["HSET", &format!("{{{}}}meta", keys.prefix), "format", "2"]);
    let (kind, message) = refusal(&keys.url_with("")).await;
    assert_eq!(kind, Kind::Unfit);
    assert!(message.contains("format `2`") && message.contains("upgrade"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_exists_as_soon_as_it_was_opened() {
    let Some(keys) = Keys::new() else { return };
    let url = keys.url_with("");
    let address = url.split_once(':').expect("a URL").1;
    assert!(!Backend.exists(address).await.expect("looked"));
    assert!(Backend.inspect(address).await.is_err(), "there is nothing to read");
    assert!(!Backend.exists(address).await.expect("looked"), "looking makes no store");
    keys.open("").await.close().await;
    assert!(Backend.exists(address).await.expect("looked"));
    let inspection = Backend.inspect(address).await.expect("it is there");
    let refused = inspection.set("a", None, Some(b"1")).await.expect_err("it is only looked at");
    assert_eq!(refused.kind(), Kind::ReadOnly);
    assert_eq!(inspection.verify().await.expect("looked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_for_writing_and_accepted_for_inspection() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "replica");
    let master = RedisServer::start(folder.join("master"), &[]);
    Store::open(&master.url()).await.expect("it takes writes").close().await;
    let replica = master.replica(folder.join("replica"));
    let (kind, message) = refusal(&replica.url()).await;
    assert_eq!(kind, Kind::ReadOnly);
    assert!(message.contains("is a replica"), "{message}");
    let inspection = Backend.inspect(&format!("//{}", replica.address())).await.expect("it may be looked at");
    assert!(inspection.is_replica().await.expect("an answer"));
    let hazards = inspection.hazards().await.expect("looked at");
    assert!(hazards.iter().any(|hazard| hazard.code == "redis-replica"), "{hazards:?}");
    // The server that takes writes is found, in any order of names.
    let both = format!("redis://{},{}", replica.address(), master.address());
    let store = Store::open(&both).await.expect("one of them takes writes");
    assert!(store.capabilities().clocks_can_differ(), "each server has its own clock");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_not_shown() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "password");
    let server = RedisServer::start(folder.join("server"), &[]);
    let password = folder.write("password", "hunter2\n");
    let url = format!("redis://semel@{}?password=file:{}", server.address(), password.display());
    server.ask("ACL SETUSER semel reset on >hunter2 ~* &* +@all");
    Store::open(&url).await.expect("it is the password").close().await;
    std::fs::write(&password, "wrong").expect("written");
    let (kind, message) = refusal(&url).await;
    assert_eq!(kind, Kind::Unfit);
    assert!(message.contains("WRONGPASS") && !message.contains("hunter2"), "{message}");
}

/// A confirmation that no server can give is found at start, not with the first payment.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_without_a_terminal_is_refused() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "confirmation");
    let server = RedisServer::start(folder.join("server"), &[]);
    let (kind, message) = refusal(&format!("{}?wait=1", server.url())).await;
    assert_eq!(kind, Kind::Unavailable);
    assert!(message.contains("wait=1") && message.contains("0 replicas"), "{message}");
    let knows = !matches!(server.ask("WAITAOF 0 0 1"), RedisReply::Error(_));
    if knows {
        server.ask("CONFIG SET appendonly no");
    }
    let (kind, message) = refusal(&format!("{}?waitaof=on", server.url())).await;
    assert_eq!(kind, Kind::Unfit);
    assert!(
        message.contains("waitaof=on") && message.contains(if knows { "appendonly" } else { "Redis 7.2" }),
        "{message}"
    );
    assert_eq!(server.ask("DBSIZE").number(), 0, "nothing was written");
    let replica = server.replica(folder.join("replica"));
    Store::open(&format!("{}?wait=1", server.url())).await.expect("it has a replica").close().await;
    drop(replica);
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_is_refused_with_the_address_to_use_instead() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "sentinel");
    let master = RedisServer::start(folder.join("master"), &[]);
    let sentinel = || {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a port")
            .port();
        let config =
            format!("port {port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {} 1\n", master.port());
        let config = folder.write("sentinel.conf", config);
        let mut command = Command::new("redis-server");
        command.arg(&config).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
        (Process(command.spawn().expect("it starts")), port)
    };
    let (mut process, mut port) = sentinel();
    let message = loop {
        let (kind, message) = refusal(&format!("redis://127.0.0.1:{port}")).await;
        if kind == Kind::Unfit {
            break message;
        }
        // It ends if another process has taken the port before it.
        if process.0.try_wait().expect("looked at").is_some() {
            (process, port) = sentinel();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(message.contains("is a Sentinel") && message.contains("separated by commas"), "{message}");
}

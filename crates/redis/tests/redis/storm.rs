//! A storm of duplicates, faults and kills on each kind of server.

use semel_core::store::Store as _;
use semel_redis::Store;
use semel_test_support::{RedisCluster, RedisServer, ScratchDir};
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request};
use semel_testkit::storm::{self, NODES, ServerFault, Storm};
use std::net::SocketAddr;
use std::sync::Arc;

const END_CLIENTS: &str = "CLIENT KILL TYPE normal SKIPME yes";
const TIMEOUTS: &str = "timeout=1&connect_timeout=2";

/// Runs as a node. Does nothing without the variables of a storm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    storm::run_node(async |url| Some(Arc::new(Store::open(url).await.ok()?) as _)).await;
}

fn address(server: &RedisServer) -> SocketAddr {
    server.address().parse().expect("an address")
}

/// An existing store, and a network for each node in front of it.
async fn networks(server: &RedisServer) -> (Vec<FaultProxy>, Vec<String>) {
    Store::open(&server.url()).await.expect("the store opens").close().await;
    let (mut proxies, mut urls) = (Vec::new(), Vec::new());
    for number in 0..NODES as u64 {
        let proxy = storm::proxy(address(server), Protocol::Redis, number).await;
        urls.push(format!("redis://{}?{TIMEOUTS}", proxy.address()));
        proxies.push(proxy);
    }
    (proxies, urls)
}

async fn storm_on(mut server: RedisServer, folder: &ScratchDir) {
    let direct = server.url();
    let (_proxies, urls) = networks(&server).await;
    let mut storm = Storm::start(folder.path(), urls);
    storm
        .run_to_end(|fault| match fault {
            ServerFault::RestartServer => server.restart(),
            ServerFault::EndConnections => drop(server.ask(END_CLIENTS)),
        })
        .await;
    let store = Store::open(&direct).await.expect("the store opens");
    storm.judge(&store).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_despite_kills_and_losses() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm");
    storm_on(RedisServer::start(folder.join("server"), &[]), &folder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_on_valkey_too() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm-valkey");
    let Some(server) = RedisServer::start_valkey(folder.join("server"), &[]) else { return };
    storm_on(server, &folder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_although_the_server_is_emptied() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm-emptied");
    let server = RedisServer::start(folder.join("server"), &[]);
    let (_proxies, urls) = networks(&server).await;
    let mut storm = Storm::start_endless(folder.path(), urls);
    storm.run_until_lost(|| drop(server.ask(END_CLIENTS)), || drop(server.ask("FLUSHALL"))).await;
    storm.judge_after_loss();
}

/// Three servers without replicas: a failover loses writes, which another test covers. Each announces the
/// address of the network in front of it, so that no node bypasses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_on_a_cluster_too() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm-cluster");
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut proxies: Vec<FaultProxy> = Vec::new();
    for number in 0..NODES as u64 {
        proxies.push(storm::proxy(nobody, Protocol::Redis, number).await);
    }
    let announced: Vec<u16> = proxies.iter().map(|proxy| proxy.address().port()).collect();
    let mut cluster = RedisCluster::start_announcing(folder.join("servers"), &announced);
    for (proxy, server) in proxies.iter().zip(&cluster.servers) {
        proxy.swap(address(server), Existing::Keep);
    }
    let mut hosts: Vec<String> = announced.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut urls = Vec::new();
    for _ in 0..NODES {
        urls.push(format!("redis://{}?{TIMEOUTS}", hosts.join(",")));
        hosts.rotate_left(1);
    }
    while Store::open(&urls[0]).await.is_err() {}
    let (mut storm, mut turn) = (Storm::start(folder.path(), urls.clone()), 0);
    storm
        .run_to_end(|fault| {
            turn += 1;
            let server = &mut cluster.servers[turn % NODES];
            match fault {
                ServerFault::RestartServer => server.restart(),
                ServerFault::EndConnections => drop(server.ask(END_CLIENTS)),
            }
        })
        .await;
    for proxy in &proxies {
        assert!(proxy.requests_total() > 100, "every server is reached through its network");
        proxy.set_plan(|_: &Request<'_>| Fault::Pass);
        proxy.cut();
    }
    let store = Store::open(&urls[0]).await.expect("the store opens");
    storm.judge(&store).await;
    store.close().await;
}

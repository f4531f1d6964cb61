//! Servers and connections that no longer answer, but are not closed: they are replaced, and only they.

use crate::server::Schema;
use semel::{Clock as _, SystemClock};
use semel_core::store::{Change, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::faults::Pause;
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request};
use semel_testkit::records::{claimed, id, is_done};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// How long callers wait, as the engine does.
const PATIENCE: Duration = Duration::from_millis(300);
const BOUND: Duration = Duration::from_mins(1);
/// With `connections=4` and `listen=off`: two that read, two that write, two for locked rows, one for lists.
const SLOTS: u64 = 7;
/// Of a slot: two connections with their drivers and four calls each, and the task that opens one. Of a writer: its
/// loop, and a batch on each of its connections.
const TASKS: u64 = SLOTS * (2 * (1 + 4) + 1) + 4 * 3;

fn options() -> Options {
    Options::default().request_timeout(PATIENCE)
}

/// What a gateway does: it gives up a call after a while, and comes again.
async fn impatiently<T>(call: impl Future<Output = Result<T, semel_core::store::Error>>) -> Option<T> {
    timeout(PATIENCE, call).await.ok()?.ok()
}

/// Whether a read and a write are answered.
async fn works(store: &Store, number: u64) -> bool {
    let read = impatiently(store.get(id(number))).await.is_some();
    let written = impatiently(store.write(id(number), Change::Insert(&claimed(number)))).await.is_some();
    read && written
}

/// The first number from `first` on for which the store works several times in a row.
async fn recovered(store: &Store, first: u64) -> u64 {
    let recovering = async {
        let (mut number, mut in_a_row) = (first, 0);
        while in_a_row < 8 {
            in_a_row = if works(store, number).await { in_a_row + 1 } else { 0 };
            number += 1;
        }
        number
    };
    timeout(BOUND, recovering).await.expect("it recovers")
}

/// Many callers that give up, as under load.
fn crowd(store: &Arc<Store>) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for number in 0..40 {
        let store = Arc::clone(store);
        callers.spawn(async move {
            for round in 0.. {
                works(&store, 1_000_000 + number * 1_000 + round).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    callers
}

#[tokio::test(flavor = "multi_thread")]
async fn halted_backends_are_replaced_and_stay_replaced() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "halted-backends");
    let server = PostgresServer::start(folder.join("server"));
    let store = Store::open(&server.url(), options()).await.expect("the store opens");
    let mut number = recovered(&store, 0).await;
    for _ in 0..2 {
        // How many there are depends on how many calls were made at once; one has read, and one has written.
        assert!(server.halt_connections() >= 2, "every connection is halted");
        number = recovered(&store, number).await;
        // Beyond the time after which the halted connections are closed.
        for _ in 0..30 {
            let read = timeout(BOUND, store.get(id(number))).await.expect("an answer");
            read.expect("it stays recovered");
            let written = timeout(BOUND, store.write(id(number), Change::Insert(&claimed(number)))).await;
            assert!(is_done(&written.expect("an answer").expect("it stays recovered")));
            number += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    server.resume();
    recovered(&store, number).await;
}

/// A store on the shared server, through a proxy.
async fn proxied(schema: &Schema, parameters: &str) -> (Arc<Store>, FaultProxy, SocketAddr) {
    let url = schema.url_with(&format!("&listen=off{parameters}"));
    let server = crate::faults::address_in(&url);
    let plan = |_: &Request<'_>| Fault::Pass;
    let proxy = FaultProxy::start(server, Protocol::Postgres, plan).await.expect("a port");
    let url = url.replace(&server.to_string(), &proxy.address().to_string());
    let store = Store::open(&url, options()).await.expect("the store opens");
    (Arc::new(store), proxy, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_keeps_its_connections() {
    let schema = Schema::new();
    let (store, proxy, _) = proxied(&schema, "&timeout=20").await;
    recovered(&store, 0).await;
    let begin = SystemClock.uptime();
    let before = proxy.connections_total();
    proxy.set_plan(|_: &Request<'_>| Fault::DelayResponse(Pause::of(PATIENCE * 3 / 2)));
    for round in 0..8 {
        let mut calls = JoinSet::new();
        for number in 0..8 {
            let (store, number) = (Arc::clone(&store), 100 + round * 8 + number);
            calls.spawn(async move {
                let read = timeout(BOUND, store.get(id(number))).await.expect("an answer");
                read.expect("a slow answer is an answer");
                let written = timeout(BOUND, store.write(id(number), Change::Insert(&claimed(number)))).await;
                let written = written.expect("an answer").expect("no call is put in doubt");
                assert!(is_done(&written));
            });
        }
        calls.join_all().await;
    }
    let opened = proxy.connections_total() - before;
    let seconds = SystemClock.uptime().saturating_sub(begin).as_secs() + 1;
    assert!(opened <= SLOTS * seconds, "{opened} connections in {seconds} s");
    // Once a connection is known to be slow, it is not replaced at all.
    let before = proxy.connections_total();
    for number in 900..910 {
        store.get(id(number)).await.expect("an answer");
    }
    assert!(
        proxy.connections_total() - before <= 2,
        "{} more connections",
        proxy.connections_total() - before
    );
}

/// A host that accepts connections and never answers.
async fn swallowing() -> (SocketAddr, Arc<AtomicU64>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::<AtomicU64>::default();
    let counting = Arc::clone(&accepted);
    let accepting = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            counting.fetch_add(1, Ordering::SeqCst);
            held.push(stream);
        }
    });
    (address, accepted, accepting)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_swallows_connections_is_not_flooded() {
    let schema = Schema::new();
    let (store, proxy, server) = proxied(&schema, "&connect_timeout=1").await;
    let number = recovered(&store, 0).await;
    let (dead, _, accepting) = swallowing().await;
    let (begin, before) = (SystemClock.uptime(), proxy.connections_total());
    proxy.swap(dead, Existing::Cut);
    let callers = crowd(&store);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let opened = proxy.connections_total() - before;
    let seconds = SystemClock.uptime().saturating_sub(begin).as_secs() + 1;
    assert!(opened > 0 && opened <= SLOTS * seconds, "{opened} connections in {seconds} s");
    drop(callers);
    proxy.swap(server, Existing::Cut);
    accepting.abort();
    recovered(&store, number).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_tasks_are_bounded_while_nothing_answers() {
    let schema = Schema::new();
    let (store, proxy, _) = proxied(&schema, "").await;
    let number = recovered(&store, 0).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
    // Logins work, and nothing after them.
    proxy.set_plan(|request: &Request<'_>| if request.number < 3 { Fault::Pass } else { Fault::HalfOpen });
    let callers = crowd(&store);
    let (mut connections_max, mut tasks_max) = (0, 0);
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        connections_max = connections_max.max(proxy.connections());
        // The proxy has a task for each connection.
        tasks_max = tasks_max.max(tasks().saturating_sub(proxy.connections() + callers.len() as u64 + 2));
    }
    drop(callers);
    assert!(connections_max > SLOTS / 2 && connections_max <= 2 * SLOTS, "{connections_max} connections");
    assert!(tasks_max <= TASKS, "{tasks_max} tasks");
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    recovered(&store, number).await;
}

/// A port whose queue of new connections is full: further packets to it are dropped.
async fn unreachable() -> (SocketAddr, Vec<TcpStream>, std::net::TcpListener) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("it listens").into_std().expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut held = Vec::new();
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        held.push(stream);
        assert!(held.len() < 100, "the queue is never full");
    }
    (address, held, listener)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_first_host_is_passed_over_and_the_last_good_one_comes_first() {
    let schema = Schema::new();
    let (swallows, accepted, accepting) = swallowing().await;
    let (drops_packets, _queue, _listener) = unreachable().await;
    let url = schema.url_with("&connect_timeout=1");
    let server = crate::faults::address_in(&url).to_string();
    let url = url.replace(&server, &format!("{swallows},{drops_packets},{server}"));
    let store = Store::open(&url, options()).await.expect("the third host works");
    recovered(&store, 0).await;
    assert_eq!(accepted.load(Ordering::SeqCst), 1, "later connections try the good host first");
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_replaces_a_hung_primary() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "hung-primary");
    let primary = PostgresServer::start(folder.join("primary"));
    let mut standby = primary.standby(folder.join("standby"));
    let url = format!(
        "postgres://semel@127.0.0.1:{},127.0.0.1:{}/semel?connect_timeout=1",
        primary.port(),
        standby.port()
    );
    let store = Store::open(&url, options()).await.expect("the primary takes writes");
    let number = recovered(&store, 0).await;
    standby.catch_up(&primary);
    primary.halt();
    standby.promote();
    let number = recovered(&store, number).await;
    // The old primary answers again, and is not used.
    primary.resume();
    let count = || primary.sql("SELECT count(*) FROM semel.records");
    let before = count();
    let number = recovered(&store, number).await;
    standby.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'semel'");
    recovered(&store, number).await;
    assert_eq!(count(), before);
}

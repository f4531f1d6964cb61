//! The proxy changes bytes exactly as planned.

use semel_testkit::faults::{Gate, Pause};
use semel_testkit::proxy::{
    Existing, Fault, FaultProxy, FaultRates, Plan, Protocol, Request, Script, Seeded, Throttle,
};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The length of every request and of every response.
const LENGTH: usize = 4;

/// A server that records each request and answers with its own name.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    name: [u8; LENGTH],
    applied: Arc<Mutex<Vec<[u8; LENGTH]>>>,
}

impl Server {
    async fn start(name: [u8; LENGTH]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its number");
        let server = Self { address, name, applied: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut request = [0; LENGTH];
        while stream.read_exact(&mut request).await.is_ok() {
            self.applied.lock().expect("no panic").push(request);
            if stream.write_all(&self.name).await.is_err() {
                return;
            }
        }
    }

    fn applied(&self) -> Vec<[u8; LENGTH]> {
        self.applied.lock().expect("no panic").clone()
    }
}

async fn proxied(plan: impl Plan) -> (Server, FaultProxy) {
    let server = Server::start(*b"here").await;
    let proxy = FaultProxy::start(server.address, Protocol::Opaque, plan).await.expect("a port");
    (server, proxy)
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.expect("a connection")
}

async fn ask(client: &mut TcpStream, request: &[u8; LENGTH]) -> std::io::Result<[u8; LENGTH]> {
    client.write_all(request).await?;
    let mut response = [0; LENGTH];
    client.read_exact(&mut response).await?;
    Ok(response)
}

/// Lets other tasks run until the condition holds.
async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition never held");
}

/// Asserts that nothing has arrived for this client, although a connection made later was served completely.
async fn assert_silent(proxy: &FaultProxy, client: &TcpStream) {
    proxy.set_plan(Script::default());
    for _ in 0..3 {
        ask(&mut connect(proxy).await, b"late").await.expect("a response");
    }
    let mut byte = [0];
    let read = client.try_read(&mut byte);
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
}

fn kind(answer: std::io::Result<[u8; LENGTH]>) -> ErrorKind {
    answer.expect_err("it was cut").kind()
}

#[tokio::test]
async fn without_a_fault_requests_and_responses_pass() {
    let (server, proxy) = proxied(Script::default()).await;
    let mut client = connect(&proxy).await;
    for request in [b"one_", b"two_"] {
        assert_eq!(ask(&mut client, request).await.expect("a response"), server.name);
    }
    assert_eq!(server.applied(), [*b"one_", *b"two_"]);
    assert_eq!((proxy.connections(), proxy.requests_total()), (1, 2));
    drop(client);
    until(|| proxy.connections() == 0).await;
}

#[tokio::test]
async fn a_request_cut_before_never_reaches_the_server() {
    let (server, proxy) = proxied(Script::new([Fault::Pass, Fault::CutBefore])).await;
    let mut client = connect(&proxy).await;
    ask(&mut client, b"one_").await.expect("a response");
    assert_eq!(kind(ask(&mut client, b"two_").await), ErrorKind::ConnectionReset);
    ask(&mut connect(&proxy).await, b"next").await.expect("a response");
    assert_eq!(server.applied(), [*b"one_", *b"next"]);
}

#[tokio::test]
async fn a_request_cut_after_was_applied_and_its_response_is_lost() {
    let (server, proxy) = proxied(Script::of(*b"two_", [Fault::CutAfter])).await;
    let mut client = connect(&proxy).await;
    ask(&mut client, b"one_").await.expect("a response");
    assert_eq!(kind(ask(&mut client, b"two_").await), ErrorKind::ConnectionReset);
    assert_eq!(server.applied(), [*b"one_", *b"two_"]);
}

#[tokio::test]
async fn a_half_open_connection_drops_bytes_and_stays_open() {
    let (server, proxy) = proxied(Script::new([Fault::Pass, Fault::HalfOpen])).await;
    let mut client = connect(&proxy).await;
    ask(&mut client, b"one_").await.expect("a response");
    client.write_all(b"two_").await.expect("the connection stays");
    until(|| proxy.requests_total() == 2).await;
    assert_silent(&proxy, &client).await;
    client.write_all(b"more").await.expect("the connection stays");
    assert_silent(&proxy, &client).await;
    assert!(!server.applied().contains(b"two_") && !server.applied().contains(b"more"));
    proxy.cut();
    assert_eq!(client.read_u8().await.expect_err("cut").kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_delayed_request_reaches_the_server_after_its_pause() {
    let gate = Gate::new();
    let (server, proxy) = proxied(Script::new([Fault::DelayRequest(gate.pause())])).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"one_").await.expect("open");
    until(|| gate.is_waited_for()).await;
    assert_silent(&proxy, &client).await;
    assert!(!server.applied().contains(b"one_"));
    gate.open();
    client.read_exact(&mut [0; LENGTH]).await.expect("the response");
    assert!(server.applied().contains(b"one_"));
}

#[tokio::test]
async fn a_delayed_response_reaches_the_client_after_its_pause() {
    let gate = Gate::new();
    let (server, proxy) = proxied(Script::new([Fault::DelayResponse(gate.pause())])).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"one_").await.expect("open");
    until(|| server.applied() == [*b"one_"]).await;
    assert_silent(&proxy, &client).await;
    gate.open();
    client.read_exact(&mut [0; LENGTH]).await.expect("the response");
}

#[tokio::test]
async fn a_throttled_connection_passes_one_part_at_a_time() {
    let gate = Gate::new();
    let slow = {
        let gate = gate.clone();
        Throttle::new(1, move || gate.pause())
    };
    let (server, proxy) = proxied(Script::new([Fault::Throttle(slow)])).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"one_").await.expect("open");
    until(|| gate.is_waited_for()).await;
    assert_silent(&proxy, &client).await;
    assert!(!server.applied().contains(b"one_"), "only its first byte has passed");
    gate.open();
    client.read_exact(&mut [0; LENGTH]).await.expect("the response");
    assert!(server.applied().contains(b"one_"));
}

#[tokio::test]
async fn a_swap_affects_only_the_named_connections() {
    let (old, proxy) = proxied(Script::default()).await;
    let new = Server::start(*b"new_").await;
    let mut kept = connect(&proxy).await;
    assert_eq!(ask(&mut kept, b"a___").await.expect("a response"), old.name);
    proxy.swap(new.address, Existing::Keep);
    assert_eq!(ask(&mut kept, b"b___").await.expect("a response"), old.name);
    let mut fresh = connect(&proxy).await;
    assert_eq!(ask(&mut fresh, b"c___").await.expect("a response"), new.name);

    proxy.swap(new.address, Existing::Follow);
    assert_eq!(ask(&mut kept, b"d___").await.expect("the same connection"), new.name);
    assert_eq!((proxy.connections_total(), old.applied().len()), (2, 2));

    proxy.swap(old.address, Existing::Cut);
    assert_eq!(kept.read_u8().await.expect_err("cut").kind(), ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut connect(&proxy).await, b"e___").await.expect("a response"), old.name);
}

#[tokio::test]
async fn a_proxy_that_is_dropped_leaves_no_connection_behind() {
    let (_server, proxy) = proxied(Script::default()).await;
    let mut client = connect(&proxy).await;
    ask(&mut client, b"one_").await.expect("a response");
    let address = proxy.address();
    drop(proxy);
    assert!(!matches!(client.read(&mut [0]).await, Ok(1..)), "a byte out of nowhere");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn large_streams_in_both_directions_do_not_block_each_other() {
    const BYTES: usize = 8 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its number");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.expect("an echo");
    });
    let proxy = FaultProxy::start(address, Protocol::Opaque, Script::default()).await.expect("a port");
    let (mut from, mut to) = connect(&proxy).await.into_split();
    let sent: Vec<u8> = (0..BYTES).map(|n| u8::try_from(n % 251).expect("small")).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        to.write_all(&sent).await.expect("open");
        to.shutdown().await.expect("open");
    });
    let mut echo = Vec::new();
    from.read_to_end(&mut echo).await.expect("all of it");
    sending.await.expect("no panic");
    assert!(echo == expected, "{} of {BYTES} bytes came back", echo.len());
}

fn fates(seed: u64, odds: FaultRates, connection: u64) -> Vec<String> {
    let plan = Seeded::new(seed, odds);
    let request = |number| Request { connection, number, total: 7 * number, bytes: b"" };
    (0..200).map(|number| format!("{:?}", plan.fate(&request(number)))).collect()
}

#[test]
fn a_seed_decides_each_connection_independently() {
    let odds = FaultRates {
        cut_before: 100,
        cut_after: 100,
        half_open: 100,
        throttle: 100,
        ..FaultRates::default()
    };
    assert_eq!(fates(1, odds, 4), fates(1, odds, 4));
    assert_ne!(fates(1, odds, 4), fates(1, odds, 5));
    assert_ne!(fates(1, odds, 4), fates(2, odds, 4));
    for fault in ["Pass", "CutBefore", "CutAfter", "HalfOpen", "Throttle"] {
        let count = fates(1, odds, 4).iter().filter(|fate| fate.starts_with(fault)).count();
        assert!(count > 5, "{fault}: {count} of 200");
    }
}

#[tokio::test]
async fn seeded_delays_go_both_ways_and_are_bounded() {
    let odds = FaultRates { delay: 1_000, delay_max: Duration::from_millis(1), ..FaultRates::default() };
    let fates = fates(3, odds, 0);
    for direction in ["DelayRequest", "DelayResponse"] {
        assert!(fates.iter().any(|fate| fate.starts_with(direction)), "{direction}");
    }
    let (server, proxy) = proxied(Seeded::new(3, odds)).await;
    let mut client = connect(&proxy).await;
    for _ in 0..10 {
        assert_eq!(ask(&mut client, b"one_").await.expect("a response"), server.name);
    }
    Pause::of(Duration::ZERO).await;
}

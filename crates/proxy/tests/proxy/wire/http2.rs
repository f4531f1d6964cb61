//! HTTP/2 with prior knowledge, without TLS: clients that use a library, and clients that write frames by hand.

use super::world::{Client, World, options, within};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel_proxy::listen::{Drained, Options};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const SHORT: Duration = Duration::from_millis(100);

type Driving = JoinHandle<hyper::Result<()>>;

async fn connect(world: &World) -> (SendRequest<Full<Bytes>>, Driving) {
    let tcp = world.connect().await.tcp;
    let (send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await.expect("HTTP/2");
    (send, tokio::spawn(connection))
}

fn post(path: &str, body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri(format!("http://a{path}"));
    request.body(Full::from(body)).expect("a request")
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_side_by_side() {
    let world = World::new().await;
    let (mut send, _driving) = connect(&world).await;
    let hanging = tokio::spawn(send.send_request(post("/hang", "")));
    within(world.service.arrived.notified()).await;
    let response = within(send.send_request(post("/other", "hello"))).await.expect("an answer");
    let body = within(response.into_body().collect()).await.expect("a body").to_bytes();
    assert_eq!(body, "POST http://a/other hello");
    world.service.release();
    assert_eq!(within(hanging).await.expect("no panic").expect("an answer").status(), StatusCode::OK);
}

#[tokio::test]
async fn a_panic_costs_its_own_stream_and_no_other() {
    let world = World::new().await;
    let (mut send, _driving) = connect(&world).await;
    within(send.send_request(post("/panic", ""))).await.expect_err("no answer");
    assert_eq!(within(send.send_request(post("/", ""))).await.expect("an answer").status(), StatusCode::OK);
}

#[tokio::test]
async fn running_requests_are_answered_at_shutdown() {
    let world = World::new().await;
    let (service, address) = (world.service.clone(), world.address);
    let (mut send, driving) = connect(&world).await;
    let hanging = tokio::spawn(send.send_request(post("/hang", "")));
    within(service.arrived.notified()).await;
    let end = tokio::spawn(world.stop());
    // The socket is closed first: when connections are refused, shutdown has begun.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    service.release();
    assert_eq!(within(hanging).await.expect("no panic").expect("an answer").status(), StatusCode::OK);
    assert_eq!(end.await.expect("no panic"), Drained { ended: 1, cut_off: 0 });
    within(driving).await.expect("no panic").expect("a clean close");
}

#[tokio::test]
async fn a_connection_without_requests_gets_a_goaway() {
    let world = World::with(Options { idle_timeout: SHORT, ..options() }).await;
    let (mut send, driving) = connect(&world).await;
    within(send.send_request(post("/", ""))).await.expect("an answer");
    within(driving).await.expect("no panic").expect("a clean close");
}

#[tokio::test]
async fn a_client_that_never_finishes_its_handshake_is_let_go() {
    let limits = Options { idle_timeout: SHORT, head_timeout: SHORT, ..options() };
    let world = World::with(limits).await;
    let mut client = world.connect().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut rest = Vec::new();
    within(client.tcp.read_to_end(&mut rest)).await.expect("the end");
}

/// A client that writes its own frames.
struct Frames(Client);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

impl Frames {
    async fn new(world: &World) -> Self {
        let mut client = world.connect().await;
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let mut this = Self(client);
        this.send(4, 0, 0, b"").await;
        this
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
        self.0.send([&head, payload].concat()).await;
    }

    async fn request(&mut self, flags: u8, more: &[(&str, &str)]) {
        self.request_to("/frames", flags, more).await;
    }

    async fn request_to(&mut self, path: &str, flags: u8, more: &[(&str, &str)]) {
        let pseudo_headers = [(":method", "POST"), (":scheme", "http"), (":path", path)];
        self.request_of(flags, &[&pseudo_headers, more].concat()).await;
    }

    async fn request_of(&mut self, flags: u8, fields: &[(&str, &str)]) {
        let mut payload = Vec::new();
        for (name, value) in fields {
            payload.push(0);
            for text in [name, value] {
                let length = u8::try_from(text.len()).expect("short");
                assert!(length < 127, "one byte of length");
                payload.push(length);
                payload.extend_from_slice(text.as_bytes());
            }
        }
        self.send(HEADERS, flags | END_HEADERS, 1, &payload).await;
    }

    /// The first frame of the response on stream 1, or the one that ends the connection: its kind and payload.
    async fn answer(&mut self) -> (u8, Vec<u8>) {
        loop {
            let mut head = [0; 9];
            within(self.0.tcp.read_exact(&mut head)).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            within(self.0.tcp.read_exact(&mut payload)).await.expect("a frame");
            if head[8] == 1 || head[3] == GO_AWAY {
                return (head[3], payload);
            }
        }
    }
}

/// Sends one request with these fields, and its end.
async fn answered(world: &World, fields: &[(&str, &str)]) -> (u8, Vec<u8>) {
    let mut frames = Frames::new(world).await;
    frames.request(END_STREAM, fields).await;
    frames.answer().await
}

/// `:status: 200` and `:status: 400` in HPACK's static table.
const OK: u8 = 0x88;
const BAD_REQUEST: u8 = 0x8c;

#[tokio::test]
async fn a_host_equal_to_the_authority_or_alone_passes() {
    let world = World::new().await;
    for fields in [&[(":authority", "a"), ("host", "A")][..], &[(":authority", "a")], &[("host", "a")]] {
        let (kind, payload) = answered(&world, fields).await;
        assert_eq!((kind, payload[0]), (HEADERS, OK), "{fields:?}");
    }
}

#[tokio::test]
async fn a_host_other_than_the_authority_is_refused() {
    let world = World::new().await;
    let two = [
        &[(":authority", "a"), ("host", "b")][..],
        &[(":authority", "a"), ("host", "a"), ("host", "a")],
        &[("host", "a"), ("host", "b")],
        &[],
    ];
    for fields in two {
        let (kind, payload) = answered(&world, fields).await;
        assert_eq!((kind, payload[0]), (HEADERS, BAD_REQUEST), "{fields:?}");
    }
    assert!(world.service.seen().is_empty());
}

#[tokio::test]
async fn targets_that_http_1_would_refuse_are_refused() {
    let world = World::new().await;
    let targets = [
        [(":method", "POST"), (":scheme", "http"), (":path", "*"), (":authority", "a")],
        [(":method", "options"), (":scheme", "http"), (":path", "*"), (":authority", "a")],
        [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "user@a")],
        [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "user:word@a")],
        [(":method", "POST"), (":scheme", "ftp"), (":path", "/"), (":authority", "a")],
        [(":method", "GET"), (":scheme", "wss"), (":path", "/"), (":authority", "a")],
    ];
    for fields in targets {
        let mut frames = Frames::new(&world).await;
        frames.request_of(END_STREAM, &fields).await;
        let (kind, payload) = frames.answer().await;
        assert_eq!((kind, payload[0]), (HEADERS, BAD_REQUEST), "{fields:?}");
        let (kind, problem) = frames.answer().await;
        let problem: serde_json::Value = serde_json::from_slice(&problem).expect("JSON");
        assert_eq!(kind, DATA);
        assert_eq!(
            (&problem["code"], &problem["retryable"]),
            (&"MALFORMED_REQUEST".into(), &false.into()),
            "{problem}"
        );
    }
    assert!(world.service.seen().is_empty(), "{:?}", world.service.seen());
    let plain = [(":method", "OPTIONS"), (":scheme", "HTTPS"), (":path", "*"), (":authority", "a")];
    let mut frames = Frames::new(&world).await;
    frames.request_of(END_STREAM, &plain).await;
    assert_eq!(frames.answer().await.1[0], OK);
}

#[tokio::test]
async fn headers_of_a_connection_are_refused() {
    let world = World::new().await;
    for field in [("connection", "close"), ("transfer-encoding", "chunked"), ("upgrade", "x")] {
        let (kind, _) = answered(&world, &[(":authority", "a"), field]).await;
        assert_eq!(kind, RESET, "{field:?}");
    }
    let (kind, _) = answered(&world, &[(":authority", "a"), ("X-Upper", "x")]).await;
    assert_eq!(kind, GO_AWAY);
    assert!(world.service.seen().is_empty());
}

#[tokio::test]
async fn lengths_that_disagree_are_refused() {
    let world = World::new().await;
    let (kind, _) =
        answered(&world, &[(":authority", "a"), ("content-length", "5"), ("content-length", "6")]).await;
    assert_eq!(kind, RESET);
    assert!(world.service.seen().is_empty());
}

#[tokio::test]
async fn framing_headers_that_http_1_would_refuse_are_refused() {
    let world = World::new().await;
    let framing = [
        &[("content_length", "99")][..],
        &[("transfer_encoding", "chunked")],
        &[("content-length", "0"), ("content-length", "0")],
    ];
    for fields in framing {
        let fields = [&[(":authority", "a")], fields].concat();
        let (kind, payload) = answered(&world, &fields).await;
        assert_eq!((kind, payload[0]), (HEADERS, BAD_REQUEST), "{fields:?}");
    }
    assert!(world.service.seen().is_empty(), "{:?}", world.service.seen());
}

#[tokio::test]
async fn a_body_of_another_length_is_broken() {
    for body in ["hel", "hello!"] {
        let world = World::new().await;
        let mut frames = Frames::new(&world).await;
        frames.request(0, &[(":authority", "a"), ("content-length", "5")]).await;
        frames.send(DATA, END_STREAM, 1, body.as_bytes()).await;
        assert_eq!(frames.answer().await.0, RESET);
        // The service may never have been called; it has not seen a complete body.
        assert!(world.service.seen().iter().all(|seen| seen.body.is_none()), "{:?}", world.service.seen());
    }
}

#[tokio::test]
async fn a_body_that_stops_is_seen_as_broken() {
    let world = World::with(Options { body_timeout: SHORT, ..options() }).await;
    let mut frames = Frames::new(&world).await;
    frames.request(0, &[(":authority", "a")]).await;
    frames.send(DATA, 0, 1, b"hel").await;
    within(world.service.broken.notified()).await;
    let (kind, payload) = frames.answer().await;
    assert_eq!((kind, payload[0]), (HEADERS, BAD_REQUEST));
}

#[tokio::test]
async fn fields_beyond_the_limit_are_refused() {
    let world = World::with(Options { head_bytes_max: 500, ..options() }).await;
    let long = "x".repeat(120);
    let fields: Vec<_> = [(":authority", "a")].into_iter().chain([("x", long.as_str()); 6]).collect();
    let (kind, payload) = answered(&world, &fields).await;
    assert!(kind == RESET || payload[0] != OK, "{kind} {payload:?}");
    assert!(world.service.seen().is_empty());
}

#[tokio::test]
async fn more_fields_than_allowed_are_refused() {
    let world = World::with(Options { headers_max: 6, ..options() }).await;
    let fields = |count| [(":authority", "a")].into_iter().chain(vec![("x", "y"); count]).collect::<Vec<_>>();
    assert_eq!(answered(&world, &fields(6)).await.1[0], OK);
    let (kind, payload) = answered(&world, &fields(7)).await;
    assert!(kind == HEADERS && payload[0] != OK, "{kind} {payload:?}");
    assert_eq!(world.service.seen().len(), 1);
}

const SETTINGS: u8 = 4;
/// `SETTINGS_INITIAL_WINDOW_SIZE`: 0.
const SHUT: [u8; 6] = [0, 4, 0, 0, 0, 0];

#[tokio::test]
async fn a_stream_whose_client_never_opens_its_window_is_reset() {
    let world = World::with(Options { write_timeout: SHORT, ..options() }).await;
    let mut frames = Frames::new(&world).await;
    frames.send(SETTINGS, 0, 0, &SHUT).await;
    frames.request(END_STREAM, &[(":authority", "a")]).await;
    let (kind, payload) = frames.answer().await;
    assert_eq!((kind, payload[0]), (HEADERS, OK));
    assert_eq!(frames.answer().await.0, RESET);
}

#[tokio::test]
async fn a_stream_that_is_no_longer_read_is_reset() {
    let world = World::with(Options { write_timeout: SHORT, ..options() }).await;
    let mut frames = Frames::new(&world).await;
    frames.request_to("/big", END_STREAM, &[(":authority", "a")]).await;
    assert_eq!(frames.answer().await.0, HEADERS);
    let mut taken = 0;
    let end = loop {
        match frames.answer().await {
            (DATA, payload) => taken += payload.len(),
            (kind, _) => break kind,
        }
    };
    assert_eq!((taken, end), (65_535, RESET));
}

#[tokio::test]
async fn a_stream_with_nothing_to_send_yet_is_not_reset() {
    let world = World::with(Options { write_timeout: SHORT, ..options() }).await;
    let (mut send, _driving) = connect(&world).await;
    let hanging = tokio::spawn(send.send_request(post("/hang", "")));
    within(world.service.arrived.notified()).await;
    tokio::time::sleep(SHORT * 3).await;
    world.service.release();
    assert_eq!(within(hanging).await.expect("no panic").expect("an answer").status(), StatusCode::OK);
}

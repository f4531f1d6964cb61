//! Whether a byte was sent, and the consequences.

use super::world::{KEY, Script, ask, get, keyed, layer, lost_attempt, post, through, upstream};
use semel_http::Failure;
use semel_proxy::upstream::Options;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

#[tokio::test]
async fn nobody_listening_is_nothing_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let upstream = upstream(&format!("http://{address}"), Options::default());
    assert_eq!(ask(&upstream, post("/", "1")).await, Err(Failure::Unreachable));
}

#[tokio::test]
async fn an_unresolvable_name_means_nothing_was_sent() {
    let upstream = upstream("http://nobody.invalid", Options::default());
    let failure = ask(&upstream, post("/", "1")).await.expect_err("there is no such host");
    assert!(failure.nothing_was_sent(), "{failure}");
}

#[tokio::test]
async fn a_connect_timeout_sends_nothing() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).expect("a port");
    socket.listen(0).expect("it listens");
    let address = socket.local_addr().expect("an address").as_socket().expect("an IP address");
    // Nothing accepts, so connections fill the queue; later ones get no response.
    let filling: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(50))).collect();
    assert!(filling.last().expect("four").is_err(), "the queue is not full");
    let options = Options { connect_timeout: Duration::from_millis(100), ..Options::default() };
    let upstream = upstream(&format!("http://{address}"), options);
    assert_eq!(ask(&upstream, post("/", "1")).await, Err(Failure::ConnectTimeout));
}

#[tokio::test]
async fn a_request_that_finds_every_place_taken_is_not_sent() {
    let script = Script::new(|_, peer| {
        peer.request();
        peer.rest();
    });
    let options = Options {
        connections_max: 1,
        connect_timeout: Duration::from_millis(100),
        response_timeout: Duration::from_mins(10),
        ..Options::default()
    };
    let upstream = script.upstream_with(options);
    let first = tokio::spawn({
        let upstream = upstream.clone();
        async move { ask(&upstream, post("/1", "1")).await }
    });
    while script.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&upstream, post("/2", "2")).await, Err(Failure::ConnectTimeout));
    // A client that disconnects frees its slot.
    first.abort();
    let _ = first.await;
    let third = tokio::spawn(async move { ask(&upstream, post("/3", "3")).await });
    while script.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    third.abort();
    assert!(script.requests()[1].starts_with("POST /3 "), "{:?}", script.requests());
}

/// Downloads and event streams may last indefinitely; a payment must not wait for them.
#[tokio::test]
async fn a_share_of_the_places_is_for_protected_requests_alone() {
    let script = Script::new(|_, peer| {
        while let Some(request) = peer.request() {
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
            if request.contains("idempotency-key") {
                peer.say("ok");
            }
        }
    });
    let options =
        Options { connections_max: 4, connect_timeout: Duration::from_millis(200), ..Options::default() };
    let (upstream, layer) = (script.upstream_with(options), layer().await);
    let mut downloads = Vec::new();
    for _ in 0..3 {
        downloads.push(super::world::head(&upstream, get("/download")).await.expect("a head"));
    }
    assert_eq!(ask(&upstream, get("/download")).await, Err(Failure::ConnectTimeout));
    assert_eq!(through(&layer, &upstream, keyed("/charges", KEY)).await.text(), "ok");
    // Unprotected requests have a share too, and can reuse the slots that they free.
    drop(downloads.pop());
    super::world::head(&upstream, get("/download")).await.expect("a head");
}

#[tokio::test]
async fn a_close_is_harmless_only_before_the_first_byte() {
    let (report, mut incoming) = unbounded_channel();
    let script = Script::new(move |number, peer| {
        peer.half_close();
        report.send((number, peer.rest())).expect("a receiver");
    });
    let mut in_doubt = 0;
    for _ in 0..100 {
        // A new pool each time, so that every request gets a connection that is being closed.
        let failure = ask(&script.upstream(), post("/", "1")).await.expect_err("nobody answers");
        in_doubt += usize::from(!failure.nothing_was_sent());
    }
    // Connections are accepted in order, so this is the last one.
    let mut last = std::net::TcpStream::connect(script.address).expect("a connection");
    last.write_all(b"last").expect("it is open");
    drop(last);
    let (mut connections, mut reports, mut with_bytes) = (usize::MAX, 0, 0);
    while reports < connections {
        let (number, bytes) = incoming.recv().await.expect("a report");
        reports += 1;
        match bytes {
            0 => {}
            4 => connections = number,
            _ => with_bytes += 1,
        }
    }
    assert_eq!(in_doubt, with_bytes, "of {connections} connections");
}

#[tokio::test]
async fn a_close_after_some_bytes_is_not_retried() {
    for bytes in [1, 20, 150] {
        let script = Script::new(move |_, peer| {
            let mut some = vec![0; bytes];
            std::io::Read::read_exact(&mut peer.stream, &mut some).expect("a request");
        });
        let request = post("/charges", vec![b'x'; 300]);
        assert_eq!(ask(&script.upstream(), request).await, Err(Failure::Broken), "after {bytes}");
        assert_eq!(script.connections(), 1, "after {bytes}");
    }
}

#[tokio::test]
async fn an_invalid_response_leaves_doubt_and_is_not_retried() {
    for nonsense in [
        "",
        "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno chunk",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n123456789",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
    ] {
        let script = Script::new(|_, peer| {
            peer.request();
            peer.say(nonsense);
        });
        assert_eq!(ask(&script.upstream(), post("/", "1")).await, Err(Failure::Broken), "{nonsense:?}");
        assert_eq!(script.requests().len(), 1, "{nonsense:?}");
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_in_time_leaves_doubt() {
    let script = Script::new(|_, peer| {
        peer.request();
        peer.say("HTTP/1.1 200 O");
        peer.rest();
    });
    let options = Options { response_timeout: Duration::from_millis(50), ..Options::default() };
    assert_eq!(ask(&script.upstream_with(options), post("/", "1")).await, Err(Failure::TimedOut));
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn an_ended_attempt_sends_nothing_on_an_open_connection() {
    let arrived = Arc::new(Notify::new());
    let notify = Arc::clone(&arrived);
    let script = Script::new(move |_, peer| {
        if peer.request().is_some() {
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
        let rest = peer.rest();
        assert_eq!(rest, 0, "a lost attempt sent bytes");
        notify.notify_one();
    });
    let upstream = script.upstream();
    let attempt = lost_attempt().await;
    for is_open in [false, true] {
        if is_open {
            ask(&upstream, get("/open")).await.expect("an answer");
        }
        let mut request = post("/charges", "1");
        request.extensions_mut().insert(attempt.clone());
        assert_eq!(ask(&upstream, request).await, Err(Failure::Unreachable));
        arrived.notified().await;
    }
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn the_response_timeout_covers_the_body_of_a_protected_request_only() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let script = Script::new(move |_, peer| {
        while let Some(request) = peer.request() {
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345");
            if request.contains("idempotency-key") {
                peer.rest();
                return;
            }
            wait.lock().expect("no panic").recv().expect("a signal from the test");
            peer.say("67890");
        }
    });
    let options = Options { response_timeout: Duration::from_millis(200), ..Options::default() };
    let upstream = script.upstream_with(options);
    let response = super::world::head(&upstream, post("/free", "{}")).await.expect("a head");
    let layer = layer().await;
    let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((reply.status, reply.code().as_deref()), (504, Some("UPSTREAM_TIMEOUT")));
    let again = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((again.status, again.code().as_deref()), (409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN")));
    // By now the other request has waited longer than that.
    go.send(()).expect("the script waits");
    assert_eq!(super::world::Reply::read(response).await.expect("a complete body").text(), "1234567890");
}

/// More than is stored.
const LONG_BYTES: usize = 14 << 20;

/// The response to a protected request, `LONG_BYTES` long, whose last `unsent` bytes never arrive. Its body has been
/// unread for longer than the response timeout.
async fn long_unread_response(unsent: usize) -> http::Response<semel_http::Body> {
    let script = Script::new(move |_, peer| {
        let Some(request) = peer.request() else { return };
        if request.contains("/long") {
            peer.say(&format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG_BYTES}\r\n\r\n"));
            peer.say(&"x".repeat(LONG_BYTES - unsent));
        }
        peer.rest();
    });
    let options = Options { response_timeout: Duration::from_secs(3), ..Options::default() };
    let (upstream, layer) = (script.upstream_with(options), layer().await);
    let protected = tower_layer::Layer::layer(&layer, upstream.clone());
    let response = tower_service::Service::call(&mut protected.clone(), keyed("/long", KEY)).await;
    // An unanswered request shows when the timeout is over.
    let unanswered = through(&layer, &upstream, keyed("/hang", "another-key-0123456789")).await;
    assert_eq!(unanswered.code().as_deref(), Some("UPSTREAM_TIMEOUT"));
    response.expect("the layer answers")
}

#[tokio::test]
async fn a_slow_reader_uses_no_time_of_the_upstream() {
    let reply = super::world::Reply::read(long_unread_response(0).await).await.expect("a complete body");
    assert_eq!((reply.status, reply.body.len()), (200, LONG_BYTES));
}

#[tokio::test]
async fn a_long_response_is_cut_when_the_upstream_stalls() {
    super::world::Reply::read(long_unread_response(1).await).await.expect_err("its last byte never comes");
}

#[tokio::test]
async fn of_an_event_stream_only_the_head_is_waited_for() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let script = Script::new(move |_, peer| {
        peer.request();
        peer.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n");
        wait.lock().expect("no panic").recv().expect("a signal from the test");
        peer.say("data: 2\n\n");
    });
    let options = Options { response_timeout: Duration::from_millis(100), ..Options::default() };
    let upstream = script.upstream_with(options);
    let layer = layer().await;
    let protected = tower_layer::Layer::layer(&layer, upstream);
    let response = tower_service::Service::call(&mut protected.clone(), keyed("/watch", KEY)).await;
    let response = response.expect("the layer answers");
    tokio::time::sleep(Duration::from_millis(200)).await;
    go.send(()).expect("the script waits");
    let reply = super::world::Reply::read(response).await.expect("a complete stream");
    assert_eq!(reply.text(), "data: 1\n\ndata: 2\n\n");
}

#[tokio::test]
async fn an_upload_without_protection_may_take_its_time() {
    let script = Script::new(|_, peer| {
        peer.head();
        let mut received = Vec::new();
        while !received.ends_with(b"0\r\n\r\n") {
            let mut byte = [0];
            std::io::Read::read_exact(&mut peer.stream, &mut byte).expect("a body");
            received.push(byte[0]);
        }
        peer.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let options = Options { response_timeout: Duration::from_millis(600), ..Options::default() };
    let parts = futures_util::stream::unfold(0, |number| async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let part = http_body::Frame::data(bytes::Bytes::from_static(b"part"));
        (number < 5).then_some((Ok::<_, std::convert::Infallible>(part), number + 1))
    });
    let mut request = post("/upload", "");
    *request.body_mut() = semel_http::Body::live(http_body_util::StreamBody::new(parts));
    assert_eq!(ask(&script.upstream_with(options), request).await.expect("an answer").status, 200);
}

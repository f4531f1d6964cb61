//! Semel's layer over the upstream: what failures mean for a key.

use super::world::{KEY, Script, keyed, layer, through, upstream};
use semel_proxy::upstream::Options;
use std::net::TcpListener;

#[tokio::test]
async fn an_upstream_that_refuses_gives_the_key_back() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (upstream, layer) = (upstream(&format!("http://{address}"), Options::default()), layer().await);
    let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_UNREACHABLE")));
    assert!(!reply.headers.contains_key("idempotency-expires"), "the outcome is not final");

    // The same address, now with a listener: the same key runs as its second attempt.
    let listener = TcpListener::bind(address).expect("the port is free again");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut received = Vec::new();
        let mut byte = [0];
        while !received.ends_with(b"\r\n\r\n{}") {
            std::io::Read::read_exact(&mut stream, &mut byte).expect("a request");
            received.push(byte[0]);
        }
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 201 Created\r\ncontent-length: 7\r\n\r\ncharged")
            .expect("a client");
        String::from_utf8(received).expect("UTF-8")
    });
    let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((reply.status, reply.text()), (201, "charged"));
    let received = answering.join().expect("it answered");
    assert!(received.contains("idempotency-attempt: 2\r\n"), "{received}");
    let replay = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((replay.status, replay.text()), (201, "charged"));
    assert_eq!(replay.headers["idempotency-replayed"], "true");
}

#[tokio::test]
async fn a_drop_after_a_byte_leaves_the_outcome_unknown() {
    let script = Script::new(|_, peer| {
        peer.request();
    });
    let (upstream, layer) = (script.upstream(), layer().await);
    let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_FAILED")));
    for _ in 0..3 {
        let again = through(&layer, &upstream, keyed("/charges", KEY)).await;
        assert_eq!((again.status, again.code().as_deref()), (409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN")));
    }
    assert_eq!(script.connections(), 1, "it was not sent again");
}

#[tokio::test]
async fn an_upstream_that_refuses_the_stream_gives_the_key_back() {
    let script = super::http2::refusing_streams();
    let upstream = upstream(&format!("h2c://{}", script.address), Options::default());
    let layer = layer().await;
    for _ in 0..2 {
        let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
        assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_UNREACHABLE")));
    }
}

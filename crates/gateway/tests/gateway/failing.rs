//! Upstreams that fail after a byte of the request was sent: the outcome is unknown, and nothing is sent again.

use crate::world::{KEY, World, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, charged, response};
use std::time::Duration;

/// Bytes that are not exactly one complete response.
fn nonsense() -> Vec<(&'static str, Act)> {
    let long = [response("201 Created", &[], "charged"), b"and more than it said".to_vec()].concat();
    let sends = |bytes: &[u8]| Act::SayAndEnd(bytes.to_vec());
    vec![
        ("the end before the first byte", Act::End),
        ("the end after the first byte", sends(b"H")),
        ("the end in the status line", sends(b"HTTP/1.1 20")),
        ("the end in the head", sends(b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\n")),
        ("a body that is cut short", sends(b"HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\nshort")),
        ("a body that does not come", sends(b"HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\n")),
        (
            "chunks that are cut short",
            sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel"),
        ),
        (
            "chunks without a last one",
            sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ),
        (
            "chunks that are none",
            sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nhello\r\n"),
        ),
        (
            "a transfer coding that nobody asked for",
            sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ),
        ("two lengths", sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!")),
        ("a length that is none", sends(b"HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello")),
        ("garbage", sends(b"\x00\x01\x02 this is no HTTP at all \xff\xfe\r\n\r\n")),
        ("another protocol", sends(b"SSH-2.0-OpenSSH_9.2p1\r\n")),
        (
            "a switch of protocols",
            sends(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
        ),
        (
            "a head without end",
            Act::SayAndEnd([b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'y'; 300_000]].concat()),
        ),
        ("more than it said", Act::SayAndEnd(long)),
    ]
}

#[tokio::test]
async fn an_invalid_response_leaves_the_outcome_unknown() {
    let acts: Vec<_> = nonsense();
    let scripted: Vec<_> = acts.iter().map(|(_, act)| act.clone()).collect();
    let number = |seen: &Seen| seen.line.split('/').nth(1)?.split(' ').next()?.parse::<usize>().ok();
    let script = move |seen: &Seen| number(seen).map_or_else(|| charged(seen), |at| scripted[at].clone());
    let world = World::new(&[], script).await;
    for (at, (name, _)) in acts.iter().enumerate() {
        let ask = || TestRequest::post(&format!("/{at}")).key(KEY).json("{}");
        let calls = world.calls();
        let first = world.send(ask()).await;
        let retry = world.send(ask()).await;
        if *name == "more than it said" {
            // The response is complete. The bytes after it must not become the next response.
            assert_eq!((first.status, first.text()), (201, "charged"), "{name}");
            assert!(retry.is_replay() && retry.kept() == first.kept(), "{name}");
        } else {
            assert_eq!(first.code().as_deref(), Some("UPSTREAM_FAILED"), "{name}: {first:?}");
            world.is_problem(&first, 502, "UPSTREAM_FAILED", false).await;
            assert_eq!(retry.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), "{name}: {retry:?}");
        }
        assert_eq!(world.calls(), calls + 1, "{name}");
    }
    let fine = world.send(TestRequest::post("/charges").key(KEY).json("{}")).await;
    assert_eq!(fine.status, 201, "the next request is served as usual");
    assert!(fine.text().starts_with("charge "), "{}", fine.text());
}

#[tokio::test]
async fn surplus_bytes_do_not_answer_the_next_request() {
    // Kept alive, with a complete second response after the first.
    let smuggled = [response("201 Created", &[], "first"), response("200 OK", &[], "smuggled")].concat();
    let script = move |seen: &Seen| if seen.number == 1 { Act::Say(smuggled.clone()) } else { charged(seen) };
    let world = World::new(&[], script).await;
    assert_eq!(world.send(TestRequest::post("/a").key(KEY).json("{}")).await.text(), "first");
    assert_eq!(world.send(TestRequest::post("/b").key(KEY).json("{}")).await.text(), "charge 2");
    assert_eq!(world.send(TestRequest::get("/c")).await.text(), "charge 3");
}

#[tokio::test]
async fn a_response_that_stops_in_the_middle_times_out() {
    let started = b"HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\nshort".to_vec();
    let script = move |_: &_| Act::Say(started.clone());
    let world = World::new(&["--response-timeout", "500ms"], script).await;
    let ask = || TestRequest::post("/charges").key(KEY).json("{}");
    let first = world.send(ask()).await;
    world.is_problem(&first, 504, "UPSTREAM_TIMEOUT", false).await;
    assert_eq!(world.send(ask()).await.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(world.calls(), 1);
}

#[tokio::test]
async fn peer_bug_a_closed_idle_connection_made_the_outcome_unknown() {
    // The upstream closes the connection after each response without announcing it.
    let script = |seen: &Seen| {
        let body = format!("charge {}", seen.number);
        Act::SayAndEnd(response("201 Created", &[], body))
    };
    for flags in [&[][..], &["--fresh-connections"]] {
        let world = World::new(flags, script).await;
        for call in 1..=30 {
            let key = format!("{KEY}-{call}");
            let reply = world.send(TestRequest::post("/charges").key(&key).json("{}")).await;
            assert_eq!((reply.status, reply.text()), (201, format!("charge {call}").as_str()), "{flags:?}");
        }
        assert_eq!(world.calls(), 30);
        let last = world.upstream.seen().pop().expect("one");
        assert_eq!(last.connection, 30, "no connection was reused");
    }
}

#[tokio::test]
async fn connections_are_reused_unless_fresh_ones_are_configured() {
    let mut call = 0;
    let mut send = async |world: &World| {
        call += 1;
        let key = format!("{KEY}-{call}");
        assert_eq!(world.send(TestRequest::post("/charges").key(&key).json("{}")).await.status, 201);
    };
    let world = World::new(&["--fresh-connections"], charged).await;
    for _ in 0..10 {
        send(&world).await;
    }
    assert_eq!(world.upstream.seen()[9].connection, 10);
    let world = World::new(&[], charged).await;
    // A connection becomes idle a moment after its response has arrived: on a busy machine after the next request.
    until(async || {
        send(&world).await;
        let seen = world.upstream.seen();
        let last = seen.last().expect("a request").connection;
        (seen.iter().rev().take_while(|seen| seen.connection == last).count() == 10).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_announced_end_of_an_idle_connection_is_heeded() {
    let script = |seen: &Seen| {
        Act::Say(response("201 Created", &[("keep-alive", "timeout=0")], format!("charge {}", seen.number)))
    };
    let world = World::new(&[], script).await;
    for connection in 1..=3 {
        let key = format!("{KEY}-{connection}");
        world.send(TestRequest::post("/charges").key(&key).json("{}")).await;
        assert_eq!(world.upstream.seen().pop().expect("one").connection, connection);
    }
}

#[tokio::test]
async fn an_answer_before_the_request_was_read_is_an_answer() {
    // The service refuses after the head, and closes while the body is still being sent.
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = upstream.local_addr().expect("an address");
    let scratch = crate::world::Scratch::new();
    let gateway = crate::world::Gateway::start(&scratch, to, &[]);
    let refusing = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = upstream.accept().await.expect("a connection");
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await;
        let refused = response("413 Content Too Large", &[("connection", "close")], "too much");
        stream.write_all(&refused).await.expect("sent");
        stream.shutdown().await.expect("an end");
        // Reads the remaining bytes, so that a reset cannot overtake the response.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await;
    });
    let ask = || TestRequest::post("/charges").key(KEY).bytes(vec![7; 4 << 20]);
    let first = ask().send(gateway.address).await.expect("an answer");
    assert_eq!((first.status, first.text(), first.is_acknowledged()), (413, "too much", true));
    let retry = ask().send(gateway.address).await.expect("an answer");
    assert!(retry.is_replay() && retry.kept() == first.kept(), "{retry:?} after {first:?}");
    refusing.abort();
}

//! Request and response bodies, byte for byte: for the upstream, for the first caller, and for replays.

use crate::world::{KEY, World};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, response};

/// The bytes of "hello", compressed by `gzip -n`.
const GZIP: [u8; 25] = [
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36, 5, 0, 0,
    0,
];
const LARGE: usize = 8 << 20;

/// Bytes without any pattern that a compressor or a text decoder could use.
fn large() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..LARGE).map(|_| next()).collect()
}

/// Sends `ask` twice, and again after a kill: every response equals the first.
async fn send_three_times(world: &mut World, ask: TestRequest) -> Reply {
    let calls = world.calls();
    let first = world.send(ask.clone()).await;
    assert!(!first.is_replay() && first.is_acknowledged(), "{:?}", first.headers);
    let second = world.send(ask.clone()).await;
    world.kill_and_restart(&[]);
    let third = world.send(ask).await;
    for retry in [second, third] {
        assert!(retry.is_replay(), "{:?}", retry.headers);
        assert!(retry.kept() == first.kept(), "{:?}\n{:?}", retry.headers, first.headers);
    }
    assert_eq!(world.calls(), calls + 1);
    first
}

#[tokio::test]
async fn a_request_reaches_the_upstream_as_it_was() {
    let world = World::new(&[], |_| Act::Say(response("200 OK", &[], "fine"))).await;
    let large = large();
    let asks: [(&str, TestRequest, Vec<u8>); 6] = [
        ("empty", TestRequest::post("/0").key(KEY), Vec::new()),
        (
            "binary",
            TestRequest::post("/1").key(KEY).bytes(vec![0, 0xff, 0xfe, b'\r', b'\n', 0]),
            vec![0, 0xff, 0xfe, b'\r', b'\n', 0],
        ),
        (
            "gzip",
            TestRequest::post("/2").key(KEY).with("content-encoding", "gzip").bytes(GZIP.to_vec()),
            GZIP.to_vec(),
        ),
        (
            "chunked",
            TestRequest::post("/3").key(KEY).bytes("in some pieces").in_pieces(3),
            b"in some pieces".to_vec(),
        ),
        ("8 MiB", TestRequest::post("/4").key(KEY).bytes(large.clone()), large.clone()),
        ("8 MiB, chunked", TestRequest::post("/5").key(KEY).bytes(large.clone()).in_pieces(100_000), large),
    ];
    for (calls, (name, ask, body)) in (1..).zip(asks) {
        let first = world.send(ask.clone()).await;
        assert_eq!(first.text(), "fine", "{name}");
        assert!(world.send(ask).await.is_replay(), "{name}");
        let seen = world.upstream.seen();
        assert_eq!(seen.len(), calls, "{name}");
        assert!(seen[calls - 1].body == body, "{name}");
    }
    let seen = world.upstream.seen();
    assert_eq!(seen[2].header("content-encoding"), Some("gzip"), "forwarded unchanged");
}

#[tokio::test]
async fn a_target_and_its_headers_reach_the_upstream_byte_for_byte() {
    let world = World::new(&[], |_| Act::Say(response("200 OK", &[], "fine"))).await;
    let target = "/a%2Fb//c/../d;v=1/%C3%A9?x=1&y=%20&&z";
    let ask =
        TestRequest::post(target).key(KEY).with("x-own", "one").with("x-own", "").with("x-own", "two, three");
    assert_eq!(world.send(ask.clone()).await.text(), "fine");
    assert!(world.send(ask).await.is_replay());
    let seen = &world.upstream.seen()[0];
    assert_eq!(seen.line, format!("POST {target} HTTP/1.1"));
    let values: Vec<_> =
        seen.headers.iter().filter(|(name, _)| name == "x-own").map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["one", "", "two, three"]);
}

#[tokio::test]
async fn an_informational_response_is_not_the_response() {
    let hints =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n".to_vec();
    let all = [hints, response("201 Created", &[("etag", "\"7\"")], "charged")].concat();
    let mut world = World::new(&[], move |_| Act::Say(all.clone())).await;
    let reply = send_three_times(&mut world, TestRequest::post("/charges").key(KEY)).await;
    assert_eq!((reply.status, reply.text(), reply.header("link")), (201, "charged", None));
}

#[tokio::test]
async fn peer_bug_binary_bodies_corrupted_and_empty_ones_replayed_as_null() {
    let bodies: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        vec![0, 0xff, 0xc3, 0x28, b'\r', b'\n'],
        b"0".to_vec(),
        b"[]".to_vec(),
        b"false".to_vec(),
    ];
    let scripted = bodies.clone();
    let number = |seen: &Seen| seen.line.as_bytes()[6] - b'0';
    let script = move |seen: &Seen| {
        let body = &scripted[usize::from(number(seen))];
        Act::Say(response("200 OK", &[("content-type", "application/octet-stream")], body))
    };
    let mut world = World::new(&[], script).await;
    for (at, body) in bodies.iter().enumerate() {
        let reply = send_three_times(&mut world, TestRequest::post(&format!("/{at}")).key(KEY)).await;
        assert_eq!(&reply.body[..], body);
        assert_eq!(reply.header("content-length"), Some(body.len().to_string().as_str()));
    }
}

#[tokio::test]
async fn peer_bug_content_encoding_and_length_disagree_with_the_body() {
    let gzip = response("200 OK", &[("content-encoding", "gzip"), ("vary", "accept-encoding")], GZIP);
    let mut world = World::new(&[], move |_| Act::Say(gzip.clone())).await;
    let reply =
        send_three_times(&mut world, TestRequest::post("/charges").key(KEY).with("accept-encoding", "gzip"))
            .await;
    assert_eq!((&reply.body[..], reply.header("content-encoding")), (&GZIP[..], Some("gzip")));
    assert_eq!((reply.header("content-length"), reply.header("vary")), (Some("25"), Some("accept-encoding")));
}

#[tokio::test]
async fn a_response_of_any_framing_is_replayed_unchanged() {
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nin \r\n6;x=y\r\npieces\r\n0\r\n\r\n"
            .to_vec();
    let until_the_end = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nin pieces".to_vec();
    let old = b"HTTP/1.0 200 OK\r\n\r\nin pieces".to_vec();
    for act in [Act::Say(chunked), Act::SayAndEnd(until_the_end), Act::SayAndEnd(old)] {
        let mut world = World::new(&[], move |_| act.clone()).await;
        let reply = send_three_times(&mut world, TestRequest::post("/charges").key(KEY)).await;
        assert_eq!((reply.status, reply.text()), (200, "in pieces"));
    }
}

#[tokio::test]
async fn eight_mebibytes_both_ways_are_the_same_every_time() {
    let large = large();
    let echo = |seen: &Seen| Act::Say(response("201 Created", &[], &seen.body));
    let mut world = World::new(&[], echo).await;
    let reply =
        send_three_times(&mut world, TestRequest::post("/charges").key(KEY).bytes(large.clone())).await;
    assert!(reply.body == large);
}

#[tokio::test]
async fn statuses_without_a_body_are_replayed_without_one() {
    let nothing = b"HTTP/1.1 204 No Content\r\netag: \"7\"\r\n\r\n".to_vec();
    let unchanged = b"HTTP/1.1 304 Not Modified\r\netag: \"7\"\r\n\r\n".to_vec();
    for (raw, status) in [(nothing, 204), (unchanged, 304)] {
        let mut world = World::new(&[], move |_| Act::Say(raw.clone())).await;
        let reply = send_three_times(&mut world, TestRequest::post("/charges").key(KEY)).await;
        assert_eq!((reply.status, reply.body.len(), reply.header("etag")), (status, 0, Some("\"7\"")));
    }
}

#[tokio::test]
async fn peer_bug_replayed_headers_or_status_differed_from_the_original() {
    let passing = [
        ("set-cookie", "session=1"),
        ("set-cookie", "other=2"),
        ("www-authenticate", "Bearer"),
        ("ratelimit-remaining", "3"),
        ("x-ratelimit-limit", "9"),
        ("traceparent", "00-1"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    let kept = [
        ("location", "/charges/7"),
        ("etag", "\"7\""),
        ("link", "</a>; rel=a"),
        ("link", "</b>; rel=b"),
        ("retry-after", "7"),
        ("x-own", "one"),
        ("x-own", ""),
        ("x-own", "one"),
    ];
    let all = [&kept[..], &passing].concat();
    let world = World::new(&[], move |_| Act::Say(response("201 Created", &all, "charged"))).await;
    let (first, retry) = (world.charge(5).await, world.charge(5).await);
    assert_eq!((first.status, retry.status, retry.is_replay()), (201, 201, true));
    let lines = |reply: &Reply, name: &str| -> Vec<String> {
        reply.headers.get_all(name).iter().map(|value| value.to_str().expect("ASCII").to_owned()).collect()
    };
    for (name, _) in kept {
        let sent: Vec<_> = kept.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect();
        assert_eq!(lines(&first, name), sent, "{name}");
        assert_eq!(lines(&retry, name), sent, "{name}");
    }
    assert_eq!(lines(&first, "set-cookie"), ["session=1", "other=2"], "the first caller gets all cookies");
    for (name, value) in passing {
        assert!(lines(&first, name).iter().any(|line| line == value), "{name}");
        assert!(!lines(&retry, name).iter().any(|line| line == value), "{name}");
    }
}

//! Responses of upstreams, and their consequences.

use super::world::{KEY, Script, ask, get, keyed, layer, post, through};
use semel_http::Failure;
use semel_proxy::upstream::Options;

#[tokio::test]
async fn informational_responses_are_not_the_response() {
    let script = Script::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok",
    );
    let reply = ask(&script.upstream(), post("/", "1")).await.expect("an answer");
    assert_eq!((reply.status, reply.text()), (201, "ok"));
    assert!(!reply.headers.contains_key("link"));
}

#[tokio::test]
async fn trailers_come_after_a_chunked_body() {
    let script = Script::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: sum\r\n\r\n3\r\nabc\r\n0\r\nsum: 294\r\n\r\n",
    );
    let reply = ask(&script.upstream(), get("/")).await.expect("an answer");
    assert_eq!(reply.text(), "abc");
    assert_eq!(reply.trailers.expect("trailers")["sum"], "294");
}

#[tokio::test]
async fn a_head_over_the_limit_is_no_answer() {
    let script = Script::new(|_, peer| {
        while let Some(request) = peer.request() {
            let bytes: usize = request.split([' ', '/']).nth(2).expect("a path").parse().expect("a number");
            let value = "x".repeat(bytes);
            peer.say(&format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-long: {value}\r\n\r\n"));
        }
    });
    let upstream = script.upstream_with(Options { head_bytes_max: 16 * 1024, ..Options::default() });
    assert_eq!(ask(&upstream, get("/16000")).await.expect("an answer").headers["x-long"].len(), 16_000);
    assert_eq!(ask(&upstream, get("/17000")).await, Err(Failure::Broken));
    assert_eq!(ask(&upstream, get("/2000000")).await, Err(Failure::Broken));
}

#[tokio::test]
async fn a_response_head_has_the_documented_line_limit() {
    let script = Script::new(|_, peer| {
        while let Some(request) = peer.request() {
            let lines: usize = request.split([' ', '/']).nth(2).expect("a path").parse().expect("a number");
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n");
            for line in 1..lines {
                peer.say(&format!("x-line-{line}: 1\r\n"));
            }
            peer.say("\r\nok");
        }
    });
    let reply = ask(&script.upstream(), get("/256")).await.expect("an answer");
    assert_eq!((reply.text(), reply.headers.len()), ("ok", 256));
    assert_eq!(ask(&script.upstream(), get("/257")).await, Err(Failure::Broken));
    let guide = include_str!("../../../../../docs/guide/src/errors/UPSTREAM_FAILED.md");
    assert!(guide.contains("more than 256 header lines"));
}

#[tokio::test]
async fn a_response_before_the_body_was_sent_counts() {
    let script = Script::new(|_, peer| {
        peer.head();
        peer.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!");
        peer.half_close();
        peer.rest();
    });
    let body = vec![b'x'; 8 * 1024 * 1024];
    let reply = ask(&script.upstream(), post("/", body)).await.expect("an answer");
    assert_eq!((reply.status, reply.text()), (413, "no!"));
}

#[tokio::test]
async fn an_answer_of_http_1_0_ends_with_its_connection() {
    let script = Script::new(|_, peer| {
        peer.request();
        peer.say("HTTP/1.0 200 OK\r\n\r\nto the end");
    });
    assert_eq!(ask(&script.upstream(), get("/")).await.expect("an answer").text(), "to the end");
}

#[tokio::test]
async fn large_bodies_pass_unchanged_both_ways() {
    let body: Vec<u8> =
        (0..8 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let script = Script::new(|_, peer| {
        let head = peer.head().expect("a head");
        assert!(head.contains("content-length: 8388608"), "{head}");
        let mut body = vec![0; 8 * 1024 * 1024];
        std::io::Read::read_exact(&mut peer.stream, &mut body).expect("a body");
        peer.say("HTTP/1.1 200 OK\r\ncontent-length: 8388608\r\n\r\n");
        std::io::Write::write_all(&mut peer.stream, &body).expect("a client");
    });
    let reply = ask(&script.upstream(), post("/", body.clone())).await.expect("an answer");
    assert!(reply.body == body, "changed on the way");
}

#[tokio::test]
async fn a_body_cut_short_is_unknown_and_stays_so() {
    let script = Script::new(|_, peer| {
        peer.request();
        peer.say("HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\n12345");
    });
    let (upstream, layer) = (script.upstream(), layer().await);
    let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_FAILED")));
    let again = through(&layer, &upstream, keyed("/charges", KEY)).await;
    assert_eq!((again.status, again.code().as_deref()), (409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN")));
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn a_response_in_another_transfer_coding_than_chunked_is_no_answer() {
    for coding in [
        "gzip, chunked",
        "gzip",
        "chunked, chunked",
        "chunked, identity",
        "chunked\r\ntransfer-encoding: gzip",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        let script = Script::new(move |_, peer| {
            peer.request();
            peer.say(&answer);
        });
        assert_eq!(ask(&script.upstream(), post("/", "1")).await, Err(Failure::Broken), "{coding}");
    }
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let reply = ask(&Script::answering(chunked).upstream(), post("/", "1")).await.expect("an answer");
    assert_eq!(reply.text(), "abc");
}

#[tokio::test]
async fn a_response_without_a_body_may_name_any_transfer_coding() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
    let head_request =
        http::Request::head("/").body(semel_http::Body::from(bytes::Bytes::new())).expect("a request");
    let reply = ask(&Script::answering(head).upstream(), head_request).await.expect("an answer");
    assert_eq!((reply.status, reply.text()), (200, ""));
}

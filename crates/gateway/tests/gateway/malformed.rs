//! Malformed requests, sent to the real program.

use crate::world::{Gateway, KEY, Scratch, World, until, within};
use semel_test_support::upstream::{Act, Upstream, response};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn world() -> World {
    World::new(&[], |_| Act::Say(response("200 OK", &[], "done"))).await
}

/// Sends `bytes` on their own connection: the status and the problem of the only response.
async fn answer_to(world: &World, bytes: &str) -> (u16, Value) {
    let mut tcp = TcpStream::connect(world.gateway.address).await.expect("it listens");
    tcp.write_all(bytes.as_bytes()).await.expect("sent");
    let mut received = Vec::new();
    let answer = loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.expect("a length").parse().expect("a number") {
                break text;
            }
        }
        assert!(within(tcp.read_buf(&mut received)).await.expect("read") > 0, "{text}");
    };
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{answer}");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, serde_json::from_str(body).expect("JSON"))
}

/// Expects this refusal, and no log line that blames the service.
#[track_caller]
fn is_refused(world: &World, (status, problem): &(u16, Value), code: &str) {
    assert_eq!(&problem["status"], status, "{problem}");
    assert_eq!((&problem["code"], &problem["retryable"]), (&code.into(), &false.into()), "{problem}");
    assert_eq!(problem["type"], format!("/.well-known/idempotency#{code}"), "{problem}");
    let log = world.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR") && !log.contains("UPSTREAM_FAILED"), "{log}");
}

const CHUNKED: &str = "Host: a\r\nTransfer-Encoding: chunked\r\n";

#[tokio::test]
async fn broken_chunks_are_the_clients_fault_without_a_key_too() {
    let world = world().await;
    for method in ["POST", "PUT"] {
        let request = format!("{method} /charges HTTP/1.1\r\n{CHUNKED}\r\n5\r\nhello\r\nZZ\r\n");
        let answer = answer_to(&world, &request).await;
        assert_eq!(answer.0, 400);
        is_refused(&world, &answer, "MALFORMED_REQUEST");
    }
    assert_eq!(world.calls(), 0, "a complete request reached the service");
}

#[tokio::test]
async fn broken_chunks_with_a_key_leave_the_key_unused() {
    let world = world().await;
    let head = format!("POST /charges HTTP/1.1\r\n{CHUNKED}Idempotency-Key: {KEY}\r\n\r\n");
    let answer = answer_to(&world, &format!("{head}5\r\nhello\r\nZZ\r\n")).await;
    assert_eq!(answer.0, 400);
    is_refused(&world, &answer, "MALFORMED_REQUEST");
    assert_eq!(world.charge(5).await.text(), "done");
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_the_clients_fault() {
    let world = world().await;
    let mut tcp = TcpStream::connect(world.gateway.address).await.expect("it listens");
    let cut = b"POST /charges HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello";
    tcp.write_all(cut).await.expect("sent");
    tcp.shutdown().await.expect("half closed");
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("MALFORMED_REQUEST"), "{answer}");
    assert!(!world.log().contains("WARN"), "{}", world.log());
}

#[tokio::test]
async fn a_target_with_a_fragment_is_not_forwarded() {
    let world = world().await;
    for target in ["/charges#1", "/charges?a=1#", "http://a/charges#1", "/#"] {
        let answer = answer_to(&world, &format!("POST {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(answer.0, 400, "{target}");
        is_refused(&world, &answer, "MALFORMED_REQUEST");
    }
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn connect_is_refused_as_a_stream_with_and_without_a_key() {
    let world = world().await;
    for key in [format!("Idempotency-Key: {KEY}\r\n"), String::new()] {
        let answer = answer_to(&world, &format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n{key}\r\n")).await;
        assert_eq!(answer.0, 501);
        is_refused(&world, &answer, "STREAMING_NOT_PROTECTED");
    }
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn a_refusal_is_explained_where_the_specification_is_published() {
    let world =
        World::configured("[published]\nprefix = \"/one\"\n", |_| Act::Say(response("200 OK", &[], "done")))
            .await;
    let kind =
        async || answer_to(&world, "POST /a#b HTTP/1.1\r\nHost: a\r\n\r\n").await.1["type"].to_string();
    assert_eq!(kind().await, "\"/one/.well-known/idempotency#MALFORMED_REQUEST\"");
    world.reconfigure("[published]\nprefix = \"/two\"\n");
    until(async || kind().await.contains("/two/").then_some(())).await;
}

#[tokio::test]
async fn a_service_that_speaks_http_2_is_not_blamed_either() {
    let behind = world().await;
    let scratch = Scratch::new();
    let gateway = Gateway::start_before(&format!("h2c://{}", behind.gateway.address), &scratch, &[]);
    let front = World { gateway, upstream: Upstream::start(|_| Act::End).await, scratch };
    let request = format!("POST /charges HTTP/1.1\r\n{CHUNKED}\r\n5\r\nhello\r\nZZ\r\n");
    let answer = answer_to(&front, &request).await;
    assert_eq!(answer.0, 400);
    is_refused(&front, &answer, "MALFORMED_REQUEST");
    assert_eq!(behind.calls(), 0, "a complete request reached the service");
}

//! Clients that stop in the middle of a body, through the whole gateway: the client is at fault, not the upstream.

use super::world::{KEY, Script, layer};
use semel_proxy::forward::{Inbound, Options, Outbound, Rules};
use semel_proxy::listen::{self, Bound};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_layer::Layer as _;

/// Short, to keep the tests short; nothing here measures it.
const SHORT: Duration = Duration::from_millis(100);

/// The response to a client that sends this, and then nothing more.
async fn answer_to(script: &Script, sent: &str) -> String {
    let options = listen::Options {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        body_timeout: SHORT,
        ..listen::Options::default()
    };
    let bound = Bound::bind(&options).await.expect("a free port");
    let address = bound.address();
    let outbound = Outbound::new(script.upstream(), Options::default());
    let gateway = Inbound::new(layer().await.layer(outbound), Rules::default());
    let serving = tokio::spawn(bound.serve(gateway, std::future::pending()));
    let mut client = TcpStream::connect(address).await.expect("it listens");
    client.write_all(sent.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(30), client.read_to_string(&mut answer)).await;
    read.expect("it never came").expect("a clean close");
    serving.abort();
    answer
}

#[tokio::test]
async fn a_slow_upload_without_a_key_gets_408() {
    let script = Script::new(|_, peer| {
        peer.head();
        peer.rest();
    });
    let answer = answer_to(&script, "POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("application/problem+json") && !answer.contains("UPSTREAM"), "{answer}");
    assert!(answer.contains("What had come of it was passed on"), "{answer}");
    assert_eq!(script.connections(), 1);
}

#[tokio::test]
async fn a_slow_upload_with_a_key_gets_408_and_nothing_runs() {
    let script = Script::new(|_, peer| {
        peer.head();
    });
    let head =
        format!("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {KEY}\r\nContent-Length: 5\r\n\r\n");
    let answer = answer_to(&script, &format!("{head}hel")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("application/problem+json") && answer.contains("Nothing was run"), "{answer}");
    assert!(!answer.contains("UNFINGERPRINTABLE") && answer.contains(r#""retryable":true"#), "{answer}");
    assert_eq!(script.connections(), 0);
}

#[tokio::test]
async fn an_upstream_that_answers_before_the_body_has_come_is_heard() {
    let script = Script::new(|_, peer| {
        peer.head();
        peer.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlong");
        peer.rest();
    });
    let answer = answer_to(&script, "POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel").await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("long"), "{answer}");
}

//! The HTTP library frames the bytes that the scanner passes in the same way.
//!
//! The scanner reports after which byte each message ends. The library, given only the bytes that passed, has to find
//! the same number of requests with the same bodies.

use super::scanning::{inputs, scanned};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use semel_proxy::wire::{Limits, Protocol, Scanner};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

/// The bodies of the requests that hyper finds; `None` for an incomplete one.
async fn hyper_finds(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let finding = Arc::clone(&found);
    let service = service_fn(move |request: Request<Incoming>| {
        let finding = Arc::clone(&finding);
        async move {
            let body = request.into_body().collect().await.ok().map(|body| body.to_bytes().to_vec());
            finding.lock().expect("not poisoned").push(body);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(bytes).await.expect("room");
    client.shutdown().await.expect("open");
    let (_, _) = tokio::join!(
        http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service),
        async move { tokio::io::copy(&mut client, &mut tokio::io::sink()).await }
    );
    std::mem::take(&mut *found.lock().expect("not poisoned"))
}

/// How many messages end according to the scanner, fed byte by byte.
fn scanner_ends(bytes: &[u8]) -> u64 {
    let mut scanner = Scanner::new(Limits::default());
    let (mut passed, mut ended) = (0, 0);
    for available in 1..=bytes.len() {
        passed += scanner.scan(&bytes[passed..available]);
        if !scanner.is_amid_message() {
            ended = scanner.messages();
        }
    }
    ended
}

fn check(input: &[u8]) -> Result<u64, TestCaseError> {
    let verdict = scanned(input, &[], Limits::default());
    if verdict.protocol != Some(Protocol::Http1) {
        return Ok(0);
    }
    let passed = &input[..verdict.passed];
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let found = runtime.block_on(hyper_finds(passed));
    let complete = found.iter().filter(|body| body.is_some()).count() as u64;
    let ended = scanner_ends(passed);
    // Hyper stops at a request that asks to close, and at an invalid target; it never finds more.
    prop_assert!(complete <= ended, "{complete} found, {ended} passed");
    let text = String::from_utf8_lossy(passed);
    let may_stop = ["Connection: close", "HTTP/1.0", "CONNECT"].iter().any(|word| text.contains(word));
    let has_odd_target =
        passed.iter().any(|byte| !byte.is_ascii() || *byte < b' ' && !b"\r\n\t".contains(byte));
    if !may_stop && !has_odd_target {
        prop_assert_eq!(complete, ended);
        prop_assert_eq!(found.len() as u64, verdict.messages);
    }
    Ok(complete)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_library_finds_the_messages_that_the_scanner_passed(input in inputs()) {
        check(&input)?;
    }

    #[test]
    fn bodies_come_out_as_they_were_framed(
        bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 0_usize..4), 1..6),
    ) {
        let mut input = Vec::new();
        for (body, chunks) in &bodies {
            framed(&mut input, body, *chunks);
        }
        let verdict = scanned(&input, &[3, 17], Limits::default());
        prop_assert_eq!((verdict.passed, verdict.refusal), (input.len(), None));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let found = runtime.block_on(hyper_finds(&input));
        prop_assert_eq!(found, bodies.into_iter().map(|(body, _)| Some(body)).collect::<Vec<_>>());
    }
}

/// A request with this body: with a length, or in chunks of this size.
fn framed(input: &mut Vec<u8>, body: &[u8], chunk_bytes: usize) {
    if chunk_bytes == 0 {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        input.extend_from_slice(head.as_bytes());
        input.extend_from_slice(body);
        return;
    }
    input.extend_from_slice(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(chunk_bytes * 30) {
        input.extend_from_slice(format!("{:X};x=y\r\n", chunk.len()).as_bytes());
        input.extend_from_slice(chunk);
        input.extend_from_slice(b"\r\n");
    }
    input.extend_from_slice(b"0\r\n\r\n");
}

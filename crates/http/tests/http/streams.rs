//! Responses that are too long to store, or never end.

use super::world::{Bodies, Gate, Server, post};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::TokioIo;
use semel_http::RouteSettings;
use std::sync::Arc;

/// A response whose first piece is sent at once, and its second when the gate opens.
fn in_two(gate: &Gate, status: u16, kind: &str) -> Response {
    let gate = gate.clone();
    let frames = futures_util::stream::unfold(0, move |piece| {
        let gate = gate.clone();
        async move {
            let data = match piece {
                0 => "first ",
                1 => {
                    gate.pass().await;
                    "second"
                }
                _ => return None,
            };
            Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from(data))), piece + 1))
        }
    });
    let body = axum::body::Body::new(StreamBody::new(frames));
    Response::builder().status(status).header("content-type", kind).body(body).expect("a response")
}

/// Reads the first piece of a response, sends its retry, and reads the rest.
async fn finished_before_its_end(settings: RouteSettings, status: u16, kind: &'static str, code: &str) {
    let gate = Gate::new();
    let within = gate.clone();
    let server = Server::new(settings, move |_, _| {
        let gate = within.clone();
        async move { in_two(&gate, status, kind) }
    })
    .await;
    let stream = TokioIo::new(server.connect().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.expect("HTTP");
    tokio::spawn(connection);
    let response = sender.send_request(post("/charges").json("{\"amount\":5}")).await.expect("a response");
    assert_eq!(response.status(), status);
    assert!(response.headers().contains_key("operation-id"));
    assert_eq!(response.headers().contains_key("idempotency-expires"), code.ends_with("NOT_RETAINED"));
    let mut body = response.into_body();
    let first = body.frame().await.expect("a frame").expect("a piece").into_data().expect("data");
    assert_eq!(first, "first ");
    let retry = server.charge(5).await;
    retry.is_problem(409, code, false);
    assert_eq!(retry.headers.contains_key("idempotency-expires"), code.ends_with("NOT_RETAINED"));
    gate.open();
    assert_eq!(body.collect().await.expect("the rest").to_bytes(), "second");
    server.charge(5).await.is_problem(409, code, false);
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn peer_bug_a_response_over_the_limit_runs_again() {
    let settings = || RouteSettings { response_bytes_max: 3, ..RouteSettings::default() };
    finished_before_its_end(settings(), 200, "text/plain", "IDEMPOTENCY_RESPONSE_NOT_RETAINED").await;
    finished_before_its_end(settings(), 422, "text/plain", "IDEMPOTENCY_RESPONSE_NOT_RETAINED").await;
    finished_before_its_end(settings(), 500, "text/plain", "IDEMPOTENCY_OUTCOME_UNKNOWN").await;
}

#[tokio::test]
async fn an_event_stream_passes_live_and_is_stored_without_body() {
    for kind in ["text/event-stream; charset=utf-8", "multipart/x-mixed-replace; boundary=b"] {
        finished_before_its_end(RouteSettings::default(), 200, kind, "IDEMPOTENCY_RESPONSE_NOT_RETAINED")
            .await;
    }
    finished_before_its_end(
        RouteSettings::default(),
        404,
        "text/event-stream",
        "IDEMPOTENCY_OUTCOME_UNKNOWN",
    )
    .await;
}

#[tokio::test]
async fn a_response_of_exactly_the_limit_is_kept() {
    let settings = RouteSettings { response_bytes_max: 12, ..RouteSettings::default() };
    let gate = Arc::new(Gate::new());
    gate.open();
    let server = Server::new(settings, move |_, _| {
        let gate = Arc::clone(&gate);
        async move { in_two(&gate, 200, "text/plain") }
    })
    .await;
    for is_replay in [false, true] {
        let reply = server.charge(5).await;
        assert_eq!((reply.text(), reply.is_replay()), ("first second", is_replay));
    }
}

#[tokio::test]
async fn a_success_that_is_cut_short_is_uncertain() {
    let server = Server::new(RouteSettings::default(), |_, _| async {
        let frames = [Ok(Frame::data(Bytes::from("char"))), Err(std::io::Error::other("cut"))];
        Response::new(axum::body::Body::new(StreamBody::new(futures_util::stream::iter(frames))))
    })
    .await;
    let first = server.charge(5).await;
    first.is_problem(502, "UPSTREAM_FAILED", false);
    server.charge(5).await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_long_success_cut_before_the_limit_is_uncertain() {
    let settings = RouteSettings { response_bytes_max: 10, ..RouteSettings::default() };
    let server = Server::new(settings, |_, _| async {
        // As long as its head declares, but cut short.
        struct Cut(bool);
        impl http_body::Body for Cut {
            type Data = Bytes;
            type Error = std::io::Error;
            fn poll_frame(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
                let first = !std::mem::replace(&mut self.0, true);
                let frame = Frame::data(Bytes::from("char"));
                std::task::Poll::Ready(Some(if first {
                    Ok(frame)
                } else {
                    Err(std::io::Error::other("cut"))
                }))
            }
            fn size_hint(&self) -> http_body::SizeHint {
                http_body::SizeHint::with_exact(1000)
            }
        }
        Response::new(axum::body::Body::new(Cut(false)))
    })
    .await;
    server.charge(5).await.is_problem(502, "UPSTREAM_FAILED", false);
    server.charge(5).await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
}

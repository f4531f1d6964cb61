//! gRPC, unary: the status is in the trailers.

use super::world::{Calls, KEY, engine};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use semel_http::{Layer, RouteSettings};
use std::convert::Infallible;
use tower::{Layer as _, ServiceExt};

/// A gRPC response, read to its end.
#[derive(Debug)]
struct Reply {
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

impl Reply {
    fn status(&self) -> &str {
        let status = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"));
        status.expect("a status").to_str().expect("ASCII")
    }

    fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotency-replayed")
    }
}

/// Sends a unary call to a service that ends with `status`.
async fn send(layer: &Layer, calls: &Calls, status: Option<&'static str>, message: &'static str) -> Reply {
    let calls = calls.clone();
    let inner = tower::service_fn(move |_: Request<semel_http::Body>| {
        calls.one();
        let mut frames = vec![Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\x05reply")))];
        if let Some(status) = status {
            let trailers = [("grpc-status", status), ("x-own", "1")]
                .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
            frames.push(Ok(Frame::trailers(trailers.into_iter().collect())));
        }
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let response = Response::builder().header("content-type", "application/grpc").body(body);
        std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    let request = Request::post("/pay.Payments/Charge")
        .header("content-type", "application/grpc")
        .header("idempotency-key", KEY)
        .body(Full::new(Bytes::from_static(message.as_bytes())))
        .expect("a request");
    let response = layer.layer(inner).oneshot(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a complete body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    Reply { headers: parts.headers, body: body.to_bytes(), trailers }
}

async fn layer() -> Layer {
    Layer::new(engine().await, RouteSettings::default()).expect("valid")
}

#[tokio::test]
async fn outcomes_are_replayed_with_their_trailers() {
    for status in ["0", "3", "5", "6", "9", "12"] {
        let (layer, calls) = (layer().await, Calls::default());
        for is_replay in [false, true] {
            let reply = send(&layer, &calls, Some(status), "m").await;
            assert_eq!((reply.status(), reply.is_replay()), (status, is_replay));
            assert_eq!((&reply.body[..], reply.trailers.len()), (&b"\0\0\0\0\x05reply"[..], 2));
        }
        assert_eq!(calls.count(), 1);
    }
}

#[tokio::test]
async fn only_refused_permission_is_retried_and_other_failures_are_uncertain() {
    for status in ["7", "16"] {
        let (layer, calls) = (layer().await, Calls::default());
        assert_eq!(send(&layer, &calls, Some(status), "m").await.status(), status);
        assert_eq!(send(&layer, &calls, Some("0"), "m").await.status(), "0");
        assert_eq!(calls.count(), 2);
    }
    for status in
        [Some("1"), Some("2"), Some("4"), Some("8"), Some("10"), Some("11"), Some("13"), Some("14"), None]
    {
        let (layer, calls) = (layer().await, Calls::default());
        send(&layer, &calls, status, "m").await;
        let retry = send(&layer, &calls, Some("0"), "m").await;
        assert_eq!(
            (retry.status(), retry.headers["code"].as_bytes()),
            ("2", &b"IDEMPOTENCY_OUTCOME_UNKNOWN"[..])
        );
        assert!(retry.body.is_empty() && retry.trailers.is_empty(), "trailers only");
        assert_eq!(calls.count(), 1, "{status:?}");
    }
}

#[tokio::test]
async fn a_mismatch_is_a_failed_precondition() {
    let (layer, calls) = (layer().await, Calls::default());
    assert_eq!(send(&layer, &calls, Some("0"), "one").await.status(), "0");
    let other = send(&layer, &calls, Some("0"), "two").await;
    assert_eq!(other.status(), "9");
    assert_eq!(other.headers["code"], "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert!(other.headers.contains_key("operation-id") && other.body.is_empty());
}

/// One unary call to a service with this response.
async fn answered(layer: &Layer, calls: &Calls, response: fn() -> Response<semel_http::Body>) -> Reply {
    let calls = calls.clone();
    let inner = tower::service_fn(move |_: Request<semel_http::Body>| {
        calls.one();
        std::future::ready(Ok::<_, Infallible>(response()))
    });
    let request = Request::post("/pay.Payments/Charge")
        .header("content-type", "application/grpc")
        .header("idempotency-key", KEY)
        .body(Full::new(Bytes::new()))
        .expect("a request");
    let (parts, body) = layer.layer(inner).oneshot(request).await.expect("a response").into_parts();
    let body = body.collect().await.expect("a complete body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    Reply { headers: parts.headers, body: body.to_bytes(), trailers }
}

fn response(status: u16, headers: &[(&str, &str)], body: &'static str) -> Response<semel_http::Body> {
    let mut response = Response::builder().status(status).header("content-type", "application/grpc");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(semel_http::Body::from(Bytes::from_static(body.as_bytes()))).expect("a response")
}

#[tokio::test]
async fn a_status_in_the_head_counts_only_without_a_body() {
    let (layer, calls) = (layer().await, Calls::default());
    let only: fn() -> _ = || response(200, &[("grpc-status", "0")], "");
    assert!(!answered(&layer, &calls, only).await.is_replay());
    assert!(answered(&layer, &calls, only).await.is_replay());
    let cut: fn() -> _ = || response(200, &[("grpc-status", "0")], "a message, and no trailers");
    for settings in
        [RouteSettings::default(), RouteSettings { response_bytes_max: 3, ..RouteSettings::default() }]
    {
        let (layer, calls) = (Layer::new(engine().await, settings).expect("valid"), Calls::default());
        answered(&layer, &calls, cut).await;
        assert_eq!(answered(&layer, &calls, cut).await.status(), "2", "the outcome is unknown");
        assert_eq!(calls.count(), 1);
    }
}

#[tokio::test]
async fn a_response_other_than_200_is_judged_by_http_status() {
    let (layer, calls) = (layer().await, Calls::default());
    let proxy: fn() -> _ = || response(429, &[("grpc-status", "0")], "");
    answered(&layer, &calls, proxy).await;
    answered(&layer, &calls, proxy).await;
    assert_eq!(calls.count(), 2, "nothing took effect");
}

#[tokio::test]
async fn the_handlers_report_counts_where_the_status_is_unavailable() {
    let settings = RouteSettings { response_bytes_max: 3, ..RouteSettings::default() };
    let (layer, calls) = (Layer::new(engine().await, settings).expect("valid"), Calls::default());
    let long: fn() -> _ = || response(200, &[("idempotency-outcome", "applied")], "a long message");
    answered(&layer, &calls, long).await;
    let retry = answered(&layer, &calls, long).await;
    assert_eq!(retry.headers["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!(calls.count(), 1);
}

//! Trailers carry no control headers, not even under a name that some servers treat as equal.

use super::world::{KEY, engine};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_http::{Body, KeyRule, Layer, RouteSettings};
use std::convert::Infallible;
use tower::{Layer as _, ServiceExt};

const CONTROL_TRAILERS: [&str; 3] = ["x-own", "operation-id", "idempotency-outcome"];

/// A body with control headers as trailers.
fn forged(data: &'static str) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let trailers: HeaderMap = CONTROL_TRAILERS
        .iter()
        .map(|name| (name.parse().expect("a name"), "1".parse().expect("a value")))
        .collect();
    let frames = [Frame::data(Bytes::from_static(data.as_bytes())), Frame::trailers(trailers)];
    StreamBody::new(futures_util::stream::iter(frames.map(Ok)))
}

fn names(trailers: Option<&HeaderMap>) -> String {
    let names = trailers.into_iter().flat_map(HeaderMap::keys).map(http::HeaderName::as_str);
    names.collect::<Vec<_>>().join(" ")
}

/// Sends a request with forged trailers to a service that also forges them. Returns the trailers that the service got
/// and those that the client gets.
async fn sent(
    settings: RouteSettings,
    key: Option<&str>,
    method: &str,
    kind: &'static str,
) -> (String, String) {
    let (report, received) = tokio::sync::oneshot::channel();
    let report = std::sync::Arc::new(std::sync::Mutex::new(Some(report)));
    let inner = tower::service_fn(move |request: Request<Body>| {
        let report = std::sync::Arc::clone(&report);
        async move {
            let body = request.into_body().collect().await.expect("a complete body");
            let report = report.lock().expect("not poisoned").take().expect("one call");
            report.send(names(body.trailers())).expect("somebody listens");
            let response = Response::builder().header("content-type", kind).header("operation-id", "forged");
            Ok::<_, Infallible>(response.body(forged("response")).expect("a response"))
        }
    });
    let layer = Layer::new(engine().await, settings).expect("valid");
    let mut request = Request::builder().method(method).uri("/x");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(forged("request")).expect("a request");
    let response = layer.layer(inner).oneshot(request).await.expect("a response");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a complete body");
    let mut client_got = names(body.trailers());
    if head.headers.get("operation-id").is_some_and(|value| value == "forged") {
        client_got.push_str(" (and in the head)");
    }
    (received.await.expect("it was called"), client_got)
}

#[tokio::test]
async fn trailers_of_protected_requests_carry_no_control_headers() {
    let (request, response) = sent(RouteSettings::default(), Some(KEY), "POST", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", "x-own"));
}

#[tokio::test]
async fn trailers_of_a_live_response_carry_no_control_headers() {
    let short = RouteSettings { response_bytes_max: 3, ..RouteSettings::default() };
    assert_eq!(sent(short, Some(KEY), "POST", "text/plain").await.1, "x-own", "over the limit");
    assert_eq!(
        sent(RouteSettings::default(), Some(KEY), "POST", "text/event-stream").await.1,
        "x-own",
        "endless"
    );
    assert_eq!(sent(RouteSettings::default(), None, "POST", "text/plain").await.1, "x-own", "without a key");
}

#[tokio::test]
async fn unprotected_request_trailers_are_cleaned_and_response_trailers_kept() {
    assert_eq!(sent(RouteSettings::default(), None, "POST", "text/plain").await.0, "x-own");
    let own = "x-own operation-id (and in the head)";
    let (request, response) = sent(RouteSettings::default(), None, "GET", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", own));
    let off = RouteSettings { key: KeyRule::Off, ..RouteSettings::default() };
    let (request, response) = sent(off, Some(KEY), "POST", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", own));
}

//! What only Semel may say is not said in trailers either, and not under a name that some servers read as the same.

use super::world::{KEY, engine};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_http::{Body, KeyRule, Layer, Terms};
use std::convert::Infallible;
use tower::{Layer as _, ServiceExt};

const SAID: [&str; 3] = ["x-own", "operation-id", "idempotency-outcome"];

/// A body with trailers that say what only Semel may say.
fn forged(data: &'static str) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let trailers: HeaderMap =
        SAID.iter().map(|name| (name.parse().expect("a name"), "1".parse().expect("a value"))).collect();
    let frames = [Frame::data(Bytes::from_static(data.as_bytes())), Frame::trailers(trailers)];
    StreamBody::new(futures_util::stream::iter(frames.map(Ok)))
}

fn names(trailers: Option<&HeaderMap>) -> String {
    let names = trailers.into_iter().flat_map(HeaderMap::keys).map(http::HeaderName::as_str);
    names.collect::<Vec<_>>().join(" ")
}

/// Sends a request whose trailers are forged to a service whose response's are. The trailers that the service got, and
/// those that the client gets.
async fn sent(terms: Terms, key: Option<&str>, method: &str, kind: &'static str) -> (String, String) {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Arc::new(std::sync::Mutex::new(Some(tell)));
    let inner = tower::service_fn(move |request: Request<Body>| {
        let tell = std::sync::Arc::clone(&tell);
        async move {
            let body = request.into_body().collect().await.expect("a whole body");
            let tell = tell.lock().expect("not poisoned").take().expect("one call");
            tell.send(names(body.trailers())).expect("somebody listens");
            let response = Response::builder().header("content-type", kind).header("operation-id", "forged");
            Ok::<_, Infallible>(response.body(forged("response")).expect("a response"))
        }
    });
    let layer = Layer::new(engine().await, terms).expect("fit for use");
    let mut request = Request::builder().method(method).uri("/x");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(forged("request")).expect("a request");
    let response = layer.layer(inner).oneshot(request).await.expect("a response");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body");
    let mut got = names(body.trailers());
    if head.headers.get("operation-id").is_some_and(|value| value == "forged") {
        got.push_str(" (and in the head)");
    }
    (told.await.expect("it was called"), got)
}

#[tokio::test]
async fn trailers_of_protected_requests_and_responses_say_nothing_of_semels() {
    let (request, response) = sent(Terms::default(), Some(KEY), "POST", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", "x-own"));
}

#[tokio::test]
async fn trailers_of_a_response_that_is_passed_on_live_say_nothing_of_semels() {
    let short = Terms { response_bytes_max: 3, ..Terms::default() };
    assert_eq!(sent(short, Some(KEY), "POST", "text/plain").await.1, "x-own", "over the limit");
    assert_eq!(sent(Terms::default(), Some(KEY), "POST", "text/event-stream").await.1, "x-own", "endless");
    assert_eq!(sent(Terms::default(), None, "POST", "text/plain").await.1, "x-own", "without a key");
}

#[tokio::test]
async fn trailers_of_unprotected_requests_are_cleaned_too_and_their_responses_are_the_services_own() {
    assert_eq!(sent(Terms::default(), None, "POST", "text/plain").await.0, "x-own");
    let own = "x-own operation-id (and in the head)";
    let (request, response) = sent(Terms::default(), None, "GET", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", own));
    let off = Terms { key: KeyRule::Off, ..Terms::default() };
    let (request, response) = sent(off, Some(KEY), "POST", "text/plain").await;
    assert_eq!((request.as_str(), response.as_str()), ("x-own", own));
}

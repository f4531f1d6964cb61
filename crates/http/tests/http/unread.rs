//! Bodies of requests with a key that do not arrive, or for which there is no memory.

use super::world::{Bodies, Gate, Observed, Reply, Server, charged, engine, post, request};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body::Frame;
use http_body_util::StreamBody;
use semel_http::{Code, EventKind, Layer, RouteSettings, UnreadReason};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

async fn layer() -> (Layer, Observed) {
    Observed::over(Layer::new(engine().await, RouteSettings::default()).expect("valid"))
}

/// A problem without a statement about the key, because nothing is known about it.
#[track_caller]
fn is_plain(reply: &Reply, status: u16) {
    let problem: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!((reply.status, &problem["status"]), (status, &status.into()), "{problem}");
    assert_eq!((&problem["type"], &problem["retryable"]), (&"about:blank".into(), &true.into()));
    assert!(problem.get("code").is_none() && reply.header("operation-id").is_none(), "{problem}");
}

#[tokio::test]
async fn bodies_share_their_memory_and_release_it() {
    let (layer, mut observed) = layer().await;
    let gate = Gate::new();
    let within = gate.clone();
    let holding = move |call, request| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            charged(call, request).await
        }
    };
    let server = Arc::new(Server::under(layer.bodies_bytes_max(64 * 1024), holding).await);
    let first = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send(post("/charges").bytes(vec![0; 60 * 1024])).await }
    });
    gate.started().await;
    let other = || request("POST", "/charges").header("idempotency-key", "another-key-of-16");
    let refused = server.send(other().bytes(vec![0; 60 * 1024])).await;
    let problem: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!((refused.status, &problem["code"]), (503, &"GATEWAY_BUSY".into()), "{problem}");
    assert_eq!((refused.header("retry-after"), &problem["retryable"]), (Some("1"), &true.into()));
    assert_eq!(observed.next().await, EventKind::Refused { code: Code::Busy, caller: None });
    gate.open();
    assert_eq!(first.await.expect("no panic").text(), "charge 1");
    // Its memory is free, and the refused key is still unused.
    gate.open();
    assert_eq!(server.send(other().bytes(vec![0; 60 * 1024])).await.text(), "charge 2");
}

#[tokio::test]
async fn a_body_over_its_total_deadline_is_aborted() {
    let (layer, mut observed) = layer().await;
    let server = Server::under(layer.body_time_max(Duration::from_millis(100)), charged).await;
    let first_piece =
        futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
    let endless = StreamBody::new(first_piece.chain(futures_util::stream::pending()));
    let reply = server.send(post("/charges").body(endless).expect("a request")).await;
    is_plain(&reply, 408);
    assert_eq!(observed.next().await, EventKind::Unread(UnreadReason::TooSlow));
    assert_eq!(server.charge(5).await.text(), "charge 1", "the key is still unused");
}

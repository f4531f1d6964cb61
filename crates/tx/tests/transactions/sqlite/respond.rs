//! Outcomes and errors as responses of axum handlers: without the layer, clients get what the layer sends.

use super::world::{Node, World, intent_with};
use crate::events::Events;
use crate::routes::{KEY, Node as _, OTHER, Reply, Work, app, header, send};
use axum::Router;
use axum::http::HeaderMap;
use axum::response::IntoResponse as _;
use axum::routing::post;
use semel_http::{OutcomeHint, response_of};
use semel_tx::Error;

/// The same routes as under the layer. The handlers find the key themselves.
fn without_layer(node: &Node) -> Router {
    let handler = |work: Work| {
        let node = node.clone();
        move |headers: HeaderMap, body: String| async move {
            let key = headers["idempotency-key"].to_str().expect("text");
            let created = node.run(intent_with(key, &body), work).await?;
            Ok::<_, Error>(response_of(&created))
        }
    };
    Router::new()
        .route("/orders", post(handler(Work::Create)))
        .route("/refused", post(handler(Work::Refuse)))
        .route("/failing", post(handler(Work::Fail)))
}

/// A reply without its operation ID, and without the time at which it expires.
fn comparable(reply: &Reply) -> Reply {
    let id = header(reply, "operation-id").expect("an operation").to_owned();
    let value = |name: &str, value: &str| match name {
        "idempotency-expires" => "a date".to_owned(),
        _ => value.replace(&id, "ID"),
    };
    let mut headers: Vec<_> = reply.1.iter().map(|(name, text)| (name.clone(), value(name, text))).collect();
    headers.sort();
    (reply.0, headers, reply.2.replace(&id, "ID"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_without_the_layer_answers_like_the_layer() {
    let (world, other) = (World::new(), World::new());
    let layered = app(&Node::on(&world.path(), |builder| builder.observer(Events::default())).await, None);
    let own = without_layer(&other.node().await);
    let requests = [
        ("/orders", KEY, "book", 201),
        ("/orders", KEY, "book", 201),
        ("/orders", KEY, "another book", 422),
        ("/refused", OTHER, "book", 422),
        ("/refused", OTHER, "book", 422),
    ];
    for (path, key, body, status) in requests {
        let [expected, reply] =
            [send(&layered.router, path, key, body).await, send(&own, path, key, body).await];
        assert_eq!(reply.0.as_u16(), status, "{reply:?}");
        assert_eq!(comparable(&reply), comparable(&expected), "{path} {body}");
    }
    assert_eq!((world.orders(), other.orders()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_work_is_not_shown_to_clients() {
    let world = World::new();
    let failed = send(&without_layer(&world.node().await), "/failing", KEY, "book").await;
    assert_eq!(failed.0.as_u16(), 500, "{failed:?}");
    assert!(failed.2.contains("LOCAL_COMMAND_NOT_RECORDED") && failed.2.contains("\"retryable\":true"));
    assert!(!failed.2.contains("paper"), "{failed:?}");
    assert_eq!((world.orders(), world.records()), (0, 0));
}

#[tokio::test]
async fn a_transaction_that_could_not_be_committed_in_time_says_that_it_was_rolled_back() {
    for error in [Error::Closing, Error::StaleSnapshot, Error::CommitTooLate] {
        let name = format!("{error:?}");
        let response = error.into_response();
        assert_eq!(response.status().as_u16(), 503, "{name}");
        assert_eq!(response.headers()["retry-after"], "1", "{name}");
        // A handler of class `external` may have had an effect before: a 503 with Retry-After would release its key.
        assert_eq!(response.extensions().get(), Some(&OutcomeHint::Unknown), "{name}");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body");
        let document: serde_json::Value = serde_json::from_slice(&body).expect("a document");
        assert_eq!(document["code"], "LOCAL_COMMAND_NOT_RECORDED", "{name}: {document}");
        assert_eq!(document["retryable"], true, "{name}: {document}");
        let detail = document["detail"].as_str().expect("text");
        assert!(detail.contains("everything was rolled back"), "{name}: {document}");
    }
}

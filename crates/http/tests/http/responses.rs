//! Memory for responses: what happens without it, and when it is released.

use super::world::{Bodies, Calls, Gate, Server, app, engine, post};
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use semel_http::{Layer, RouteSettings};
use semel_test_support::Reply;
use tower::ServiceExt;

const KIB: usize = 1024;

/// Sizes are in kibibytes: a quarter is reserved for short responses.
async fn layer(kib: usize) -> Layer {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    layer.responses_bytes_max(kib * KIB)
}

/// Sends a request with its own path and key. The response is not read, as with a slow client.
async fn ask(app: &Router, number: usize) -> Response {
    let key = format!("a-key-of-its-own-{number:04}");
    let request = http::Request::post(format!("/{number}")).header("idempotency-key", key);
    app.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer")
}

async fn read(response: Response) -> Reply {
    Reply::read(response).await.expect("a complete body")
}

fn bytes(kib: usize) -> Vec<u8> {
    (0..kib * KIB).map(|at| at.to_le_bytes()[1]).collect()
}

#[tokio::test]
async fn a_request_without_room_for_its_response_is_not_run() {
    let gate = Gate::new();
    let within = gate.clone();
    let answer = move |_, _| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            "done".into_response()
        }
    };
    // Memory for one response.
    let server = Server::under(layer(32).await, answer).await;
    let running = async { server.send(post("/first").empty()).await };
    let refused = async {
        gate.started().await;
        let refused = server.send(post("/second").empty()).await;
        refused.is_problem(503, "GATEWAY_BUSY", true);
        assert!(refused.headers.contains_key("retry-after"));
        assert_eq!(server.calls.count(), 1, "only the first was run");
        gate.open();
    };
    let (first, ()) = tokio::join!(running, refused);
    assert_eq!(first.text(), "done");
    gate.open();
    let second = server.send(post("/second").empty()).await;
    assert_eq!((second.text(), second.is_replay()), ("done", false));
}

/// The unread first response occupies the memory. The second is passed on completely, its record is finished, and it
/// does not run again.
async fn outgrows(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) {
    let calls = Calls::default();
    let app = app(layer(160).await, &calls, move |_, _| {
        let answer = answer.clone();
        async move { answer() }
    });
    let first = ask(&app, 1).await;
    let second = read(ask(&app, 2).await).await;
    assert!(second.status == 200 && second.body == bytes(50), "{} bytes", second.body.len());
    assert!(second.headers.contains_key("idempotency-expires"));
    read(ask(&app, 2).await).await.is_problem(409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false);
    assert!(read(first).await.body == bytes(50));
    for number in [1, 3, 3] {
        assert!(read(ask(&app, number).await).await.body == bytes(50), "there is memory again");
    }
    assert_eq!(calls.count(), 3);
}

#[tokio::test]
async fn a_response_larger_than_the_memory_is_passed_on_unstored() {
    outgrows(|| bytes(50).into_response()).await;
}

#[tokio::test]
async fn a_response_that_outgrows_the_memory_is_passed_on_unstored() {
    outgrows(|| {
        let pieces: Vec<_> = bytes(50).chunks(7 * KIB).map(Bytes::copy_from_slice).collect();
        let frames = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(http_body::Frame::data(piece)));
        Response::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))))
    })
    .await;
}

#[tokio::test]
async fn replays_take_room_until_their_clients_have_read_them() {
    let calls = Calls::default();
    let app = app(layer(1024).await, &calls, |_, _| async { bytes(200).into_response() });
    assert!(read(ask(&app, 1).await).await.body == bytes(200));
    let mut unread = Vec::new();
    let refused = loop {
        let replay = ask(&app, 1).await;
        if replay.status() != 200 {
            break read(replay).await;
        }
        unread.push(replay);
        assert!(unread.len() < 6, "{} replays of 200 KiB in 1 MiB", unread.len());
    };
    refused.is_problem(503, "GATEWAY_BUSY", true);
    // Bytes that were read are released before the end.
    let mut slow = unread.pop().expect("a replay").into_body();
    let mut received = Vec::new();
    while received.len() < 150 * KIB {
        received.extend_from_slice(
            &slow.frame().await.expect("more").expect("a frame").into_data().expect("data"),
        );
    }
    let other = unread.pop();
    drop(other);
    assert_eq!(ask(&app, 1).await.status(), 200, "a disconnected client releases its memory");
    received.extend_from_slice(&slow.collect().await.expect("the rest").to_bytes());
    assert!(received == bytes(200));
    for replay in unread {
        assert!(read(replay).await.body == bytes(200));
    }
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn an_operation_is_not_shown_without_memory_for_its_result() {
    let calls = Calls::default();
    let app = app(layer(1024).await.publishing(""), &calls, |_, _| async { bytes(200).into_response() });
    let first = ask(&app, 1).await;
    let id = first.headers()["operation-id"].to_str().expect("text").to_owned();
    let look = || {
        let request = http::Request::get(format!("/operations/{id}"))
            .header("idempotency-key", "a-key-of-its-own-0001")
            .body(Body::empty());
        app.clone().oneshot(request.expect("a request"))
    };
    let unread = ask(&app, 1).await;
    read(look().await.expect("an answer")).await.is_problem(503, "GATEWAY_BUSY", true);
    drop((first, unread));
    assert_eq!(read(look().await.expect("an answer")).await.json()["result"]["status"], 200);
}

#[tokio::test]
async fn a_replacement_layer_shares_the_memory() {
    let (calls, before) = (Calls::default(), layer(1024).await);
    let answer = |_, _| async { bytes(200).into_response() };
    let old = app(before.clone(), &calls, answer);
    let mut unread = Vec::new();
    for number in 1..=3 {
        unread.push(ask(&old, number).await);
    }
    let new = app(layer(1024).await.sharing_memory_with(&before), &calls, answer);
    assert!(read(ask(&new, 4).await).await.body == bytes(200));
    read(ask(&new, 4).await).await.is_problem(409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false);
    drop(unread);
    for is_replay in [false, true] {
        assert_eq!(read(ask(&new, 5).await).await.is_replay(), is_replay);
    }
}

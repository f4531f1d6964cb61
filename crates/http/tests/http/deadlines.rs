//! Clients that say how long they wait.

use super::world::{Bodies, Server, engine, post};
use axum::extract::Request as Incoming;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode};
use semel::Attempt;
use semel_http::{Deadlines, Layer, RouteSettings};
use semel_test_support::Reply;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const HEADER: &str = "x-request-timeout-ms";

async fn charge(server: &Server, left: &str) -> Reply {
    server.send(post("/charges").header(HEADER, left).json("{}")).await
}

/// Answers with the deadline that it got.
async fn seen(_: u32, request: Incoming) -> Response {
    let lines: Vec<_> = request
        .headers()
        .get_all(HEADER)
        .iter()
        .map(|line| line.to_str().expect("ASCII").to_owned())
        .collect();
    (StatusCode::CREATED, lines.join(",")).into_response()
}

async fn server(deadlines: Deadlines) -> Server {
    Server::new(RouteSettings { deadlines, ..RouteSettings::default() }, seen).await
}

fn is_exceeded(reply: &Reply) -> bool {
    reply.status == 504 && reply.code().as_deref() == Some("DEADLINE_EXCEEDED")
}

#[tokio::test]
async fn nothing_runs_after_the_deadline_and_the_key_stays_free() {
    let server = server(Deadlines::default()).await;
    let refused = charge(&server, "0").await;
    assert!(is_exceeded(&refused), "{refused:?}");
    assert!(refused.is_retryable());
    assert_eq!(server.calls.count(), 0);
    let ran = charge(&server, "60000").await;
    assert_eq!((ran.status, server.calls.count()), (201, 1));
    let left: u64 = ran.text().parse().expect("a number");
    assert!((1..=60000).contains(&left), "{left}");
    // Never in the fingerprint, and a replay needs no time.
    assert!(charge(&server, "59999").await.is_replay());
}

#[tokio::test]
async fn values_that_are_not_valid_are_ignored_and_passed_on() {
    let strict = server(Deadlines { min: Duration::from_hours(1), ..Deadlines::default() }).await;
    assert_eq!(charge(&strict, "1s").await.text(), "1s");
    let server = server(Deadlines::default()).await;
    let repeated = post("/charges").header(HEADER, "0").header(HEADER, "0").json("{}");
    assert_eq!(server.send(repeated).await.text(), "0,0");
}

#[tokio::test]
async fn a_route_can_rename_ignore_and_hide_the_deadline_and_ask_for_more() {
    let renamed = Deadlines { header: Some(HeaderName::from_static("x-left")), ..Deadlines::default() };
    let renamed = server(renamed).await;
    assert_eq!(charge(&renamed, "0").await.text(), "0", "another header");
    let ignored = server(Deadlines { header: None, ..Deadlines::default() }).await;
    assert_eq!(charge(&ignored, "0").await.text(), "0");
    let hidden = server(Deadlines { are_forwarded: false, ..Deadlines::default() }).await;
    assert_eq!(charge(&hidden, "60000").await.text(), "");
    let strict = server(Deadlines { min: Duration::from_mins(2), ..Deadlines::default() }).await;
    assert!(is_exceeded(&charge(&strict, "60000").await));
    assert_eq!((charge(&strict, "999999").await.status, strict.calls.count()), (201, 1));
}

#[tokio::test]
async fn what_has_begun_goes_on_and_every_caller_waits_only_as_long_as_it_said() {
    let gate = Arc::new(Semaphore::new(0));
    let settings = RouteSettings { wait: Some(Duration::from_hours(1)), ..RouteSettings::default() };
    let server = Server::new(settings, {
        let gate = Arc::clone(&gate);
        move |call, _| {
            let gate = Arc::clone(&gate);
            async move {
                let _open = gate.acquire().await;
                (StatusCode::CREATED, format!("charge {call}")).into_response()
            }
        }
    })
    .await;
    // Long enough that the handler is certainly called.
    let first = charge(&server, "1500").await;
    assert_eq!(
        (first.status, first.code().as_deref()),
        (409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS")),
        "{first:?}"
    );
    assert!(first.json()["operationId"].is_string(), "{first:?}");
    let duplicate = charge(&server, "100").await;
    assert_eq!(
        (duplicate.status, duplicate.code().as_deref()),
        (409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"))
    );
    gate.add_permits(1);
    let outcome = charge(&server, "600000").await;
    assert_eq!((outcome.status, outcome.text()), (201, "charge 1"));
    assert_eq!(server.calls.count(), 1);
}

/// A service that promises to check before it sends, as a proxy does, and whose first call never gets that far.
#[tokio::test]
async fn an_attempt_that_has_sent_nothing_is_given_back_at_the_deadline() {
    let server = Server::new(RouteSettings::default(), |call, request: Incoming| async move {
        let attempt = request.extensions().get::<Attempt>().expect("an attempt").clone();
        attempt.promise_checks();
        if call == 1 {
            std::future::pending::<()>().await;
        }
        let checked = attempt.check().is_ok();
        (StatusCode::CREATED, format!("attempt {} {checked}", attempt.number())).into_response()
    })
    .await;
    let late = charge(&server, "1500").await;
    assert!(is_exceeded(&late), "{late:?}");
    assert_eq!(server.calls.count(), 1);
    assert_eq!(charge(&server, "600000").await.text(), "attempt 2 true");
}

/// A client that gets a 202 waits no longer, and its request still runs.
#[tokio::test]
async fn with_respond_async_the_deadline_ends_with_the_202() {
    let settings = RouteSettings { wait: Some(Duration::from_mins(1)), ..RouteSettings::default() };
    let layer = Layer::new(engine().await, settings).expect("valid").publishing("");
    let server = Server::under(layer, |call, request: Incoming| async move {
        request.extensions().get::<Attempt>().expect("an attempt").promise_checks();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let is_allowed = request.extensions().get::<Attempt>().expect("an attempt").check().is_ok();
        (StatusCode::CREATED, format!("charge {call} {is_allowed}")).into_response()
    })
    .await;
    let request = post("/charges").header("prefer", "respond-async").header(HEADER, "2000").json("{}");
    assert_eq!(server.send(request).await.status, 202);
    assert_eq!(charge(&server, "600000").await.text(), "charge 1 true");
}

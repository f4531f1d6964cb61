//! One call, however many requests there are, and even if clients disconnect.

use super::world::{Bodies, Calls, Gate, Server, app, charged, engine, post};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::Full;
use semel_http::{Layer, RouteSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

fn patient() -> RouteSettings {
    RouteSettings { wait: Some(Duration::from_mins(10)), ..RouteSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_requests_at_once_cause_one_call() {
    let gate = Gate::new();
    let within = gate.clone();
    let server = Server::new(patient(), move |call, request| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            charged(call, request).await
        }
    })
    .await;
    let server = Arc::new(server);
    let sent: Vec<_> = (0..200)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.charge(5).await })
        })
        .collect();
    gate.started().await;
    gate.open();
    let mut replays = 0;
    for reply in sent {
        let reply = reply.await.expect("no panic");
        assert_eq!(
            (reply.status, reply.text(), reply.header("location")),
            (201, "charge 1", Some("/charges/7"))
        );
        replays += u32::from(reply.is_replay());
    }
    assert_eq!((replays, server.calls.count()), (199, 1));
}

#[tokio::test]
async fn peer_bug_a_client_that_hung_up_cancelled_the_handler() {
    let gate = Gate::new();
    let within = gate.clone();
    let server = Server::new(patient(), move |call, request| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            charged(call, request).await
        }
    })
    .await;
    let mut stream = server.connect().await;
    let body = "{\"amount\":5}";
    let head = format!(
        "POST /charges HTTP/1.1\r\nHost: test\r\nIdempotency-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        super::world::KEY,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    gate.started().await;
    drop(stream);
    gate.open();
    let retry = server.charge(5).await;
    assert_eq!((retry.status, retry.text(), retry.is_replay()), (201, "charge 1", true));
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_handler_that_panics_is_not_run_again() {
    let server = Server::new(
        RouteSettings { wait: Some(Duration::ZERO), ..RouteSettings::default() },
        |call, _| async move {
            assert!(call > 1, "it fails after the effect");
            "second".into_response()
        },
    )
    .await;
    let first = server.charge(5).await;
    first.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    let retry = server.charge(5).await;
    // Its owner may still be alive.
    retry.is_problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", true);
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_keyless_request_on_an_optional_route_passes_unmarked() {
    let server = Server::new(RouteSettings::default(), charged).await;
    for call in 1..=2 {
        let reply = server.send(super::world::request("POST", "/charges").json("{}")).await;
        assert_eq!((reply.status, reply.text()), (201, format!("charge {call}").as_str()));
        for name in ["operation-id", "idempotency-expires", "idempotency-stored", "idempotency-replayed"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn answers_name_the_operation_and_the_replay_deadline() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let (first, retry) = (server.charge(5).await, server.charge(5).await);
    assert_eq!((first.is_replay(), retry.is_replay()), (false, true));
    for name in ["operation-id", "idempotency-expires", "location", "content-type", "content-length"] {
        assert!(first.header(name).is_some(), "{name}");
        assert_eq!(first.header(name), retry.header(name), "{name}");
    }
    let expires = first.header("idempotency-expires").expect("a date");
    assert!(httpdate::parse_http_date(expires).is_ok() && expires.ends_with(" GMT") && expires.len() == 29);
    for name in ["idempotency-attempt", "idempotency-fence", "idempotency-stored"] {
        assert_eq!((first.header(name), retry.header(name)), (None, None), "{name}");
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_called() {
    use std::task::{Context, Poll};
    use tower::{Service, ServiceExt};
    /// Panics unless it was polled for readiness before; a clone was not.
    struct Fussy(bool, Calls);
    impl Clone for Fussy {
        fn clone(&self) -> Self {
            Self(false, self.1.clone())
        }
    }
    impl Service<http::Request<semel_http::Body>> for Fussy {
        type Response = http::Response<semel_http::Body>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: http::Request<semel_http::Body>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called without being ready");
            self.1.one();
            std::future::ready(Ok(http::Response::new(Bytes::from("fine").into())))
        }
    }
    let calls = Calls::default();
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let mut service = tower::Layer::layer(&layer, Fussy(false, calls.clone()));
    for key in ["first-key-of-them-7", "second-key-of-them-8", "third-key-of-them-9"] {
        let request = super::world::request("POST", "/x").header("idempotency-key", key).json("{}");
        let response = ServiceExt::<http::Request<Full<Bytes>>>::ready(&mut service)
            .await
            .expect("ready")
            .call(request)
            .await
            .expect("a response");
        assert_eq!(response.status(), 200, "{:?}", response.headers());
    }
    assert_eq!(calls.count(), 3);
}

#[tokio::test]
async fn layers_on_one_engine_share_its_records() {
    let engine = engine().await;
    let layer = || Layer::new(engine.clone(), RouteSettings::default()).expect("valid");
    let calls = Calls::default();
    let one = Server::of(app(layer(), &calls, charged), calls.clone()).await;
    let two = Server::of(app(layer(), &calls, charged), calls.clone()).await;
    assert!(!one.send(post("/charges").json("{}")).await.is_replay());
    assert!(two.send(post("/charges").json("{}")).await.is_replay());
    assert_eq!(calls.count(), 1);
}

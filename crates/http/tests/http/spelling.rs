//! Other spellings of a method or a path do not bypass the settings and cause no second effect.

use super::world::{Bodies, KEY, Server, engine, post, request};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http::Method;
use semel::core::classify::{Meaning, Rules, RulesError};
use semel::core::outcome::Status;
use semel::{Engine, memory};
use semel_http::{KeyRule, Layer, RouteSettings, RouteSettingsError, Routes};
use std::sync::Arc;

/// A handler that returns the number of the call and its request line.
async fn returns_request_line(call: u32, request: Request) -> Response {
    format!("{call}: {} {}", request.method(), request.uri()).into_response()
}

/// A key is required on `pattern`; everything else is unprotected.
async fn guarding(pattern: &str, settings: RouteSettings) -> Server {
    let others = RouteSettings { key: KeyRule::Off, ..RouteSettings::default() };
    let settings = RouteSettings { key: KeyRule::Required, ..settings };
    let routes = Routes::new(others).and_then(|routes| routes.with(pattern, settings)).expect("valid");
    Server::under(Layer::routed(engine().await, routes).expect("valid"), returns_request_line).await
}

const CHARGES: [&str; 8] = [
    "/charges",
    "/%63harges",
    "/%63%68arges",
    "//charges",
    "/./charges",
    "/x/../charges",
    "/x/%2e%2E/charges",
    "/..//charges",
];

#[tokio::test]
async fn one_key_is_one_effect_in_any_method_case() {
    let server = Server::new(
        RouteSettings { key: KeyRule::Required, ..RouteSettings::default() },
        returns_request_line,
    )
    .await;
    for (first, others) in [("post", ["Post", "POST", "pOsT"]), ("patch", ["PATCH", "Patch", "patch"])] {
        let before = server.calls.count();
        let keyed = |method: &str| request(method, "/charges").header("idempotency-key", KEY).json("{}");
        let ran = server.send(keyed(first)).await;
        assert_eq!(ran.text(), format!("{}: {first} /charges", before + 1), "it is forwarded as received");
        for other in others {
            let again = server.send(keyed(other)).await;
            assert_eq!((again.text(), again.is_replay()), (ran.text(), true), "{other}");
        }
        assert_eq!(server.calls.count(), before + 1);
    }
}

#[tokio::test]
async fn a_required_key_is_required_in_every_letter_case() {
    let server = Server::new(
        RouteSettings { key: KeyRule::Required, ..RouteSettings::default() },
        returns_request_line,
    )
    .await;
    for method in ["POST", "post", "Patch"] {
        let refused = server.send(request(method, "/charges").json("{}")).await;
        refused.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    }
    assert_eq!(server.calls.count(), 0);
    for method in ["get", "Delete", "FROB"] {
        assert_eq!(server.send(request(method, "/charges").empty()).await.status, 200, "{method} passes");
    }
}

#[tokio::test]
async fn letter_case_is_no_way_around_over_http2_either() {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let server = Server::new(
        RouteSettings { key: KeyRule::Required, ..RouteSettings::default() },
        returns_request_line,
    )
    .await;
    let stream = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    for (method, key, status) in [("post", None, 400), ("post", Some(KEY), 200), ("POST", Some(KEY), 200)] {
        let mut request = http::Request::builder().method(method).uri("http://test/charges");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        assert_eq!(response.status().as_u16(), status, "{method} {key:?}");
    }
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn methods_can_be_named_in_any_letter_case() {
    let methods = vec![Method::from_bytes(b"delete").expect("a token")];
    let server =
        Server::new(RouteSettings { methods, ..RouteSettings::default() }, returns_request_line).await;
    for (method, is_replay) in [("DELETE", false), ("delete", true)] {
        let reply = server.send(request(method, "/charges/7").header("idempotency-key", KEY).empty()).await;
        assert_eq!(reply.is_replay(), is_replay, "{method}");
    }
    let reply = server.send(post("/charges").json("{}")).await;
    assert!(reply.header("operation-id").is_none(), "POST is not among them");
}

#[tokio::test]
async fn a_tunnel_is_refused_in_any_letter_case() {
    let methods = vec![Method::POST, Method::CONNECT];
    let server =
        Server::new(RouteSettings { methods, ..RouteSettings::default() }, returns_request_line).await;
    let reply = server.send(request("connect", "/charges").header("idempotency-key", KEY).empty()).await;
    reply.is_problem(501, "STREAMING_NOT_PROTECTED", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn one_key_is_one_effect_in_every_spelling_of_its_path() {
    for first in CHARGES {
        let server = guarding("/charges", RouteSettings::default()).await;
        let ran = server.send(post(first).json("{}")).await;
        assert_eq!(ran.text(), format!("1: POST {first}"), "it is forwarded as received");
        for other in CHARGES {
            let again = server.send(post(other).json("{}")).await;
            assert_eq!((again.text(), again.is_replay()), (ran.text(), true), "{first} {other}");
        }
        assert_eq!(server.calls.count(), 1);
    }
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_its_rule() {
    for pattern in ["/charges", "/%63harges", "//charges"] {
        let server = guarding(pattern, RouteSettings::default()).await;
        for path in CHARGES {
            let refused = server.send(request("POST", path).json("{}")).await;
            refused.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
        }
        assert_eq!(server.calls.count(), 0);
        for path in ["/Charges", "/charges/", "/charges;v=1", "/%2563harges", "/a%2Fcharges"] {
            assert_eq!(server.send(request("POST", path).json("{}")).await.status, 200, "{path} is another");
        }
    }
}

#[tokio::test]
async fn a_non_ascii_route_matches_its_encoded_path() {
    let server = guarding("/über/{id}", RouteSettings::default()).await;
    for path in ["/%C3%BCber/7", "/%c3%bcber/7", "/über/7"] {
        let refused = server.send(request("POST", path).json("{}")).await;
        refused.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    }
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn another_spelling_is_equal_and_another_path_is_not() {
    let server =
        guarding("/orders/{id}/pay", RouteSettings { name: Some("pay".into()), ..RouteSettings::default() })
            .await;
    let first = server.send(post("/orders/a-1/pay?x=%41").json("{}")).await;
    for same in ["/orders/%61%2D1/pay?x=%41", "//orders/./a-1//pay?x=%41"] {
        assert!(server.send(post(same).json("{}")).await.is_replay(), "{same}");
    }
    for other in ["/orders/a-2/pay?x=%41", "/orders/A-1/pay?x=%41", "/orders/a-1/pay?x=A", "/orders/a-1/pay"]
    {
        let refused = server.send(post(other).json("{}")).await;
        refused.is_problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
    }
    assert_eq!((first.text(), server.calls.count()), ("1: POST /orders/a-1/pay?x=%41", 1));
}

#[tokio::test]
async fn ordinary_requests_keep_the_ids_that_they_always_had() {
    // As in `vectors/ids/ids.json` for an anonymous caller without a tenant.
    let secret = b"semel test vector hashing secret".to_vec();
    let engine = Engine::builder(Arc::new(memory::Store::new())).secret(secret).build().await;
    let layer = Layer::new(engine.expect("it answers"), RouteSettings::default()).expect("valid");
    let server = Server::under(layer, returns_request_line).await;
    let id = Some("76eb3aa8-e628-87a2-8588-e73c8113a019");
    for (method, path) in [("POST", "/charges"), ("post", "/charges"), ("POST", "/%63harges")] {
        let reply = server.send(request(method, path).header("idempotency-key", KEY).json("{}")).await;
        assert_eq!(reply.header("operation-id"), id, "{method} {path}");
    }
}

#[tokio::test]
async fn what_is_published_is_found_in_every_spelling() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let server = Server::under(layer.publishing("/%70ay/"), returns_request_line).await;
    let first = server.send(post("/charges").json("{}")).await;
    let id = first.header("operation-id").expect("an id").to_owned();
    for path in ["/pay/operations/", "//pay/operations/", "/%70ay//%6fperations/", "/x/../pay/operations/"] {
        for method in ["GET", "get"] {
            let shown = server.send(request(method, &format!("{path}{id}")).empty()).await;
            assert!(shown.status == 200 && shown.text().contains("SUCCEEDED"), "{method} {path}: {shown:?}");
        }
    }
    for path in ["/pay/.well-known/idempotency", "/pay//%2ewell-known/./idempotency"] {
        let shown = server.send(request("GET", path).empty()).await;
        assert!(shown.text().contains("\"operations\""), "{path}");
        let head = server.send(request("HEAD", path).empty()).await;
        assert_eq!((head.status, head.text()), (200, ""), "{path}");
        assert_eq!(server.send(request("head", path).empty()).await.status, 200, "{path}");
    }
    assert_eq!(server.calls.count(), 1);
    assert_eq!(
        server.send(request("GET", &format!("/operations/{id}")).empty()).await.text().split(':').next(),
        Some("2")
    );
}

#[tokio::test]
async fn a_retry_after_without_a_time_invites_no_retry() {
    let server = Server::new(RouteSettings::default(), |_, request: Request| async move {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let (status, value) = path.split_once('/').expect("a status and a value");
        let status: u16 = status.parse().expect("a status");
        (StatusCode::from_u16(status).expect("a status"), [("retry-after", value)]).into_response()
    })
    .await;
    let twice = async |path: &str| {
        let before = server.calls.count();
        server.send(post(path).json("{}")).await;
        let again = server.send(post(path).json("{}")).await;
        (server.calls.count() - before, again)
    };
    let (calls, _) = twice("/503/120").await;
    assert_eq!(calls, 2, "an invitation");
    for value in ["soon", "1.5", "-1"] {
        let (calls, again) = twice(&format!("/503/{value}")).await;
        assert_eq!(calls, 1, "{value}");
        again.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
        let (calls, again) = twice(&format!("/409/{value}")).await;
        assert_eq!((calls, again.status, again.is_replay()), (1, 409, true), "{value}");
    }
    let (calls, again) = twice("/409/5").await;
    assert_eq!(calls, 1);
    again.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
}

#[tokio::test]
async fn rules_that_run_successes_again_are_refused() {
    let success = Status::Http(201);
    let listed = Rules { not_applied: vec![success], ..Rules::default() };
    let overridden = Rules { overrides: vec![(success, Meaning::NotApplied)], ..Rules::default() };
    for rules in [listed, overridden] {
        let refused = Layer::new(engine().await, RouteSettings { rules, ..RouteSettings::default() });
        let error = refused.expect_err("it is refused");
        assert_eq!(error, RouteSettingsError::Rules(RulesError::SuccessNotApplied(success)));
        assert!(error.to_string().contains("a 201 is a success"), "{error}");
    }
}

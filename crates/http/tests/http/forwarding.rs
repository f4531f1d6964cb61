//! What passes between client and handler, and what does not.

use super::world::{Bodies, Calls, KEY, Server, app, charged, engine, post, request};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use semel::core::policy::{Class, Policy};
use semel_http::{Layer, OutcomeHint, RouteSettings};

const CONTROL: [&str; 7] = [
    "operation-id",
    "idempotency-attempt",
    "idempotency-fence",
    "idempotency-outcome",
    "idempotency-replayed",
    "idempotency-expires",
    "idempotency-stored",
];

/// A handler that returns the headers it received.
async fn returns_headers(_: u32, request: Request) -> Response {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}={}", value.to_str().expect("ASCII"))
    };
    request.headers().iter().map(line).collect::<Vec<_>>().join("\n").into_response()
}

fn forged(mut builder: http::request::Builder) -> http::request::Builder {
    for name in CONTROL {
        builder = builder.header(name, "forged").header(name, "twice");
    }
    builder
}

#[tokio::test]
async fn forged_control_headers_are_removed_from_every_request() {
    let server = Server::new(RouteSettings::default(), returns_headers).await;
    for builder in
        [request("GET", "/x"), request("POST", "/x"), request("PUT", "/x").header("idempotency-key", KEY)]
    {
        let reply = server.send(forged(builder).header("x-own", "1").empty()).await;
        assert!(reply.text().contains("x-own=1") && !reply.text().contains("forged"), "{}", reply.text());
        assert!(CONTROL.iter().all(|name| !reply.text().contains(name)), "{}", reply.text());
    }
    let keyed = server.send(forged(post("/x")).header("x-own", "1").json("{}")).await;
    assert!(!keyed.text().contains("forged"), "{}", keyed.text());
    let id = keyed.header("operation-id").expect("an id");
    for line in [&format!("operation-id={id}"), "idempotency-attempt=1", "idempotency-fence=", "x-own=1"] {
        assert!(keyed.text().contains(line), "{line} in {}", keyed.text());
    }
    assert!(keyed.text().contains(&format!("idempotency-key={KEY}")));
}

#[tokio::test]
async fn the_key_is_forwarded_as_received_and_bare_downstream() {
    let quoted = format!("\"{KEY}\"");
    for (class, sent) in [(Class::External, quoted.as_str()), (Class::Downstream, KEY)] {
        let server = Server::new(
            RouteSettings { policy: Policy::new(class), ..RouteSettings::default() },
            returns_headers,
        )
        .await;
        let reply = server.send(request("POST", "/x").header("idempotency-key", &quoted).json("{}")).await;
        assert!(
            reply.text().lines().any(|line| line == format!("idempotency-key={sent}")),
            "{}",
            reply.text()
        );
    }
}

#[tokio::test]
async fn the_attempt_is_an_extension_of_the_request() {
    let server = Server::new(RouteSettings::default(), |_, request: Request| async move {
        let attempt = request.extensions().get::<semel::Attempt>().expect("the attempt");
        assert_eq!(request.headers()["idempotency-fence"], attempt.fence().to_string().as_str());
        format!("{} {}", attempt.number(), attempt.operation_id()).into_response()
    })
    .await;
    let reply = server.charge(5).await;
    assert_eq!(reply.text(), format!("1 {}", reply.header("operation-id").expect("an id")));
}

#[tokio::test]
async fn control_headers_of_a_handler_never_reach_the_client() {
    let server = Server::new(RouteSettings::default(), |_, _| async {
        CONTROL.map(|name| (name, "forged")).into_response()
    })
    .await;
    let unkeyed = server.send(request("POST", "/x").empty()).await;
    assert!(CONTROL.iter().all(|name| unkeyed.header(name).is_none()), "{unkeyed:?}");
    for _ in 0..2 {
        let reply = server.charge(5).await;
        assert!(reply.headers.values().all(|value| value != "forged"), "{reply:?}");
    }
    let elsewhere = server.send(request("GET", "/x").empty()).await;
    assert_eq!(elsewhere.header("idempotency-outcome"), None);
    assert_eq!(elsewhere.header("operation-id"), Some("forged"), "elsewhere it belongs to the handler");
}

#[tokio::test]
async fn peer_bug_a_replay_changes_the_status_or_the_headers() {
    let server = Server::new(RouteSettings::default(), |_, _| async {
        let mut response = (StatusCode::CREATED, "charged").into_response();
        for (name, value) in [
            ("location", "/charges/7"),
            ("etag", "\"7\""),
            ("link", "</a>; rel=a"),
            ("link", "</b>; rel=b"),
            ("retry-after", "7"),
            ("x-bytes", "\u{e9}"),
            ("set-cookie", "session=1"),
            ("www-authenticate", "Bearer"),
            ("ratelimit-remaining", "3"),
            ("x-ratelimit-limit", "9"),
            ("traceparent", "00-1"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            response.headers_mut().append(name, value);
        }
        response
    })
    .await;
    let (first, retry) = (server.charge(5).await, server.charge(5).await);
    assert_eq!((first.status, retry.status, retry.is_replay()), (201, 201, true));
    for name in ["location", "etag", "retry-after", "x-bytes", "content-type"] {
        assert_eq!(first.headers.get(name), retry.headers.get(name), "{name}");
        assert!(first.headers.contains_key(name), "{name}");
    }
    let links: Vec<_> = retry.headers.get_all("link").iter().collect();
    assert_eq!(links, ["</a>; rel=a", "</b>; rel=b"]);
    for name in ["set-cookie", "www-authenticate", "ratelimit-remaining", "x-ratelimit-limit", "traceparent"]
    {
        assert!(first.header(name).is_some(), "the first caller gets all headers: {name}");
        assert_eq!(retry.header(name), None, "{name}");
    }
    assert_ne!(retry.header("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

type Answer = Box<dyn Fn(u32) -> Response + Send + Sync>;

#[tokio::test]
async fn handlers_report_by_header_or_extension_unseen_by_clients() {
    let by_header = |report: &'static str, status| {
        move |_| (status, [("idempotency-outcome", report)], "x").into_response()
    };
    let by_extension = |hint: OutcomeHint, status| {
        move |_| {
            let mut response = (status, "x").into_response();
            response.extensions_mut().insert(hint);
            response
        }
    };
    // The handler's report, and what the retry gets.
    let cases: [(Answer, Retry); 7] = [
        (Box::new(by_header("applied", StatusCode::INTERNAL_SERVER_ERROR)), Retry::Replay),
        (Box::new(by_header("not-applied", StatusCode::INTERNAL_SERVER_ERROR)), Retry::Attempt),
        (Box::new(by_header("not-applied", StatusCode::OK)), Retry::Attempt),
        (Box::new(by_header("unknown", StatusCode::OK)), Retry::Unknown),
        (Box::new(by_header("perhaps", StatusCode::OK)), Retry::Replay),
        (Box::new(by_extension(OutcomeHint::NotApplied, StatusCode::BAD_GATEWAY)), Retry::Attempt),
        (Box::new(by_extension(OutcomeHint::Applied, StatusCode::BAD_GATEWAY)), Retry::Replay),
    ];
    for (number, (answer, expected)) in (1..).zip(cases) {
        let answer = std::sync::Arc::new(answer);
        let server = Server::new(RouteSettings::default(), move |call, _| {
            let answer = std::sync::Arc::clone(&answer);
            async move { answer(call) }
        })
        .await;
        let first = server.charge(5).await;
        assert_eq!((first.text(), first.header("idempotency-outcome")), ("x", None), "case {number}");
        let retry = server.charge(5).await;
        assert_eq!(retry.header("idempotency-outcome"), None);
        let received = match (retry.is_replay(), server.calls.count()) {
            (true, 1) => Retry::Replay,
            (false, 2) => Retry::Attempt,
            _ => {
                retry.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
                Retry::Unknown
            }
        };
        assert_eq!(received, expected, "case {number}");
    }
}

#[derive(Debug, PartialEq)]
enum Retry {
    Replay,
    Attempt,
    Unknown,
}

#[tokio::test]
async fn peer_bug_every_5xx_forgotten_or_every_5xx_stored() {
    let server = Server::new(RouteSettings::default(), |call, request: Request| async move {
        match (request.uri().path(), call) {
            ("/busy", 1) => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response(),
            ("/broken", _) => StatusCode::BAD_GATEWAY.into_response(),
            ("/refused", _) => (StatusCode::UNPROCESSABLE_ENTITY, "no").into_response(),
            _ => charged(call, request).await,
        }
    })
    .await;
    let busy = server.send(post("/busy").json("{}")).await;
    assert_eq!((busy.status, busy.header("idempotency-expires")), (503, None));
    let retry = server.send(post("/busy").json("{}")).await;
    assert_eq!((retry.status, retry.text()), (201, "charge 2"), "a temporary 503 is not stored");
    assert_eq!(server.send(post("/broken").json("{}")).await.status, 502);
    let unsure = server.send(post("/broken").json("{}")).await;
    unsure.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    assert_eq!(server.send(post("/refused").json("{}")).await.status, 422);
    let refused = server.send(post("/refused").json("{}")).await;
    assert_eq!((refused.status, refused.text(), refused.is_replay()), (422, "no", true));
    assert_eq!(server.calls.count(), 4);
}

#[tokio::test]
async fn a_later_attempt_is_numbered_and_its_fence_is_higher() {
    let server = Server::new(RouteSettings::default(), |call, request: Request| async move {
        let header = |name: &str| request.headers()[name].to_str().expect("ASCII").to_owned();
        let text = format!("{} {}", header("idempotency-attempt"), header("idempotency-fence"));
        let status = if call < 3 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        (status, text).into_response()
    })
    .await;
    let mut last = 0;
    for attempt in 1..=3 {
        let reply = server.charge(5).await;
        let (number, fence) = reply.text().split_once(' ').expect("two numbers");
        let fence: u64 = fence.parse().expect("a number");
        assert_eq!(number, attempt.to_string());
        assert!(fence > last);
        last = fence;
    }
}

#[tokio::test]
async fn bodiless_answers_are_replayed_as_they_were() {
    let settings =
        RouteSettings { methods: vec![http::Method::POST, http::Method::HEAD], ..RouteSettings::default() };
    let calls = Calls::default();
    let layer = Layer::new(engine().await, settings).expect("valid");
    let answer = |_, request: Request| async move {
        match request.uri().path() {
            "/204" => StatusCode::NO_CONTENT.into_response(),
            "/304" => (StatusCode::NOT_MODIFIED, [("etag", "\"7\"")]).into_response(),
            _ => [("content-length", "1234")].into_response(),
        }
    };
    let server = Server::of(app(layer, &calls, answer), calls).await;
    for (method, path, status) in [("POST", "/204", 204), ("POST", "/304", 304), ("HEAD", "/head", 200)] {
        for is_replay in [false, true] {
            let reply = server.send(request(method, path).header("idempotency-key", KEY).empty()).await;
            assert_eq!((reply.status, reply.is_replay(), reply.body.len()), (status, is_replay, 0), "{path}");
            if method == "HEAD" {
                assert_eq!(reply.header("content-length"), Some("1234"));
            }
        }
    }
}

#[tokio::test]
async fn a_control_header_with_underscores_is_removed_too() {
    let server = Server::new(RouteSettings::default(), returns_headers).await;
    for builder in [request("GET", "/x"), post("/x")] {
        let builder = builder.header("operation_id", "forged").header("idempotency_attempt-", "own");
        let reply = server.send(builder.header("Idempotency_Fence", "forged").json("{}")).await;
        assert!(!reply.text().contains("forged") && reply.text().contains("own"), "{}", reply.text());
    }
}

#[tokio::test]
async fn effect_reports_joined_on_one_line_count() {
    let server = Server::new(RouteSettings::default(), |_, _| async {
        (StatusCode::OK, [("idempotency-outcome", "not-applied, unknown")]).into_response()
    })
    .await;
    assert_eq!(server.charge(5).await.status, 200);
    server.charge(5).await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
}

#[tokio::test]
async fn the_layers_own_answers_to_head_have_no_body() {
    use http_body_util::BodyExt;
    use tower::{Layer as _, ServiceExt};
    let settings = RouteSettings {
        methods: vec![http::Method::HEAD],
        key: semel_http::KeyRule::Required,
        ..RouteSettings::default()
    };
    let layer = Layer::new(engine().await, settings).expect("valid").publishing("");
    let id = "30313233-3435-3637-3839-616263646566";
    for path in ["/x", "/.well-known/idempotency", &format!("/operations/{id}")] {
        let inner = tower::service_fn(|_: http::Request<semel_http::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(
                semel_http::Body::from(bytes::Bytes::new()),
            ))
        });
        let get = |method| {
            let request = http::Request::builder().method(method).uri(path);
            request.body(http_body_util::Full::new(bytes::Bytes::new())).expect("a request")
        };
        let response = layer.layer(inner).oneshot(get("HEAD")).await.expect("a response");
        let length = response.headers().get("content-length").expect("a length").clone();
        assert_ne!(length, "0", "{path}");
        assert!(response.into_body().collect().await.expect("a body").to_bytes().is_empty(), "{path}");
    }
}

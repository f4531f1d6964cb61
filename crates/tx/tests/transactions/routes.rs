//! A route of class `local` under the HTTP layer: the handler joins, and the client gets the recorded
//! response. The same on every database.

use crate::events::Events;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Extension, Router};
use http_body_util::BodyExt as _;
use semel::core::policy::{Class, Policy};
use semel::{Engine, Intent, RecordedOutcome};
use semel_http::{Joinable, KeyRule, Layer, RouteSettings};
use semel_tx::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// The result of the handler's transaction. Each writes an order first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// 201 `created`, with the order's `location`.
    Create,
    /// 422 `sold out`, with `x-why: stock`.
    Refuse,
    /// An error: `out of paper`.
    Fail,
}

/// A node of the application.
pub(crate) trait Node: Clone + Send + Sync + 'static {
    fn engine(&self) -> Engine;
    /// Runs a local command for the handler.
    fn run(&self, intent: Intent, work: Work) -> impl Future<Output = Result<RecordedOutcome, Error>> + Send;
}

/// A database with the application's orders and the store's records.
pub(crate) trait Shop {
    type Node: Node;
    async fn open() -> Self;
    async fn node(&self, events: &Events) -> Self::Node;
    /// How many orders and how many records there are.
    async fn counts(&self) -> (i64, i64);
}

pub(crate) type Reply = (StatusCode, Vec<(String, String)>, String);

pub(crate) const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
pub(crate) const OTHER: &str = "9f14a89f-51e6-54ee-cda4-7905b68fa435";

/// The application on one node, and what a test observes of it.
pub(crate) struct App {
    pub(crate) router: Router,
    calls: Arc<AtomicUsize>,
    /// The handler of `/held` has been called, and may continue.
    held: Arc<(Notify, Notify)>,
}

/// The result of the handler's transaction, by the path.
pub(crate) fn app(node: &impl Node, wait: Option<Duration>) -> App {
    let settings = RouteSettings {
        key: KeyRule::Required,
        policy: Policy::new(Class::Local),
        wait,
        ..RouteSettings::default()
    };
    let layer = Layer::new(node.engine(), settings).expect("fit for use");
    let (calls, held) = (Arc::new(AtomicUsize::new(0)), Arc::new((Notify::new(), Notify::new())));
    let (counted, orders) = (Arc::clone(&calls), node.clone());
    let order = move |Extension(command): Extension<Joinable>| async move {
        counted.fetch_add(1, Ordering::Relaxed);
        match orders.run(command.intent(), Work::Create).await {
            // Whatever it returns: the client gets the recorded response.
            Ok(_) => (StatusCode::ACCEPTED, "something else").into_response(),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
        }
    };
    let refusing = node.clone();
    let refuse = move |Extension(command): Extension<Joinable>| async move {
        let answer = refusing.run(command.intent(), Work::Refuse).await;
        answer.map_or(StatusCode::INTERNAL_SERVER_ERROR, |_| StatusCode::OK)
    };
    let failing = node.clone();
    let fail = move |status: u16| {
        let failing = failing.clone();
        move |Extension(command): Extension<Joinable>| async move {
            let error = failing.run(command.intent(), Work::Fail).await.expect_err("the work failed");
            (StatusCode::from_u16(status).expect("a status"), error.to_string())
        }
    };
    let (holding, waiting) = (Arc::clone(&held), node.clone());
    let hold = move |Extension(command): Extension<Joinable>| async move {
        holding.0.notify_one();
        holding.1.notified().await;
        let answer = waiting.run(command.intent(), Work::Create).await;
        answer.map_or(StatusCode::INTERNAL_SERVER_ERROR, |_| StatusCode::OK)
    };
    // Its body must be text: otherwise axum answers before the handler is called.
    let reading = node.clone();
    let strict = move |Extension(command): Extension<Joinable>, _text: String| async move {
        let answer = reading.run(command.intent(), Work::Create).await;
        answer.map_or(StatusCode::INTERNAL_SERVER_ERROR, |_| StatusCode::OK)
    };
    let grpc = async || ([("content-type", "application/grpc"), ("grpc-status", "3")], "");
    let router = Router::new()
        .route("/orders", post(order))
        .route("/refused", post(refuse))
        .route("/failing", post(fail(503)))
        .route("/lying", post(fail(200)))
        .route("/held", post(hold))
        .route("/forgetful", post(async || (StatusCode::CREATED, "created")))
        .route("/strict", post(strict))
        .route("/grpc", post(grpc))
        .layer(layer);
    App { router, calls, held }
}

impl App {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

pub(crate) async fn send(app: &Router, path: &str, key: &str, body: &str) -> Reply {
    send_bytes(app, path, key, body.as_bytes()).await
}

async fn send_bytes(app: &Router, path: &str, key: &str, body: &[u8]) -> Reply {
    let request = Request::post(path)
        .header("authorization", "Bearer a")
        .header("idempotency-key", key)
        .body(Body::from(body.to_owned()))
        .expect("a request");
    let response: Response<Body> = app.clone().oneshot(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let headers =
        parts.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("").to_owned()));
    (parts.status, headers.collect(), String::from_utf8_lossy(&body).into_owned())
}

pub(crate) fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.1.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

pub(crate) async fn every_retry_gets_the_recorded_response<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    // The other one is a node that does not know of it.
    let (here, there) = (app(&shop.node(&events).await, None), app(&shop.node(&events).await, None));
    let first = send(&here.router, "/orders", KEY, "book").await;
    assert_eq!((first.0.as_u16(), first.2.as_str()), (201, "created"), "{first:?}");
    let id = header(&first, "operation-id").expect("an operation");
    assert_eq!(header(&first, "location"), Some(format!("/orders/{id}").as_str()));
    assert!(
        header(&first, "idempotency-expires").is_some() && header(&first, "idempotency-replayed").is_none()
    );
    for app in [&here, &there] {
        let again = send(&app.router, "/orders", KEY, "book").await;
        assert_eq!(
            (again.0, &again.2, header(&again, "location")),
            (first.0, &first.2, header(&first, "location"))
        );
        assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
        let mismatch = send(&app.router, "/orders", KEY, "another book").await;
        assert_eq!(mismatch.0.as_u16(), 422, "{mismatch:?}");
    }
    assert_eq!((here.calls(), there.calls()), (1, 0), "a replay needs no handler");
    assert_eq!(shop.counts().await, (1, 1));
}

pub(crate) async fn a_refusal_is_recorded_alone_and_replayed<S: Shop>() {
    let shop = S::open().await;
    let app = app(&shop.node(&Events::default()).await, None);
    for replayed in [None, Some("true")] {
        let reply = send(&app.router, "/refused", KEY, "book").await;
        assert_eq!((reply.0.as_u16(), reply.2.as_str()), (422, "sold out"), "{reply:?}");
        assert_eq!(
            (header(&reply, "x-why"), header(&reply, "idempotency-replayed")),
            (Some("stock"), replayed)
        );
    }
    assert_eq!(shop.counts().await, (0, 1));
}

pub(crate) async fn a_handler_that_never_joins_is_answered_500_and_reported<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    let app = app(&shop.node(&events).await, None);
    let reply = send(&app.router, "/forgetful", KEY, "book").await;
    assert_eq!((reply.0.as_u16(), events.of("Unfinished")), (500, 1), "{reply:?}");
    assert!(reply.2.contains("LOCAL_COMMAND_NOT_RECORDED"), "{reply:?}");
    assert!(
        !reply.2.contains("\"retryable\":true") && header(&reply, "idempotency-expires").is_none(),
        "{reply:?}"
    );
    // Nothing of it remains.
    assert_eq!(shop.counts().await, (0, 0));
    assert_eq!(send(&app.router, "/orders", OTHER, "book").await.0.as_u16(), 201);
    assert_eq!(events.of("Unfinished"), 1);
}

/// An extractor answers before the handler can join.
pub(crate) async fn a_refusal_without_a_join_is_passed_on<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    let app = app(&shop.node(&events).await, None);
    for _ in 0..2 {
        let refused = send_bytes(&app.router, "/strict", KEY, b"\xff").await;
        assert_eq!(refused.0.as_u16(), 400, "{refused:?}");
        assert!(refused.2.contains("UTF-8"), "the extractor's own words: {refused:?}");
        assert_eq!(header(&refused, "idempotency-stored"), Some("false"));
        assert!(header(&refused, "operation-id").is_some());
        assert!(
            header(&refused, "idempotency-expires").is_none()
                && header(&refused, "idempotency-replayed").is_none()
        );
    }
    // A gRPC error has the HTTP status 200.
    let refused = send(&app.router, "/grpc", OTHER, "book").await;
    assert_eq!((refused.0.as_u16(), header(&refused, "grpc-status")), (200, Some("3")), "{refused:?}");
    assert_eq!(header(&refused, "idempotency-stored"), Some("false"));
    assert_eq!((shop.counts().await, events.of("Unfinished")), ((0, 0), 0));
    // The key is not bound to the refused body.
    let created = send(&app.router, "/strict", KEY, "book").await;
    assert_eq!((created.0.as_u16(), shop.counts().await), (201, (1, 1)), "{created:?}");
}

pub(crate) async fn a_rollback_is_answered_as_an_error<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    let app = app(&shop.node(&events).await, None);
    let failed = send(&app.router, "/failing", KEY, "book").await;
    assert_eq!(failed.0.as_u16(), 503);
    assert!(failed.2.contains("out of paper"), "the handler's own words: {failed:?}");
    assert_eq!(header(&failed, "idempotency-stored"), Some("false"));
    assert!(header(&failed, "operation-id").is_some() && header(&failed, "idempotency-expires").is_none());
    let lied = send(&app.router, "/lying", KEY, "book").await;
    assert!(lied.0.as_u16() == 500 && lied.2.contains("LOCAL_COMMAND_NOT_RECORDED"), "{lied:?}");
    assert_eq!((shop.counts().await, events.of("Unfinished")), ((0, 0), 0));
}

/// Duplicates wait while the handler runs, and get what it recorded.
pub(crate) async fn many_duplicates_on_two_nodes_have_one_effect<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    let apps = [app(&shop.node(&events).await, None), app(&shop.node(&events).await, None)];
    let mut duplicates = tokio::task::JoinSet::new();
    for number in 0..50 {
        let router = apps[number % 2].router.clone();
        duplicates.spawn(async move { send(&router, "/orders", KEY, "book").await });
    }
    let replies = duplicates.join_all().await;
    assert!(replies.iter().all(|reply| reply.0.as_u16() == 201 && reply.2 == "created"), "{replies:?}");
    let ran = replies.iter().filter(|reply| header(reply, "idempotency-replayed").is_none()).count();
    assert_eq!((ran, shop.counts().await), (1, (1, 1)));
    assert!(apps.iter().all(|app| app.calls() <= 1), "at most once per node");
}

pub(crate) async fn a_duplicate_that_does_not_wait_is_in_progress<S: Shop>() {
    let (shop, events) = (S::open().await, Events::default());
    let app = app(&shop.node(&events).await, Some(Duration::ZERO));
    let first = tokio::spawn({
        let router = app.router.clone();
        async move { send(&router, "/held", KEY, "book").await }
    });
    app.held.0.notified().await;
    let duplicate = send(&app.router, "/held", KEY, "book").await;
    assert_eq!(duplicate.0.as_u16(), 409, "{duplicate:?}");
    assert!(
        header(&duplicate, "retry-after").is_some() && duplicate.2.contains("IN_PROGRESS"),
        "{duplicate:?}"
    );
    app.held.1.notify_one();
    assert_eq!(first.await.expect("no panic").0.as_u16(), 201);
    let after = send(&app.router, "/held", KEY, "book").await;
    assert_eq!((after.0.as_u16(), header(&after, "idempotency-replayed")), (201, Some("true")));
    assert_eq!(shop.counts().await, (1, 1));
}

/// The tests of this file, for one database.
macro_rules! route_tests {
    ($shop:ty: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $crate::routes::$name::<$shop>().await;
            }
        )*
    };
    ($shop:ty) => {
        $crate::routes::route_tests!(
            $shop:
            every_retry_gets_the_recorded_response,
            a_refusal_is_recorded_alone_and_replayed,
            a_handler_that_never_joins_is_answered_500_and_reported,
            a_refusal_without_a_join_is_passed_on,
            a_rollback_is_answered_as_an_error,
            many_duplicates_on_two_nodes_have_one_effect,
            a_duplicate_that_does_not_wait_is_in_progress,
        );
    };
}
pub(crate) use route_tests;

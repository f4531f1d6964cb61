//! A route of class `local` under the HTTP layer: the handler joins, and the client gets what was recorded.

use crate::own::pool;
use crate::world::{Events, Node, World, created, insert_order};
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Extension, Router};
use http_body_util::BodyExt as _;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel_http::{Joinable, KeyRule, Layer, Terms};
use semel_tx::LocalEnding;
use semel_tx::sqlite::own::{Begun, begin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::ServiceExt as _;

type Reply = (StatusCode, Vec<(String, String)>, String);

/// What the handler makes of its transaction, by the path.
fn app(node: &Node) -> (Router, Arc<AtomicUsize>) {
    let terms = Terms { key: KeyRule::Required, policy: Policy::new(Class::Local), ..Terms::default() };
    let layer = Layer::new(node.engine.clone(), terms).expect("fit for use");
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let orders = node.clone();
    let order = move |Extension(command): Extension<Joinable>| async move {
        counted.fetch_add(1, Ordering::Relaxed);
        let answer = orders.transact(command.intent(), |tx, local| {
            insert_order(tx, local)?;
            Ok(created(local))
        });
        match answer.await {
            // Whatever it says: the client gets what was recorded.
            Ok(_) => (StatusCode::ACCEPTED, "something else").into_response(),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
        }
    };
    let refusing = node.clone();
    let refuse = move |Extension(command): Extension<Joinable>| async move {
        let answer = refusing.transact(command.intent(), |tx, local| {
            insert_order(tx, local)?;
            Ok(LocalEnding::Refused(Outcome::http(422, [("x-why", "stock")], "sold out")))
        });
        answer.await.map_or(StatusCode::INTERNAL_SERVER_ERROR, |_| StatusCode::OK)
    };
    let failing = node.clone();
    let fail = move |status: u16| {
        let failing = failing.clone();
        move |Extension(command): Extension<Joinable>| async move {
            let failed = failing.transact(command.intent(), |tx, local| {
                insert_order(tx, local)?;
                Err("the printer is out of paper".into())
            });
            let error = failed.await.expect_err("the work failed");
            (StatusCode::from_u16(status).expect("a status"), error.to_string())
        }
    };
    let router = Router::new()
        .route("/orders", post(order))
        .route("/refused", post(refuse))
        .route("/failing", post(fail(503)))
        .route("/lying", post(fail(200)))
        .route("/forgetful", post(async || (StatusCode::CREATED, "created")))
        .layer(layer);
    (router, calls)
}

async fn send(app: &Router, path: &str, key: &str, body: &str) -> Reply {
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

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.1.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const OTHER: &str = "9f14a89f-51e6-54ee-cda4-7905b68fa435";

#[tokio::test(flavor = "multi_thread")]
async fn the_client_gets_what_was_recorded_and_every_retry_the_same() {
    let world = World::new();
    let node = world.node().await;
    let (app, calls) = app(&node);
    let first = send(&app, "/orders", KEY, "book").await;
    assert_eq!((first.0.as_u16(), first.2.as_str()), (201, "created"), "{first:?}");
    let id = header(&first, "operation-id").expect("an operation");
    assert_eq!(header(&first, "location"), Some(format!("/orders/{id}").as_str()));
    assert!(
        header(&first, "idempotency-expires").is_some() && header(&first, "idempotency-replayed").is_none()
    );
    // Here, and on a node that knows nothing of it: without a call of the handler.
    let (elsewhere, called_elsewhere) = self::app(&world.node().await);
    for app in [&app, &elsewhere] {
        let again = send(app, "/orders", KEY, "book").await;
        assert_eq!(
            (again.0, &again.2, header(&again, "location")),
            (first.0, &first.2, header(&first, "location"))
        );
        assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
        let mismatch = send(app, "/orders", KEY, "another book").await;
        assert_eq!(mismatch.0.as_u16(), 422, "{mismatch:?}");
    }
    assert_eq!([calls, called_elsewhere].map(|calls| calls.load(Ordering::Relaxed)), [1, 0]);
    assert_eq!((world.orders(), world.records()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_recorded_alone_and_replayed() {
    let world = World::new();
    let (app, _) = app(&world.node().await);
    for replayed in [None, Some("true")] {
        let reply = send(&app, "/refused", KEY, "book").await;
        assert_eq!((reply.0.as_u16(), reply.2.as_str()), (422, "sold out"), "{reply:?}");
        assert_eq!(
            (header(&reply, "x-why"), header(&reply, "idempotency-replayed")),
            (Some("stock"), replayed)
        );
    }
    assert_eq!((world.orders(), world.records()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_joins_is_500_and_an_alarm() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let (app, _) = app(&node);
    let reply = send(&app, "/forgetful", KEY, "book").await;
    assert_eq!((reply.0.as_u16(), events.of("Unfinished")), (500, 1), "{reply:?}");
    assert!(
        !reply.2.contains("\"retryable\":true") && header(&reply, "idempotency-expires").is_none(),
        "{reply:?}"
    );
    // Nothing is left of it: the key is free.
    assert_eq!(world.records(), 0);
    assert_eq!(send(&app, "/orders", OTHER, "book").await.0.as_u16(), 201);
    assert_eq!(events.of("Unfinished"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rolled_back_is_told_as_an_error_and_never_as_a_success() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let (app, _) = app(&node);
    let failed = send(&app, "/failing", KEY, "book").await;
    assert_eq!(failed.0.as_u16(), 503);
    assert!(failed.2.contains("out of paper"), "the handler's own words: {failed:?}");
    assert_eq!(header(&failed, "idempotency-stored"), Some("false"));
    assert!(header(&failed, "operation-id").is_some() && header(&failed, "idempotency-expires").is_none());
    let lied = send(&app, "/lying", KEY, "book").await;
    assert_eq!(lied.0.as_u16(), 500, "{lied:?}");
    assert_eq!((world.orders(), world.records(), events.of("Unfinished")), (0, 0, 0));
}

/// Twins wait while the handler is at it, and get what it recorded.
#[tokio::test(flavor = "multi_thread")]
async fn many_twins_call_the_handler_once() {
    let world = World::new();
    let node = world.node().await;
    let (app, calls) = app(&node);
    let mut twins = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let app = app.clone();
        twins.spawn(async move { send(&app, "/orders", KEY, "book").await });
    }
    let replies = twins.join_all().await;
    assert!(replies.iter().all(|reply| reply.0.as_u16() == 201 && reply.2 == "created"), "{replies:?}");
    let ran = replies.iter().filter(|reply| header(reply, "idempotency-replayed").is_none()).count();
    assert_eq!((ran, calls.load(Ordering::Relaxed), world.orders(), world.records()), (1, 1, 1, 1));
}

/// By hand, on a connection of the handler's own; and a join that comes after the answer runs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_join_by_hand_and_not_after_it_has_returned() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let (late, mut came_late) = tokio::sync::mpsc::unbounded_channel();
    let terms = Terms { policy: Policy::new(Class::Local), ..Terms::default() };
    let engine = node.engine.clone();
    let handler = move |Extension(command): Extension<Joinable>| async move {
        let mut connection = pool.acquire().await.expect("a connection");
        match begin(&engine, &mut connection, command.intent()).await.expect("begun") {
            Begun::Answered(answer) => panic!("{answer:?}"),
            Begun::Mine(mut mine) => {
                let insert = sqlx::query("INSERT INTO orders (id, item) VALUES ('1', 'book')");
                insert.execute(mine.connection()).await.expect("inserted");
                let recorded =
                    mine.succeed(Outcome::http(201, [("a", "b")], "by hand")).await.expect("recorded");
                recorded.commit().await.expect("committed");
            }
        }
    };
    let keeping = move |Extension(command): Extension<Joinable>| async move {
        late.send(command).expect("somebody keeps it");
        StatusCode::CREATED
    };
    let app = Router::new()
        .route("/orders", post(handler))
        .route("/late", post(keeping))
        .layer(Layer::new(node.engine.clone(), terms).expect("fit for use"));
    for replayed in [None, Some("true")] {
        let reply = send(&app, "/orders", KEY, "book").await;
        assert_eq!((reply.0.as_u16(), reply.2.as_str()), (201, "by hand"), "{reply:?}");
        assert_eq!(header(&reply, "idempotency-replayed"), replayed);
    }
    assert_eq!(send(&app, "/late", KEY, "book").await.0.as_u16(), 500);
    let kept = came_late.recv().await.expect("it was kept");
    let refused = node.transact(kept.intent(), crate::world::ordering).await;
    assert!(matches!(&refused, Err(semel_tx::Error::Engine(semel::Error::HandlerReturned))), "{refused:?}");
    assert_eq!((world.orders(), world.records()), (1, 1));
}

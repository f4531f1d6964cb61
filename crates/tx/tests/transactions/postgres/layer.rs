//! A route of class `local` under the HTTP layer, on PostgreSQL.

use super::world::{World, created, insert_order, work};
use crate::events::Events;
use crate::routes::{KEY, Node, Shop, Work, header, route_tests, send};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::{Engine, Intent, RecordedOutcome};
use semel_http::{Joinable, Layer, RouteSettings};
use semel_tx::postgres::{Database, Joined, join, transact};
use semel_tx::{Error, LocalEnding};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

route_tests!(World);

/// An engine and the application's pool.
#[derive(Clone)]
pub(crate) struct Server {
    engine: Engine,
    database: Database,
    schema: String,
}

impl Shop for World {
    type Node = Server;

    async fn open() -> Self {
        Self::new().await
    }

    async fn node(&self, events: &Events) -> Server {
        let engine = self.builder().await.observer(events.clone()).build().await.expect("an engine");
        Server { engine, database: self.database(4).await, schema: self.schema.clone() }
    }

    async fn counts(&self) -> (i64, i64) {
        (self.orders().await, self.records().await)
    }
}

impl Node for Server {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }

    async fn run(&self, intent: Intent, ending: Work) -> Result<RecordedOutcome, Error> {
        let schema = self.schema.clone();
        let work = work(move |tx, local| {
            let schema = schema.clone();
            Box::pin(async move {
                insert_order(tx, &schema, local).await?;
                match ending {
                    Work::Create => Ok(created(local)),
                    Work::Refuse => {
                        Ok(LocalEnding::Refused(Outcome::http(422, [("x-why", "stock")], "sold out")))
                    }
                    Work::Fail => Err("the printer is out of paper".into()),
                }
            })
        });
        transact(&self.engine, &self.database, intent, work).await
    }
}

/// A handler that joins manually, and keeps its transaction open until it is released.
fn by_hand(server: &Server, held: Arc<(Notify, Notify)>) -> Router {
    let settings = RouteSettings {
        policy: Policy::new(Class::Local),
        wait: Some(Duration::ZERO),
        ..RouteSettings::default()
    };
    let layer = Layer::new(server.engine.clone(), settings).expect("fit for use");
    let server = server.clone();
    let handler = move |Extension(command): Extension<Joinable>| async move {
        let transaction = server.database.pool().begin().await.expect("a transaction");
        match join(&server.engine, &server.database, transaction, command.intent()).await.expect("joined") {
            // The client gets the recorded answer, whatever this returns.
            Joined::Answered { .. } => StatusCode::OK,
            Joined::Owned(mut owned) => {
                let local = owned.local();
                insert_order(owned.connection(), &server.schema, local).await.expect("inserted");
                held.0.notify_one();
                held.1.notified().await;
                let outcome = Outcome::http(201, [("a", "b")], "by hand");
                owned.succeed(outcome).await.expect("recorded").commit().await.expect("committed");
                StatusCode::OK
            }
        }
    };
    Router::new().route("/orders", post(handler)).layer(layer)
}

/// The other node has no duplicate of its own: it finds the lock taken.
#[tokio::test(flavor = "multi_thread")]
async fn another_nodes_open_transaction_is_answered_in_progress() {
    let (world, events, held) = (World::new().await, Events::default(), Arc::default());
    let here = by_hand(&world.node(&events).await, Arc::clone(&held));
    let there = by_hand(&world.node(&events).await, Arc::default());
    let first = tokio::spawn({
        let here = here.clone();
        async move { send(&here, "/orders", KEY, "book").await }
    });
    held.0.notified().await;
    for app in [&here, &there] {
        let duplicate = send(app, "/orders", KEY, "book").await;
        assert_eq!(duplicate.0.as_u16(), 409, "{duplicate:?}");
    }
    held.1.notify_one();
    let reply = first.await.expect("no panic");
    assert_eq!((reply.0.as_u16(), reply.2.as_str()), (201, "by hand"), "{reply:?}");
    for app in [&here, &there] {
        let again = send(app, "/orders", KEY, "book").await;
        assert_eq!((again.0.as_u16(), header(&again, "idempotency-replayed")), (201, Some("true")));
    }
    assert_eq!((world.orders().await, world.records().await, events.of("Unfinished")), (1, 1, 0));
}

/// How a handler loses sight of its commit before it answers 404.
#[derive(Clone, Copy)]
enum Loses {
    /// The commit had no answer.
    TheAnswer,
    /// It waits no longer for its transaction, which goes on.
    DatabaseTimeouts,
}

fn giving_up(server: &Server, loses: Loses, held: Arc<(Notify, Notify)>) -> Router {
    let settings = RouteSettings { policy: Policy::new(Class::Local), ..RouteSettings::default() };
    let layer = Layer::new(server.engine.clone(), settings).expect("fit for use");
    let server = server.clone();
    let handler = move |Extension(command): Extension<Joinable>| async move {
        match loses {
            Loses::TheAnswer => {
                let transaction = server.database.pool().begin().await.expect("a transaction");
                let joined = join(&server.engine, &server.database, transaction, command.intent()).await;
                let Joined::Owned(mut owned) = joined.expect("joined") else { panic!("it has not run") };
                let local = owned.local();
                insert_order(owned.connection(), &server.schema, local).await.expect("written");
                let recorded = owned.succeed(Outcome::http(201, [("a", "b")], "created")).await;
                let (transaction, pending) = recorded.expect("recorded").into_parts();
                transaction.commit().await.expect("committed");
                drop(pending);
            }
            Loses::DatabaseTimeouts => {
                let (schema, working) = (server.schema.clone(), Arc::clone(&held));
                let work = work(move |tx, local| {
                    let (schema, working) = (schema.clone(), Arc::clone(&working));
                    Box::pin(async move {
                        insert_order(tx, &schema, local).await?;
                        working.0.notify_one();
                        working.1.notified().await;
                        Ok(created(local))
                    })
                });
                let waiting = transact(&server.engine, &server.database, command.intent(), work);
                tokio::select! {
                    ended = waiting => panic!("its work is not released yet: {ended:?}"),
                    () = held.0.notified() => {}
                }
            }
        }
        StatusCode::NOT_FOUND
    };
    Router::new().route("/orders", post(handler)).layer(layer)
}

/// A 404 would say that nothing took effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_while_the_commit_is_in_doubt_is_answered_as_unknown() {
    for loses in [Loses::TheAnswer, Loses::DatabaseTimeouts] {
        let (world, events, held) = (World::new().await, Events::default(), Arc::default());
        let app = giving_up(&world.node(&events).await, loses, Arc::clone(&held));
        let in_doubt = send(&app, "/orders", KEY, "book").await;
        assert_eq!(in_doubt.0.as_u16(), 409, "{in_doubt:?}");
        assert!(in_doubt.2.contains("UNKNOWN") && in_doubt.2.contains("same key"), "{in_doubt:?}");
        assert!(header(&in_doubt, "idempotency-expires").is_none(), "{in_doubt:?}");
        held.1.notify_one();
        let found = send(&app, "/orders", KEY, "book").await;
        assert_eq!((found.0.as_u16(), header(&found, "idempotency-replayed")), (201, Some("true")));
        assert_eq!((world.orders().await, world.records().await), (1, 1));
    }
}

//! A route of class `local` under the HTTP layer, on SQLite.

use super::own::pool;
use super::world::{Node, World, created, insert_order};
use crate::events::Events;
use crate::routes::{KEY, Shop, Work, header, route_tests, send};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::{Engine, Intent, RecordedOutcome};
use semel_http::{Joinable, Layer, RouteSettings};
use semel_tx::sqlite::own::{Begun, begin};
use semel_tx::{Error, LocalEnding};

route_tests!(World);

impl Shop for World {
    type Node = Node;

    async fn open() -> Self {
        Self::new()
    }

    async fn node(&self, events: &Events) -> Node {
        Node::on(&self.path(), |builder| builder.observer(events.clone())).await
    }

    async fn counts(&self) -> (i64, i64) {
        (self.orders(), self.records())
    }
}

impl crate::routes::Node for Node {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }

    async fn run(&self, intent: Intent, work: Work) -> Result<RecordedOutcome, Error> {
        self.transact(intent, move |tx, local| {
            insert_order(tx, local)?;
            match work {
                Work::Create => Ok(created(local)),
                Work::Refuse => {
                    Ok(LocalEnding::Refused(Outcome::http(422, [("x-why", "stock")], "sold out")))
                }
                Work::Fail => Err("the printer is out of paper".into()),
            }
        })
        .await
    }
}

/// Manually, on the handler's own connection; and a join after the answer runs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_join_by_hand_until_it_returns() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let (late, mut came_late) = tokio::sync::mpsc::unbounded_channel();
    let settings = RouteSettings { policy: Policy::new(Class::Local), ..RouteSettings::default() };
    let engine = node.engine.clone();
    let handler = move |Extension(command): Extension<Joinable>| async move {
        let mut connection = pool.acquire().await.expect("a connection");
        match begin(&engine, &mut connection, command.intent()).await.expect("begun") {
            Begun::Answered(answer) => panic!("{answer:?}"),
            Begun::Owned(mut owned) => {
                let insert = sqlx::query("INSERT INTO orders (id, item) VALUES ('1', 'book')");
                insert.execute(owned.connection()).await.expect("inserted");
                let recorded =
                    owned.succeed(Outcome::http(201, [("a", "b")], "by hand")).await.expect("recorded");
                recorded.commit().await.expect("committed");
            }
        }
    };
    let keeping = move |Extension(command): Extension<Joinable>| async move {
        late.send(command).expect("a reader holds it");
        StatusCode::CREATED
    };
    let app = Router::new()
        .route("/orders", post(handler))
        .route("/late", post(keeping))
        .layer(Layer::new(node.engine.clone(), settings).expect("fit for use"));
    for replayed in [None, Some("true")] {
        let reply = send(&app, "/orders", KEY, "book").await;
        assert_eq!((reply.0.as_u16(), reply.2.as_str()), (201, "by hand"), "{reply:?}");
        assert_eq!(header(&reply, "idempotency-replayed"), replayed);
    }
    assert_eq!(send(&app, "/late", KEY, "book").await.0.as_u16(), 500);
    let kept = came_late.recv().await.expect("it was kept");
    let refused = node.transact(kept.intent(), super::world::ordering).await;
    assert!(matches!(&refused, Err(Error::Engine(semel::Error::HandlerReturned))), "{refused:?}");
    assert_eq!((world.orders(), world.records()), (1, 1));
}

//! The patterns inside local commands.

use crate::world::{Lite, Pg, World, effect, effects, with_effects};
use semel::core::outcome::{Outcome, Status};
use semel::{
    Class, Engine, Identity, Intent, Key, Operation, Policy, RecordedOutcome, Refusal, RefusalReason, Scope,
    payload,
};
use semel_tx::patterns::{Binding, BusinessReferences, Counter};
use semel_tx::postgres::{Database, transact};
use semel_tx::sqlite::own::{Begun, begin};
use semel_tx::{Error, LocalEnding};
use std::sync::Arc;

fn intent(key: &str) -> Intent {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::named("pay"));
    let key = Key::from_source(key).expect("a key");
    Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from("5".to_owned()))
}

/// The status of a command's outcome, and whether it is replayed.
fn status(answer: Result<RecordedOutcome, Error>) -> (Status, bool) {
    let recorded = match answer {
        Ok(recorded) => recorded,
        Err(Error::Refused(Refusal { reason: RefusalReason::Failed(recorded), .. })) => *recorded,
        other => panic!("{other:?}"),
    };
    (recorded.outcome.status, recorded.replayed)
}

/// A client that sends a new key with each retry: the reference catches what the key cannot.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_reused_reference_is_refused_permanently() {
    let world: Pg = with_effects().await;
    let store = semel_sql::postgres::Store::open(&world.store_url(), semel_sql::postgres::Options::default())
        .await
        .expect("it opens");
    let engine = Engine::builder(Arc::new(store)).build().await.expect("an engine");
    let database = Database::new(world.pool().clone()).schema(world.schema.clone());
    let references = BusinessReferences::new("acme", "pay").tables(world.tables());
    let balance = Counter::new("balance").tables(world.tables());
    let mut answers = Vec::new();
    for key in ["key-1", "key-2", "key-1", "key-2"] {
        let (references, balance, sql) = (references.clone(), balance.clone(), effect(&world, "paid"));
        let answer = transact(&engine, &database, intent(key), move |tx, local| {
            let (references, balance, sql) = (references.clone(), balance.clone(), sql.clone());
            Box::pin(async move {
                let id = local.operation_id;
                if let Binding::Taken { operation_id } = references.bind(tx, "invoice-117", id).await? {
                    let body = operation_id.to_string();
                    return Ok(LocalEnding::Refused(Outcome::http(409, [("a", "b")], body)));
                }
                Pg::run(tx, sql).await?;
                balance.add(tx, &id.to_string(), 500).await?;
                Ok(LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "")))
            })
        });
        answers.push(answer.await);
    }
    let first = answers[0].as_ref().expect("it ran").operation_id.to_string();
    let statuses: Vec<_> = answers.into_iter().map(status).collect();
    let (created, taken) = (Status::Http(201), Status::Http(409));
    assert_eq!(
        statuses,
        [(created, false), (taken, false), (created, true), (taken, true)],
        "the refusal is kept under its key"
    );
    assert_eq!(effects(&world).await, 1);
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, 500);
    let bound = format!("SELECT count(*) FROM {{o:business_references}} WHERE operation_id = '{first}'");
    assert_eq!(world.ask(&bound).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_reused_reference_is_refused_permanently() {
    let world: Lite = with_effects().await;
    let store = semel_sql::sqlite::Store::open(world.path(), semel_sql::sqlite::Options::default())
        .expect("it opens");
    let engine = Engine::builder(Arc::new(store)).build().await.expect("an engine");
    let references = BusinessReferences::new("acme", "pay");
    let mut bound_results = Vec::new();
    for key in ["key-1", "key-2"] {
        let mut connection = world.pool().acquire().await.expect("a connection");
        let Begun::Owned(mut owned) = begin(&engine, &mut connection, intent(key)).await.expect("begun")
        else {
            panic!("it is new");
        };
        let id = owned.local().operation_id;
        let bound = references.bind(owned.connection(), "invoice-117", id).await.expect("an answer");
        let recorded = if bound == Binding::Bound {
            Lite::run(owned.connection(), effect(&world, "paid")).await.expect("written");
            owned.succeed(Outcome::http(201, [("a", "b")], "")).await
        } else {
            owned.refuse(Outcome::http(409, [("a", "b")], "")).await
        };
        recorded.expect("recorded").commit().await.expect("committed");
        bound_results.push(bound == Binding::Bound);
    }
    assert_eq!((bound_results, effects(&world).await), (vec![true, false], 1));
}

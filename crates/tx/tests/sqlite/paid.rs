//! Outcomes of effects elsewhere, stored with the change that follows from them: in the store's group commit, and in a
//! transaction on a connection of the application's own.

use crate::own::pool;
use crate::world::{Events, Node, World, body, intent_of, ran};
use rusqlite::{Connection, params};
use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::{Answer, Attempt, Ended, Identity, Intent, Key, Operation, RequestOutcome, Scope, payload};
use semel_tx::sqlite::rusqlite;
use semel_tx::sqlite::{finish_in, own};
use semel_tx::{BoxError, Error, LocalEnding};
use sqlx::SqlitePool;
use std::time::Duration;

/// Where the outcome is stored.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    GroupCommit,
    Own(SqlitePool),
}

async fn ways(world: &World) -> [Way; 2] {
    world.node().await.engine.store_id().await.expect("the store has an id");
    [Way::GroupCommit, Way::Own(pool(world, 2).await)]
}

const PAID: &str = "INSERT INTO orders (id, item) VALUES (?1, 'PAID')";
/// Violates a foreign key, which SQLite says only at the commit.
const UNTENABLE: &str = "INSERT INTO addresses VALUES ('nobody')";

pub(crate) fn charge(key: &str) -> Intent {
    intent_of(Class::External, key, "5")
}

fn charged() -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"))
}

fn pay(tx: &Connection, id: OperationId, is_tenable: bool) -> Result<LocalEnding, BoxError> {
    tx.execute(PAID, params![id.to_string()])?;
    if !is_tenable {
        tx.execute(UNTENABLE, [])?;
    }
    Ok(charged())
}

impl Way {
    /// The order is paid, and the attempt has ended so.
    pub(crate) async fn finish(&self, node: &Node, attempt: &Attempt, is_tenable: bool) -> Result<(), Error> {
        let id = attempt.operation_id();
        match self {
            Self::GroupCommit => {
                finish_in(&node.engine, &node.database, attempt, move |tx| pay(tx, id, is_tenable)).await
            }
            Self::Own(pool) => {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
                let paid = sqlx::query(PAID).bind(id.to_string());
                paid.execute(&mut *transaction).await.map_err(Error::Database)?;
                if !is_tenable {
                    sqlx::query(UNTENABLE).execute(&mut *transaction).await.expect("not checked yet");
                }
                own::finish_in(&node.engine, transaction, attempt, charged()).await?.commit().await
            }
        }
    }

    /// Charges, and stores that together with the order. The first `untenable` of `tries` fail; in doubt where all do.
    async fn charge_and_pay(&self, node: &Node, key: &str, untenable: u32, tries: u32) -> Answer {
        let (way, node, engine) = (self.clone(), node.clone(), node.engine.clone());
        let work = move |attempt: Attempt| async move {
            for tried in 0..tries {
                match way.finish(&node, &attempt, tried >= untenable).await {
                    // Whatever is returned from here on, the transaction has said it.
                    Ok(()) => return Ended::from(Ending::NotApplied(None)),
                    Err(Error::Violated | Error::Database(_)) => attempt.check().expect("still owned"),
                    Err(other) => panic!("{way:?}: {other}"),
                }
            }
            Ended::from(Ending::InDoubt)
        };
        engine.execute(charge(key), work).await.expect("an answer")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_and_the_change_that_follows_commit_together() {
    let world = World::new();
    for (number, way) in (1..).zip(ways(&world).await) {
        let events = Events::default();
        let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
        let key = format!("charge-{number}");
        let told = way.charge_and_pay(&node, &key, 0, 1).await;
        assert!(ran(&told) && body(&told) == "charged", "{way:?}: {told:?}");
        let again = way.charge_and_pay(&world.node().await, &key, 0, 1).await;
        assert!(!ran(&again) && body(&again) == "charged", "{way:?}");
        assert_eq!((world.orders(), world.records()), (number, number), "{way:?}");
        assert_eq!(["Finished", "Fenced", "LeaseLost"].map(|name| events.of(name)), [1, 0, 0], "{way:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollback_the_attempt_is_still_owned_and_may_try_again() {
    let world = World::new();
    let node = world.node().await;
    for (number, way) in (1..).zip(ways(&world).await) {
        let told = way.charge_and_pay(&node, &format!("charge-{number}"), 2, 3).await;
        assert!(ran(&told) && body(&told) == "charged", "{way:?}: {told:?}");
        assert_eq!((world.orders(), world.records()), (number, number), "{way:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_it_ends_in_doubt_and_nothing_followed() {
    for way in 0..2 {
        let world = World::new();
        let (node, way) = (world.node().await, &ways(&world).await[way]);
        let told = way.charge_and_pay(&node, "charge-1", 2, 2).await;
        let RequestOutcome::Ran(told_ran) = &told.outcome else { panic!("{way:?}: {told:?}") };
        assert!(matches!(told_ran.ending, Ending::InDoubt), "{way:?}");
        assert_eq!(world.record(&node.engine, &told).await.state_name(), StateName::Unknown, "{way:?}");
        assert_eq!(world.orders(), 0, "{way:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finish_that_is_dropped_leaves_nothing_and_the_lease_is_renewed_again() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    node.engine.store_id().await.expect("the store has an id");
    let short = Policy::new(Class::External).with(|policy| policy.lease = Duration::from_millis(900));
    let scope = Scope::new(Identity::api_key("k-17"), Operation::named("charge"));
    let key = Key::from_source("charge-1").expect("a key");
    let intent = Intent::new(scope, key, short.expect("a policy"), payload::Raw::from("5"));
    let (inside, path) = (node.clone(), world.path());
    let entry = move || {
        let admin = Connection::open(&path).expect("the file opens");
        admin
            .query_row("SELECT entry FROM semel_records", [], |row| row.get::<_, Vec<u8>>(0))
            .expect("a record")
    };
    let work = move |attempt: Attempt| async move {
        let id = attempt.operation_id().to_string();
        let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
        sqlx::query(PAID).bind(&id).execute(&mut *transaction).await.expect("written");
        // Long enough for a renewal to come and wait for the file. It gives up, and the finish goes on.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let finish = own::finish_in(&inside.engine, transaction, &attempt, charged()).await;
        let (before, finish) = (entry(), finish.expect("written"));
        drop(finish);
        for _ in 0..100 {
            if entry() != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(entry() != before, "renewed again");
        attempt.check().expect("still owned");
        Way::Own(pool).finish(&inside, &attempt, true).await.expect("committed");
        Ended::from(Ending::InDoubt)
    };
    let told = node.engine.execute(intent, work).await.expect("an answer");
    assert!(ran(&told) && body(&told) == "charged", "{told:?}");
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_settled_by_somebody_else_changes_nothing() {
    for way in 0..2 {
        let world = World::new();
        let (node, way) = (world.node().await, ways(&world).await[way].clone());
        let (inside, path) = (node.clone(), world.path());
        let work = move |attempt: Attempt| async move {
            // Another attempt's record stands there.
            let admin = Connection::open(&path).expect("the file opens");
            admin.busy_timeout(Duration::from_secs(10)).expect("set");
            admin.execute("UPDATE semel_records SET entry = entry || x'00'", []).expect("changed");
            let refused = way.finish(&inside, &attempt, true).await;
            assert!(matches!(&refused, Err(Error::Overtaken(_))), "{refused:?}");
            Ended::from(Ending::InDoubt)
        };
        let told = node.engine.execute(charge("charge-1"), work).await.expect("an answer");
        assert!(!matches!(told.outcome, RequestOutcome::Replayed(_)), "{told:?}");
        assert_eq!(world.orders(), 0);
    }
}

/// The closure of the group commit is one like every other there.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_group_commit_a_panic_an_error_and_a_call_of_the_engine_concern_nobody_else() {
    let world = World::new();
    let node = world.node().await;
    let inside = node.clone();
    let work = move |attempt: Attempt| async move {
        let id = attempt.operation_id();
        let panicked = finish_in(&inside.engine, &inside.database, &attempt, move |tx| {
            pay(tx, id, true)?;
            panic!("for the test")
        });
        let panicked = panicked.await;
        assert!(matches!(&panicked, Err(Error::Panicked)), "{panicked:?}");
        let failed = finish_in(&inside.engine, &inside.database, &attempt, move |tx| {
            pay(tx, id, true)?;
            Err("no".into())
        });
        let failed = failed.await;
        assert!(matches!(&failed, Err(Error::Work(_))), "{failed:?}");
        assert!(ran(&inside.order("order-1").await.expect("a neighbour runs")));
        let (runtime, node) = (tokio::runtime::Handle::current(), inside.clone());
        let finished = finish_in(&inside.engine, &inside.database, &attempt, move |tx| {
            let refused = runtime.block_on(node.order("order-2"));
            assert!(matches!(&refused, Err(Error::Engine(semel::Error::InsideLocalWork))), "{refused:?}");
            pay(tx, id, true)
        });
        finished.await.expect("committed");
        Ended::from(Ending::InDoubt)
    };
    let told = node.engine.execute(charge("charge-1"), work).await.expect("an answer");
    assert!(ran(&told) && body(&told) == "charged", "{told:?}");
    assert_eq!((world.orders(), world.records()), (2, 2));
    world.assert_sound(&node).await;
}

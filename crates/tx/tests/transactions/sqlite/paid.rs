//! Outcomes of external effects, stored with the resulting change: in the store's group commit, and in a
//! transaction on the application's own connection.

use super::own::pool;
use super::world::{Events, Node, World, body, intent_of, ran};
use rusqlite::{Connection, params};
use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::{
    Attempt, ExecuteResponse, Identity, Intent, Key, Operation, RequestOutcome, Scope, WorkResult, payload,
};
use semel_tx::sqlite::rusqlite;
use semel_tx::sqlite::{finish_in, own};
use semel_tx::{BoxError, Error, LocalEnding};
use sqlx::SqlitePool;
use std::sync::mpsc;
use std::time::Duration;

/// Where the outcome is stored.
#[derive(Debug, Clone)]
pub(crate) enum CommitMode {
    GroupCommit,
    OwnConnection(SqlitePool),
}

async fn commit_modes(world: &World) -> [CommitMode; 2] {
    world.node().await.engine.store_id().await.expect("the store has an id");
    [CommitMode::GroupCommit, CommitMode::OwnConnection(pool(world, 2).await)]
}

const PAID: &str = "INSERT INTO orders (id, item) VALUES (?1, 'PAID')";
/// Violates a foreign key, which SQLite reports only at the commit.
const VIOLATION: &str = "INSERT INTO addresses VALUES ('nobody')";

pub(crate) fn charge(key: &str) -> Intent {
    intent_of(Class::External, key, "5")
}

fn charged() -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"))
}

fn pay(tx: &Connection, id: OperationId, is_valid: bool) -> Result<LocalEnding, BoxError> {
    tx.execute(PAID, params![id.to_string()])?;
    if !is_valid {
        tx.execute(VIOLATION, [])?;
    }
    Ok(charged())
}

impl CommitMode {
    /// Pays the order, and ends the attempt.
    pub(crate) async fn finish(&self, node: &Node, attempt: &Attempt, is_valid: bool) -> Result<(), Error> {
        let id = attempt.operation_id();
        match self {
            Self::GroupCommit => {
                finish_in(&node.engine, &node.database, attempt, move |tx| pay(tx, id, is_valid)).await
            }
            Self::OwnConnection(pool) => {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
                let paid = sqlx::query(PAID).bind(id.to_string());
                paid.execute(&mut *transaction).await.map_err(Error::Database)?;
                if !is_valid {
                    sqlx::query(VIOLATION).execute(&mut *transaction).await.expect("not checked yet");
                }
                own::finish_in(&node.engine, transaction, attempt, charged()).await?.commit().await
            }
        }
    }

    /// Charges, and stores that together with the order. The first `invalid_tries` of `tries` fail; ends in
    /// doubt if all do.
    async fn charge_and_pay(
        &self,
        node: &Node,
        key: &str,
        invalid_tries: u32,
        tries: u32,
    ) -> ExecuteResponse {
        let (mode, node, engine) = (self.clone(), node.clone(), node.engine.clone());
        let work = move |attempt: Attempt| async move {
            for tried in 0..tries {
                match mode.finish(&node, &attempt, tried >= invalid_tries).await {
                    // The transaction has decided the ending, whatever is returned from here on.
                    Ok(()) => return WorkResult::from(Ending::NotApplied(None)),
                    Err(Error::Violated | Error::Database(_)) => attempt.check().expect("still owned"),
                    Err(other) => panic!("{mode:?}: {other}"),
                }
            }
            WorkResult::from(Ending::InDoubt)
        };
        engine.execute(charge(key), work).await.expect("an answer")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_and_the_change_that_follows_commit_together() {
    let world = World::new();
    for (number, mode) in (1..).zip(commit_modes(&world).await) {
        let events = Events::default();
        let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
        let key = format!("charge-{number}");
        let answer = mode.charge_and_pay(&node, &key, 0, 1).await;
        assert!(ran(&answer) && body(&answer) == "charged", "{mode:?}: {answer:?}");
        let again = mode.charge_and_pay(&world.node().await, &key, 0, 1).await;
        assert!(!ran(&again) && body(&again) == "charged", "{mode:?}");
        assert_eq!((world.orders(), world.records()), (number, number), "{mode:?}");
        assert_eq!(["Finished", "Fenced", "LeaseLost"].map(|name| events.of(name)), [1, 0, 0], "{mode:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_still_owned_after_a_rollback() {
    let world = World::new();
    let node = world.node().await;
    for (number, mode) in (1..).zip(commit_modes(&world).await) {
        let answer = mode.charge_and_pay(&node, &format!("charge-{number}"), 2, 3).await;
        assert!(ran(&answer) && body(&answer) == "charged", "{mode:?}: {answer:?}");
        assert_eq!((world.orders(), world.records()), (number, number), "{mode:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finish_given_up_is_in_doubt_and_changes_nothing() {
    for mode in 0..2 {
        let world = World::new();
        let (node, mode) = (world.node().await, &commit_modes(&world).await[mode]);
        let answer = mode.charge_and_pay(&node, "charge-1", 2, 2).await;
        let RequestOutcome::Ran(told_ran) = &answer.outcome else { panic!("{mode:?}: {answer:?}") };
        assert!(matches!(told_ran.ending, Ending::InDoubt), "{mode:?}");
        assert_eq!(world.record(&node.engine, &answer).await.state_name(), StateName::Unknown, "{mode:?}");
        assert_eq!(world.orders(), 0, "{mode:?}");
        world.assert_sound(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_finish_leaves_nothing_and_resumes_lease_renewal() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    node.engine.store_id().await.expect("the store has an id");
    let short = Policy::new(Class::External).with(|policy| policy.lease = Duration::from_secs(18));
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
        // Longer than a third of the lease, so that a renewal waits for the file. It gives up, and the finish continues.
        tokio::time::sleep(Duration::from_millis(6_300)).await;
        let finish = own::finish_in(&inside.engine, transaction, &attempt, charged()).await;
        let (before, finish) = (entry(), finish.expect("written"));
        drop(finish);
        for _ in 0..200 {
            if entry() != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(entry() != before, "renewed again");
        attempt.check().expect("still owned");
        CommitMode::OwnConnection(pool).finish(&inside, &attempt, true).await.expect("committed");
        WorkResult::from(Ending::InDoubt)
    };
    let answer = node.engine.execute(intent, work).await.expect("an answer");
    assert!(ran(&answer) && body(&answer) == "charged", "{answer:?}");
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_settled_by_another_changes_nothing() {
    for mode in 0..2 {
        let world = World::new();
        let (node, mode) = (world.node().await, commit_modes(&world).await[mode].clone());
        let (inside, path) = (node.clone(), world.path());
        // A panic of the work would be its outcome, and not the test's.
        let (sender, receiver) = mpsc::channel();
        let work = move |attempt: Attempt| async move {
            // The record belongs to another attempt.
            let admin = Connection::open(&path).expect("the file opens");
            admin.busy_timeout(Duration::from_secs(10)).expect("set");
            admin.execute("UPDATE semel_records SET entry = entry || x'00'", []).expect("changed");
            let refused = mode.finish(&inside, &attempt, true).await;
            sender.send(refused).expect("the test waits for it");
            WorkResult::from(Ending::InDoubt)
        };
        let answer = node.engine.execute(charge("charge-1"), work).await.expect("an answer");
        let refused = receiver.recv().expect("it was tried");
        assert!(matches!(&refused, Err(Error::Overtaken(_))), "{refused:?}");
        assert!(!matches!(answer.outcome, RequestOutcome::Replayed(_)), "{answer:?}");
        assert_eq!(world.orders(), 0);
    }
}

/// The closure follows the same rules as all work in the group commit.
#[tokio::test(flavor = "multi_thread")]
async fn failures_in_a_group_commit_affect_only_their_own_work() {
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
        WorkResult::from(Ending::InDoubt)
    };
    let answer = node.engine.execute(charge("charge-1"), work).await.expect("an answer");
    assert!(ran(&answer) && body(&answer) == "charged", "{answer:?}");
    assert_eq!((world.orders(), world.records()), (2, 2));
    world.assert_sound(&node).await;
}

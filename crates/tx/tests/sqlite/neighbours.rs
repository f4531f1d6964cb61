//! Work that misbehaves, and innocent neighbours in the same group commit.

use crate::world::{Events, Node, World, body, created, insert_order, intent, intent_of, ordering, ran};
use rusqlite::Connection;
use semel::core::store::{Setting, Store as _};
use semel::{Answer, Class};
use semel_tx::sqlite::rusqlite;
use semel_tx::{BoxError, Error, Local, LocalEnding};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

type Worked = Result<LocalEnding, BoxError>;

/// What became of everybody in one batch.
struct Batch {
    villain: Result<Answer, Error>,
    /// How often the work of the neighbours was run: the one that came first, and the one that came last.
    neighbours_ran: [usize; 2],
}

/// Runs `villain` between two neighbours in one batch, and asserts that those are committed as if it were not there.
async fn batch(
    world: &World,
    node: &Node,
    villain: impl Fn(&Connection, Local) -> Worked + Send + Sync + 'static,
) -> Batch {
    let (begin, begun) = mpsc::channel::<()>();
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    // Keeps the thread that writes busy until the others wait for it.
    let gate = tokio::spawn({
        let node = node.clone();
        async move {
            let waiting = move |tx: &Connection, local| {
                let _ = begin.send(());
                let _ = gone.lock().expect("whole").recv_timeout(Duration::from_secs(20));
                ordering(tx, local)
            };
            node.transact(intent("gate"), waiting).await
        }
    });
    tokio::task::spawn_blocking(move || begun.recv().expect("the gate is reached")).await.expect("no panic");
    let ran_of = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let neighbour = |number: usize| {
        let (node, count) = (node.clone(), Arc::clone(&ran_of[number]));
        let counted = move |tx: &Connection, local: Local| {
            count.fetch_add(1, Ordering::Relaxed);
            ordering(tx, local)
        };
        tokio::spawn(async move { node.transact(intent(&format!("neighbour-{number}")), counted).await })
    };
    let pause = || tokio::time::sleep(Duration::from_millis(60));
    let first = neighbour(0);
    pause().await;
    let villain = tokio::spawn({
        let node = node.clone();
        async move { node.transact(intent("villain"), villain).await }
    });
    pause().await;
    // The store's own writes are neighbours too.
    let setting = tokio::spawn({
        let store = Arc::clone(&node.store);
        async move { store.set("neighbour", None, Some(b"1")).await }
    });
    let last = neighbour(1);
    pause().await;
    go.send(()).expect("the gate waits");
    gate.await.expect("no panic").expect("the gate is an order like any other");
    for neighbour in [first, last] {
        let answer = neighbour.await.expect("no panic").expect("a neighbour has nothing to do with it");
        assert!(ran(&answer) && body(&answer) == "created", "{answer:?}");
    }
    let set = setting.await.expect("no panic").expect("the store's own write has nothing to do with it");
    assert_eq!(set, Setting::Done);
    let villain = villain.await.expect("no panic");
    let committed = i64::from(villain.is_ok());
    assert_eq!((world.orders(), world.records()), (3 + committed, 3 + committed), "{villain:?}");
    assert_eq!(world.number("SELECT count(*) FROM semel_settings WHERE name = 'neighbour'"), 1);
    world.assert_sound(node).await;
    Batch { villain, neighbours_ran: ran_of.map(|count| count.load(Ordering::Relaxed)) }
}

/// The same key, with work that behaves: nothing is left of what came before.
async fn retried(world: &World, node: &Node) {
    assert!(ran(&node.order("villain").await.expect("it runs")));
    assert_eq!((world.orders(), world.records()), (4, 4));
    world.assert_sound(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_undoes_its_own_savepoint_only() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let batch = batch(&world, &node, |tx, local| {
        insert_order(tx, local)?;
        panic!("for the test")
    });
    let batch = batch.await;
    assert!(matches!(batch.villain, Err(Error::Panicked)), "{:?}", batch.villain);
    assert_eq!((batch.neighbours_ran, events.of("Panicked")), ([1, 1], 1), "nobody had to be run again");
    retried(&world, &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_reach_beyond_the_savepoint_are_not_authorized() {
    for denied in [
        "BEGIN",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE semel_work",
        "ROLLBACK TO semel_work",
        "ATTACH ':memory:' AS other",
        "PRAGMA synchronous = OFF",
        "PRAGMA foreign_keys = OFF",
        "CREATE TEMP TABLE t (id)",
        "DELETE FROM semel_records",
        "UPDATE semel_counts SET rows = 0",
    ] {
        let world = World::new();
        let node = world.node().await;
        let batch = batch(&world, &node, move |tx, local| {
            insert_order(tx, local)?;
            tx.execute_batch(denied)?;
            Ok(created(local))
        });
        let villain = batch.await.villain;
        assert!(
            matches!(&villain, Err(Error::Work(error)) if error.to_string().contains("not authorized")),
            "{denied}: {villain:?}"
        );
        retried(&world, &node).await;
    }
}

/// A conflict clause ends the transaction without being asked. What follows it must not become durable by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_of_everything_is_noticed_and_the_others_are_written_again() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let batch = batch(&world, &node, |tx, local| {
        let refused = tx.execute("INSERT OR ROLLBACK INTO customers VALUES ('ada')", []);
        assert!(refused.is_err(), "ada is a customer");
        // Nothing is open any more: this would be a transaction of its own.
        let alone = insert_order(tx, local);
        assert!(alone.is_err(), "{alone:?}");
        Ok(created(local))
    });
    let batch = batch.await;
    assert!(matches!(batch.villain, Err(Error::TransactionEnded(_))), "{:?}", batch.villain);
    assert_eq!(batch.neighbours_ran, [2, 1], "the first one was rolled back with it, and run again");
    assert_eq!(events.of("Unfinished"), 1);
    retried(&world, &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_violation_undoes_its_own_savepoint_only() {
    let world = World::new();
    let node = world.node().await;
    let batch = batch(&world, &node, |tx, local| {
        insert_order(tx, local)?;
        tx.execute("INSERT INTO addresses VALUES ('nobody')", [])?;
        Ok(created(local))
    });
    let batch = batch.await;
    let violated = &batch.villain;
    assert!(matches!(violated, Err(error @ Error::Violated) if !error.is_retryable()), "{violated:?}");
    assert_eq!(world.number("SELECT count(*) FROM addresses"), 0);
    assert_eq!(batch.neighbours_ran, [1, 1], "nobody had to be run again");
    retried(&world, &node).await;
}

/// What a retry alone would find violated is not committed, whoever comes next in the batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_cannot_repair_a_deferred_violation() {
    let world = World::new();
    // The third order is that of the neighbour that comes last.
    let repair = "CREATE TRIGGER repair AFTER INSERT ON orders WHEN (SELECT count(*) FROM orders) = 3 \
         BEGIN INSERT INTO customers VALUES ('nobody'); END";
    world.admin().execute_batch(repair).expect("a trigger");
    let node = world.node().await;
    let batch = batch(&world, &node, |tx, local| {
        tx.execute("INSERT INTO addresses VALUES ('nobody')", [])?;
        Ok(created(local))
    });
    let batch = batch.await;
    assert!(matches!(&batch.villain, Err(Error::Violated)), "{:?}", batch.villain);
    assert_eq!(
        world.number("SELECT count(*) FROM customers WHERE name = 'nobody'"),
        1,
        "the neighbour ran after it"
    );
    assert_eq!(world.number("SELECT count(*) FROM addresses"), 0);
    retried(&world, &node).await;
}

/// Enough steps for a minute.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_over_the_limit_is_interrupted_and_the_batch_runs_without_it() {
    for (endless, neighbours_ran) in [
        // What only reads is interrupted in its savepoint; what writes takes the transaction with it.
        (format!("{ENDLESS} SELECT max(i) FROM n"), [1, 1]),
        (format!("{ENDLESS} INSERT INTO orders SELECT i, 'endless' FROM n"), [2, 1]),
    ] {
        let (world, events) = (World::new(), Events::default());
        let mut node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
        node.database = node.database.limit(Duration::from_millis(100));
        let batch = batch(&world, &node, move |tx, local| {
            insert_order(tx, local)?;
            // Whatever it makes of it.
            drop(tx.execute_batch(&endless));
            Ok(created(local))
        });
        let batch = batch.await;
        assert!(matches!(batch.villain, Err(Error::Overran)), "{:?}", batch.villain);
        assert_eq!((batch.neighbours_ran, events.of("Overran")), (neighbours_ran, 1));
        retried(&world, &node).await;
    }
}

/// The thread that the engine's own writes wait for cannot wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_refuses_to_be_called_from_inside() {
    let world = World::new();
    let node = world.node().await;
    let (inside, runtime) = (node.clone(), tokio::runtime::Handle::current());
    let batch = batch(&world, &node, move |tx, local| {
        insert_order(tx, local)?;
        let another = runtime.block_on(inside.order("another"));
        assert!(matches!(&another, Err(Error::Engine(semel::Error::InsideLocalWork))), "{another:?}");
        let external = intent_of(Class::External, "external", "5");
        let claimed = runtime.block_on(inside.engine.claim(&external));
        assert!(matches!(&claimed, Err(semel::Error::InsideLocalWork)), "the engine took it");
        let set = runtime.block_on(inside.store.set("a", None, Some(b"1")));
        assert!(set.is_err(), "the store took it: {set:?}");
        Ok(created(local))
    });
    let batch = batch.await;
    assert!(matches!(&batch.villain, Ok(answer) if ran(answer)), "{:?}", batch.villain);
}

/// What takes long without breaking a rule does not hold up more than its own batch.
#[tokio::test(flavor = "multi_thread")]
async fn slow_work_leaves_the_rest_to_the_next_batch() {
    let world = World::new();
    let node = world.node().await;
    let mut calls = tokio::task::JoinSet::new();
    for key in 0..8 {
        let node = node.clone();
        calls.spawn(async move {
            let slow = |tx: &Connection, local: Local| {
                std::thread::sleep(Duration::from_millis(150));
                ordering(tx, local)
            };
            node.transact(intent(&format!("order-{key}")), slow).await.map(|answer| ran(&answer))
        });
    }
    assert!(calls.join_all().await.into_iter().all(|ran| matches!(ran, Ok(true))));
    assert_eq!((world.orders(), world.records()), (8, 8));
    world.assert_sound(&node).await;
}

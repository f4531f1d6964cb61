//! Faulty work, and other work in the same group commit.

use super::world::{Events, Node, World, body, created, insert_order, intent, intent_of, ordering, ran};
use rusqlite::Connection;
use semel::core::store::{Setting, Store as _};
use semel::{Class, RecordedOutcome};
use semel_tx::sqlite::rusqlite;
use semel_tx::{BoxError, Error, Local, LocalEnding};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

type WorkResult = Result<LocalEnding, BoxError>;

/// The results of one batch.
struct Batch {
    faulty: Result<RecordedOutcome, Error>,
    /// How often the work of the neighbours ran: the first, and the last.
    neighbours_ran: [usize; 2],
}

/// Runs `faulty` between two neighbours in one batch, and asserts that they are committed as if it did not
/// exist.
async fn batch(
    world: &World,
    node: &Node,
    faulty: impl Fn(&Connection, Local) -> WorkResult + Send + Sync + 'static,
) -> Batch {
    let (begin, begun) = mpsc::channel::<()>();
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    // Keeps the writer thread busy until the others wait for it.
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
    let pause = || tokio::time::sleep(Duration::from_millis(250));
    let first = neighbour(0);
    pause().await;
    let faulty = tokio::spawn({
        let node = node.clone();
        async move { node.transact(intent("faulty"), faulty).await }
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
        let answer = neighbour.await.expect("no panic").expect("a neighbour is not affected");
        assert!(ran(&answer) && body(&answer) == "created", "{answer:?}");
    }
    let set = setting.await.expect("no panic").expect("the store's own write is not affected");
    assert_eq!(set, Setting::Done);
    let faulty = faulty.await.expect("no panic");
    let committed = i64::from(faulty.is_ok());
    assert_eq!((world.orders(), world.records()), (3 + committed, 3 + committed), "{faulty:?}");
    assert_eq!(world.number("SELECT count(*) FROM semel_settings WHERE name = 'neighbour'"), 1);
    world.assert_sound(node).await;
    Batch { faulty, neighbours_ran: ran_of.map(|count| count.load(Ordering::Relaxed)) }
}

/// The same key, with correct work: nothing of the earlier run remains.
async fn retried(world: &World, node: &Node) {
    assert!(ran(&node.order("faulty").await.expect("it runs")));
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
    assert!(matches!(batch.faulty, Err(Error::Panicked)), "{:?}", batch.faulty);
    assert_eq!((batch.neighbours_ran, events.of("Panicked")), ([1, 1], 1), "nothing had to be run again");
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
        let faulty = batch.await.faulty;
        assert!(
            matches!(&faulty, Err(Error::Work(error)) if error.to_string().contains("not authorized")),
            "{denied}: {faulty:?}"
        );
        retried(&world, &node).await;
    }
}

/// A conflict clause ends the transaction without being asked. Later writes must not become durable
/// separately.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_rollback_is_noticed_and_the_others_rewritten() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let batch = batch(&world, &node, |tx, local| {
        let refused = tx.execute("INSERT OR ROLLBACK INTO customers VALUES ('ada')", []);
        assert!(refused.is_err(), "ada is a customer");
        // No transaction is open any more: this would be a separate one.
        let alone = insert_order(tx, local);
        assert!(alone.is_err(), "{alone:?}");
        Ok(created(local))
    });
    let batch = batch.await;
    assert!(matches!(batch.faulty, Err(Error::TransactionEnded(_))), "{:?}", batch.faulty);
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
    let violated = &batch.faulty;
    assert!(matches!(violated, Err(error @ Error::Violated) if !error.is_retryable()), "{violated:?}");
    assert_eq!(world.number("SELECT count(*) FROM addresses"), 0);
    assert_eq!(batch.neighbours_ran, [1, 1], "nothing had to be run again");
    retried(&world, &node).await;
}

/// Work with a violation is not committed, even if later work in the batch would repair it.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_cannot_repair_a_deferred_violation() {
    let world = World::new();
    // The third order is that of the last neighbour.
    let repair = "CREATE TRIGGER repair AFTER INSERT ON orders WHEN (SELECT count(*) FROM orders) = 3 \
         BEGIN INSERT INTO customers VALUES ('nobody'); END";
    world.admin().execute_batch(repair).expect("a trigger");
    let node = world.node().await;
    let batch = batch(&world, &node, |tx, local| {
        tx.execute("INSERT INTO addresses VALUES ('nobody')", [])?;
        Ok(created(local))
    });
    let batch = batch.await;
    assert!(matches!(&batch.faulty, Err(Error::Violated)), "{:?}", batch.faulty);
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
async fn a_statement_over_the_limit_is_interrupted_alone() {
    for (endless, neighbours_ran) in [
        // A statement that only reads is interrupted in its savepoint; one that writes ends the transaction.
        (format!("{ENDLESS} SELECT max(i) FROM n"), [1, 1]),
        (format!("{ENDLESS} INSERT INTO orders SELECT i, 'endless' FROM n"), [2, 1]),
    ] {
        let (world, events) = (World::new(), Events::default());
        let mut node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
        node.database = node.database.limit(Duration::from_millis(100));
        let batch = batch(&world, &node, move |tx, local| {
            insert_order(tx, local)?;
            // Whatever it does with the error.
            drop(tx.execute_batch(&endless));
            Ok(created(local))
        });
        let batch = batch.await;
        assert!(matches!(batch.faulty, Err(Error::Overran)), "{:?}", batch.faulty);
        assert_eq!((batch.neighbours_ran, events.of("Overran")), (neighbours_ran, 1));
        retried(&world, &node).await;
    }
}

/// The engine's writes wait for this thread, so it cannot wait for them.
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
    assert!(matches!(&batch.faulty, Ok(answer) if ran(answer)), "{:?}", batch.faulty);
}

/// Slow work that breaks no rule delays only its own batch.
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

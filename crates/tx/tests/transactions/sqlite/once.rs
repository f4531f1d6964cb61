//! One effect per command, from any number of callers and retries.

use super::world::{
    Events, Node, World, body, failed, insert_order, intent, intent_of, intent_with, ordering, ran, refused,
};
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel::{Class, Engine, RefusalReason, Settings, memory};
use semel_tx::{Error, LocalEnding};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// A node for many calls at once: on a busy machine, all of them take longer than a single one may.
async fn patient_node(world: &World) -> Node {
    let timeout = Duration::from_secs(50);
    let settings = Settings { store_timeout: timeout, request_timeout: timeout, ..Settings::default() };
    Node::on(&world.path(), |builder| builder.settings(settings)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_and_its_record_are_committed_together_and_replayed() {
    let world = World::new();
    let node = world.node().await;
    let first = node.order("order-1").await.expect("it runs");
    let again = node.order("order-1").await.expect("it is replayed");
    assert!(ran(&first) && !ran(&again));
    assert_eq!((body(&again), again.operation_id), ("created".to_owned(), first.operation_id));
    let record = node.engine.look_up(first.operation_id).await.expect("it is stored").record;
    assert_eq!(
        (record.version(), record.state_name()),
        (1, StateName::Succeeded),
        "one write for the whole command"
    );
    let other = node.transact(intent_with("order-1", "6"), ordering).await;
    assert_eq!(refused(other), RefusalReason::Mismatch);
    assert_eq!((world.orders(), world.records()), (1, 1));
    // Another process finds it.
    let elsewhere = world.node().await.order("order-1").await.expect("it is replayed");
    assert!(!ran(&elsewhere) && body(&elsewhere) == "created");
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_leaves_nothing_and_the_next_call_runs() {
    let world = World::new();
    let events = Events::default();
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let failed = node.transact(intent("order-1"), |tx, local| {
        insert_order(tx, local)?;
        Err("out of stock, for now".into())
    });
    let failed = failed.await;
    assert!(
        matches!(&failed, Err(Error::Work(error)) if error.to_string().contains("out of stock")),
        "{failed:?}"
    );
    assert_eq!((world.orders(), world.records(), events.of("RolledBack")), (0, 0, 1));
    assert!(ran(&node.order("order-1").await.expect("it runs")));
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_committed_without_what_the_work_wrote() {
    let world = World::new();
    let node = world.node().await;
    let refusing = |tx: &_, local| {
        insert_order(tx, local)?;
        Ok(LocalEnding::Refused(Outcome::http(422, [("a", "b")], "no such item")))
    };
    let refused = failed(node.transact(intent("order-1"), refusing).await);
    assert!(ran(&refused) && body(&refused) == "no such item");
    let again = failed(node.order("order-1").await);
    assert!(!ran(&again) && body(&again) == "no such item");
    assert_eq!((world.orders(), world.records()), (0, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_duplicates_have_one_effect_and_are_all_answered() {
    let world = World::new();
    let node = patient_node(&world).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..10_000 {
        let (node, runs) = (node.clone(), Arc::clone(&runs));
        calls.spawn(async move {
            let patient = intent("order-1").waiting(Duration::from_secs(30));
            let counted = move |tx: &_, local| {
                runs.fetch_add(1, Ordering::Relaxed);
                ordering(tx, local)
            };
            node.transact(patient, counted).await.map(|answer| (ran(&answer), body(&answer)))
        });
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok((_, body)) if body == "created")));
    assert_eq!(answers.iter().flatten().filter(|(ran, _)| *ran).count(), 1);
    assert_eq!((world.orders(), world.records(), runs.load(Ordering::Relaxed)), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_with_the_same_keys_run_each_command_once() {
    let world = World::new();
    let nodes = [patient_node(&world).await, patient_node(&world).await];
    let mut calls = JoinSet::new();
    for key in 0..200 {
        for node in nodes.iter().cycle().take(6) {
            let node = node.clone();
            let patient = intent(&format!("order-{key}")).waiting(Duration::from_secs(30));
            calls.spawn(async move {
                node.transact(patient, ordering).await.map(|answer| (ran(&answer), body(&answer)))
            });
        }
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok((_, body)) if body == "created")), "{answers:?}");
    assert_eq!(answers.iter().flatten().filter(|(ran, _)| *ran).count(), 200);
    assert_eq!((world.orders(), world.records()), (200, 200));
    assert_eq!(world.number("SELECT count(DISTINCT id) FROM orders"), 200);
    world.assert_sound(&nodes[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_commands_share_the_commit() {
    let world = World::new();
    let node = patient_node(&world).await;
    // The log does not show how often the file's change counter moved, but its frames show how often it was
    // synced.
    let mut calls = JoinSet::new();
    for key in 0..400 {
        let node = node.clone();
        calls.spawn(async move { node.order(&format!("order-{key}")).await.map(|answer| ran(&answer)) });
    }
    assert!(calls.join_all().await.into_iter().all(|ran| matches!(ran, Ok(true))));
    let mut frames = 0;
    // The header of a frame has the size of the file if and only if it ends a transaction.
    let log = std::fs::read(world.path().with_extension("db-wal")).expect("the log is there");
    let mut commits = 0;
    for frame in log.get(32..).unwrap_or_default().chunks(24 + 4096) {
        frames += 1;
        commits += usize::from(frame.len() > 8 && frame[4..8] != [0; 4]);
    }
    assert!(frames > 0 && commits < 200, "{commits} commits in {frames} frames for 400 commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_another_engine_is_refused() {
    let (world, other) = (World::new(), World::new());
    let (node, elsewhere) = (world.node().await, other.node().await);
    elsewhere.engine.store_id().await.expect("it has one");
    let crossed = Node { database: elsewhere.database.clone(), ..node.clone() };
    let refused = crossed.order("order-1").await;
    assert!(matches!(&refused, Err(Error::OtherStore { pool: Some(_), .. })), "{refused:?}");
    let in_memory = Engine::builder(Arc::new(memory::Store::default())).build().await.expect("an engine");
    let refused = Node { engine: in_memory, ..node }.order("order-1").await;
    assert!(matches!(&refused, Err(Error::OtherStore { .. })), "{refused:?}");
    assert_eq!((world.orders(), world.records(), other.orders()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_class_local_runs_in_a_transaction() {
    let world = World::new();
    let node = world.node().await;
    let refused = node.transact(intent_of(Class::External, "order-1", "5"), ordering).await;
    assert!(matches!(&refused, Err(Error::Engine(semel::Error::NotLocalClass(_)))), "{refused:?}");
}

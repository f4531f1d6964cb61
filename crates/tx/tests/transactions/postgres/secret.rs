//! While the hashing secret is being replaced, the old ID decides.

use super::world::{World, body, intent, ran};
use semel::secrets::{Bounded, Phase, RefreshSettings, rotation};
use semel::{Engine, Settings, SystemClock, SystemRandom};
use semel_tx::postgres::{Database, transact};
use std::time::Duration;
use tokio::task::JoinSet;

/// A node that checks for a new secret this often.
async fn node(world: &World, refresh_every: Duration) -> Engine {
    let refresh = RefreshSettings {
        refresh_every,
        good_for: Duration::from_secs(4),
        in_flight: Duration::from_secs(5),
    };
    let settings = Settings { store_timeout: Duration::from_secs(4), ..Settings::default() };
    let builder = world.builder().await.settings(settings).secret_refresh(refresh);
    builder.build().await.expect("an engine")
}

fn bounded(engine: &Engine) -> Bounded<'_> {
    Bounded::new(&**engine.store(), &SystemClock, Duration::from_secs(10))
}

async fn advance(engine: &Engine, to: Phase) {
    let store = bounded(engine);
    for _ in 0..800 {
        match rotation::advance(store).await {
            Ok(phase) => return assert_eq!(phase, to),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the nodes did not confirm");
}

/// Sends every key from every node at once, and asserts that each had one effect. Returns how many ran.
async fn storm(world: &World, nodes: &[&Engine], database: &Database, keys: std::ops::Range<u32>) -> usize {
    let mut calls = JoinSet::new();
    for key in keys {
        for node in nodes {
            let (node, database, work) = ((*node).clone(), database.clone(), world.ordering());
            let intent = intent(&format!("order-{key}")).waiting(Duration::from_secs(20));
            calls.spawn(async move {
                loop {
                    match transact(&node, &database, intent.clone(), work.clone()).await {
                        // A node that is behind refuses claims for a moment.
                        Err(error) if error.is_retryable() => {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                        answer => return answer,
                    }
                }
            });
        }
    }
    let answers = calls.join_all().await;
    let run = answers.iter().filter(|answer| ran(answer.as_ref().expect("an answer"))).count();
    assert!(answers.iter().flatten().all(|answer| body(answer) == "created"));
    let doubles = "SELECT count(*) FROM (SELECT id FROM {s}.orders GROUP BY id HAVING count(*) > 1) AS d";
    assert_eq!(world.number(doubles).await, 0);
    run
}

/// Counts the markers of moved commands, without the store's own row.
const MOVED: &str = "SELECT count(*) FROM {s}.records WHERE state = 7 AND operation_id <> 'f1139ada-967a-84cd-924e-7dd1fb40cad4'";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_run_each_command_once_during_a_secret_change() {
    let world = World::new().await;
    let quick = node(&world, Duration::from_millis(50)).await;
    let slow = node(&world, Duration::from_millis(1500)).await;
    let database = world.database(8).await;
    assert_eq!(storm(&world, &[&quick, &slow], &database, 0..10).await, 10);
    let store = bounded(&quick);
    rotation::announce(store, rotation::Next::Generated, &SystemRandom).await.expect("announced");
    // The quick node knows of it at once, the slow one does not: each claims under the old ID.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(storm(&world, &[&quick, &slow], &database, 5..30).await, 20);
    let before = world.number(MOVED).await;
    assert_eq!(before, 0, "nothing has moved yet");
    advance(&quick, Phase::Moving).await;
    let mut orders = 60;
    while world.number(MOVED).await == 0 {
        assert!(orders < 10_000, "no command moves");
        assert_eq!(storm(&world, &[&quick], &database, orders..orders + 1).await, 1);
        orders += 1;
    }
    // The quick one writes markers, and the slow one does not know that yet.
    assert_eq!(storm(&world, &[&quick, &slow], &database, 20..60).await, 30);
    assert_eq!(world.orders().await, i64::from(orders));
    let records = world.number("SELECT count(*) FROM {s}.records WHERE state = 2").await;
    assert_eq!(records, i64::from(orders), "one record for each command, under one of its ids");
}

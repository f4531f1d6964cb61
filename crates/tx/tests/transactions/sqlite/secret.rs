//! While the hashing secret is being replaced, the old ID decides.

use super::world::{Node, World, body, intent, ordering, ran};
use semel::secrets::{Bounded, Phase, RefreshSettings, rotation};
use semel::{Engine, Settings, SystemClock, SystemRandom};
use std::time::Duration;
use tokio::task::JoinSet;

/// A node that checks for a new secret this often.
async fn node(world: &World, refresh_every: Duration) -> Node {
    let refresh = RefreshSettings {
        refresh_every,
        good_for: Duration::from_secs(4),
        in_flight: Duration::from_secs(5),
    };
    let settings = Settings { store_timeout: Duration::from_secs(4), ..Settings::default() };
    Node::on(&world.path(), |builder| builder.settings(settings).secret_refresh(refresh)).await
}

fn bounded(engine: &Engine) -> Bounded<'_> {
    Bounded::new(&**engine.store(), &SystemClock, Duration::from_secs(10))
}

async fn advance(engine: &Engine, to: Phase) {
    for _ in 0..800 {
        match rotation::advance(bounded(engine)).await {
            Ok(phase) => return assert_eq!(phase, to),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the nodes did not confirm");
}

/// Sends every key from every node at once, and asserts that each had one effect. Returns how many ran.
async fn storm(world: &World, nodes: &[&Node], keys: std::ops::Range<u32>) -> usize {
    let mut calls = JoinSet::new();
    for key in keys {
        for node in nodes {
            let node = (*node).clone();
            calls.spawn(async move {
                loop {
                    let patient = intent(&format!("order-{key}")).waiting(Duration::from_secs(20));
                    match node.transact(patient, ordering).await {
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
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM orders"), 0);
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_run_each_command_once_during_a_secret_change() {
    let world = World::new();
    let quick = node(&world, Duration::from_millis(50)).await;
    let slow = node(&world, Duration::from_millis(1500)).await;
    assert_eq!(storm(&world, &[&quick, &slow], 0..10).await, 10);
    rotation::announce(bounded(&quick.engine), rotation::Next::Generated, &SystemRandom)
        .await
        .expect("announced");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(storm(&world, &[&quick, &slow], 5..30).await, 20);
    assert_eq!(
        world.number("SELECT count(*) FROM semel_records WHERE state = 7"),
        0,
        "nothing has moved yet"
    );
    advance(&quick.engine, Phase::Moving).await;
    let mut orders = 80;
    while world.number("SELECT count(*) FROM semel_records WHERE state = 7") == 0 {
        assert!(orders < 10_000, "no command moves");
        assert_eq!(storm(&world, &[&quick], orders..orders + 1).await, 1);
        orders += 1;
    }
    assert_eq!(storm(&world, &[&quick, &slow], 20..60).await, 30);
    // A batch of either node may have won all of them. The quick one has these alone.
    assert_eq!(storm(&world, &[&quick], 55..70).await, 10);
    assert!(world.number("SELECT count(*) FROM semel_records WHERE state = 7") >= 10, "commands have moved");
    assert_eq!(storm(&world, &[&quick, &slow], 50..80).await, 10);
    assert_eq!(world.orders(), i64::from(orders));
    let records = world.number("SELECT count(*) FROM semel_records WHERE state = 2");
    assert_eq!(records, i64::from(orders), "one record for each command, under one of its ids");
    world.assert_sound(&quick).await;
}

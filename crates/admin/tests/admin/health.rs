//! Probes and scrapers.

use super::world::World;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn liveness_does_not_depend_on_the_store() {
    let world = World::new().await;
    assert_eq!(world.get("/healthz").await.json()["alive"], true);
    world.lose_store().await;
    assert_eq!(world.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn readiness_needs_a_store_that_answers_and_a_process_that_stays() {
    let world = World::new().await;
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (200, Some(true)));
    world.draining.store(true, Ordering::SeqCst);
    let draining = world.get("/readyz").await;
    assert_eq!((draining.status, draining.json()["ready"].as_bool()), (503, Some(false)));
    assert!(draining.json()["reasons"][0].as_str().expect("a reason").contains("shutting down"));
    world.draining.store(false, Ordering::SeqCst);
    world.lose_store().await;
    // Readiness is cached for a second.
    assert_eq!(world.get("/readyz").await.status, 200);
    world.pass(Duration::from_secs(1));
    let lost = world.get("/readyz").await;
    assert_eq!(lost.status, 503);
    assert!(lost.json()["reasons"][0].as_str().expect("a reason").contains("store"));
}

#[tokio::test]
async fn metrics_are_whatever_the_process_counts() {
    let world = World::new().await;
    let metrics = world.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.text(), "idempotency_unknown{operation=\"charge\"} 1\n");
}

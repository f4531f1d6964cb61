//! The store's file is removed while the program runs.

use crate::world::{Gateway, KEY, World, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, charged};
use std::net::SocketAddr;

fn ask(number: u32) -> TestRequest {
    TestRequest::post("/charges").key(&format!("{KEY}-{number}")).json("{\"amount\":5}")
}

async fn readiness(admin: SocketAddr) -> Reply {
    TestRequest::get("/readyz").send(admin).await.expect("an answer")
}

/// How often the log reports the missing file.
fn times_logged(world: &World) -> usize {
    let file = world.scratch.file().display().to_string();
    let lines = world.log();
    let is_reported =
        // The store's own line, which a failed write repeats as its reason.
        |line: &&str| line.contains("ERROR semel_sql") && line.contains(&file) && line.contains("removed or renamed");
    lines.lines().filter(is_reported).count()
}

#[tokio::test]
async fn a_removed_store_file_stops_acknowledgements_until_a_restart() {
    let mut world = World::new(&[], charged).await;
    let admin = world.gateway.admin();
    assert!(world.send(ask(1)).await.is_acknowledged());
    assert_eq!(readiness(admin).await.status, 200);
    std::fs::remove_file(world.scratch.file()).expect("removed");
    for number in 2..5 {
        let reply = world.send(ask(number)).await;
        world.is_problem(&reply, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
    }
    assert_eq!(world.calls(), 1, "a request ran without a claim");
    let not_ready = until(async || Some(readiness(admin).await).filter(|reply| reply.status == 503)).await;
    assert!(not_ready.text().contains("not fit for use"), "{}", not_ready.text());
    assert_eq!(TestRequest::get("/healthz").send(admin).await.expect("an answer").status, 200);
    assert_eq!(times_logged(&world), 1, "{}", world.log());

    world.gateway.terminate();
    assert!(world.gateway.ended().await.success());
    world.gateway = Gateway::start(&world.scratch, world.upstream.address, &[]);
    assert!(world.send(ask(2)).await.is_acknowledged());
    assert!(world.send(ask(2)).await.is_replay());
    assert_eq!(world.calls(), 2, "the refused request ran once");
}

#[tokio::test]
async fn an_outcome_that_meets_a_removed_file_is_not_acknowledged() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script =
        move |seen: &semel_test_support::upstream::Seen| Act::After(held.clone(), Box::new(charged(seen)));
    let world = World::configured("finish_wait = \"200ms\"\n", script).await;
    let address = world.gateway.address;
    let sent = tokio::spawn(async move { ask(1).send(address).await.expect("an answer") });
    world.upstream.has_seen(1).await;
    std::fs::remove_file(world.scratch.file()).expect("removed");
    gate.open();
    let reply = sent.await.expect("no panic");
    assert_eq!((reply.status, reply.header("idempotency-stored")), (201, Some("false")), "{reply:?}");
    assert!(!reply.is_acknowledged());
}

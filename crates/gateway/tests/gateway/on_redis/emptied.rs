//! A Redis server that is emptied under two gateways.

use crate::store::StoreKind;
use crate::world::{Gateway, KEY, World, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::charged;
use std::net::SocketAddr;
use std::process::Command;

const FLAGS: [&str; 2] = ["--admin", "127.0.0.1:0"];
const KEYS: usize = 20;

fn ask(number: usize) -> TestRequest {
    TestRequest::post("/charges").key(&format!("{KEY}-{number}")).json("{\"amount\":5}")
}

async fn sent(ask: TestRequest, address: SocketAddr) -> Reply {
    ask.send(address).await.expect("an answer")
}

fn doctor(world: &World, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.args(["doctor", "--store", &world.scratch.store().url()]).args(arguments);
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn becomes_unready(admin: SocketAddr) {
    let unready = until(async || {
        Some(sent(TestRequest::get("/readyz"), admin).await).filter(|reply| reply.status == 503)
    });
    let reply = unready.await;
    assert!(reply.text().contains("has lost data"), "{}", reply.text());
}

#[tokio::test]
async fn no_acknowledged_key_runs_again_after_the_server_is_emptied() {
    let mut world = World::on(StoreKind::Redis, &FLAGS, charged).await;
    let mut other = Gateway::start(&world.scratch, world.upstream.address, &FLAGS);
    let admins = [world.gateway.admin(), other.admin()];
    for number in 0..KEYS {
        assert!(world.send(ask(number)).await.is_acknowledged());
    }
    world.scratch.store().ask("FLUSHALL");
    for number in 0..KEYS {
        let reply = sent(ask(number), other.address).await;
        world.is_problem(&reply, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
        assert!(world.send(ask(number)).await.is_replay(), "this one remembers it");
        let fresh = world.send(ask(KEYS + number)).await;
        world.is_problem(&fresh, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
    }
    assert_eq!(world.calls(), KEYS, "each ran once");
    for admin in admins {
        becomes_unready(admin).await;
    }
    let log = world.log();
    let lost: Vec<_> = log.lines().filter(|line| line.contains("the store has lost data")).collect();
    assert!(lost.iter().any(|line| line.contains("ERROR")), "{log}");
    assert!(!log.contains("hashing secret"), "the cause is the loss: {log}");
    let (is_accepted, said) = doctor(&world, &["--accept-loss", "--reason", "flushed by hand"]);
    assert!(!is_accepted && said.contains("restart every gateway"), "{said}");
    assert_eq!(world.calls(), KEYS);
}

/// One bucket is gone; the gateways continue with the others, and with all of them after the loss was accepted.
#[tokio::test]
async fn the_gateways_go_on_without_a_restart_after_a_loss_was_accepted() {
    let mut world = World::on(StoreKind::Redis, &FLAGS, charged).await;
    let admin = world.gateway.admin();
    world.scratch.store().ask("DEL {semel:7}identity");
    becomes_unready(admin).await;
    let (has_no_errors, said) = doctor(&world, &["--quick"]);
    assert!(!has_no_errors && said.contains("redis-data-lost") && said.contains("1 of 64"), "{said}");
    let (_, said) = doctor(&world, &["--accept-loss"]);
    assert!(said.contains("--reason"), "{said}");
    let (is_accepted, said) = doctor(&world, &["--accept-loss", "--reason", "deleted by hand"]);
    assert!(is_accepted && said.contains("1 of 64 buckets"), "{said}");
    until(async || Some(sent(TestRequest::get("/readyz"), admin).await).filter(|reply| reply.status == 200))
        .await;
    let (has_no_errors, said) = doctor(&world, &["--quick"]);
    assert!(has_no_errors && said.contains("deleted by hand") && said.contains("cli:"), "{said}");
    let (is_accepted, said) = doctor(&world, &["--accept-loss", "--reason", "again"]);
    assert!(is_accepted && said.contains("nothing was changed"), "{said}");
    for number in 0..KEYS {
        assert!(world.send(ask(number)).await.is_acknowledged());
    }
}

//! Changes to the servers while a gateway runs, and what the gateway and the doctor report.

use crate::world::{Gateway, Scratch, World, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use semel_test_support::{RedisServer, ScratchDir};
use std::process::Command;

#[tokio::test]
async fn a_setting_that_becomes_dangerous_is_logged() {
    let world = World::new(&[], charged).await;
    assert_eq!(world.charge(5).await.status, 201);
    world.scratch.store().ask("CONFIG SET appendonly no");
    world.scratch.store().ask("CONFIG SET maxmemory-policy allkeys-lru");
    until(async || {
        let log = world.log();
        (log.contains("redis-no-aof") && log.contains("redis-eviction")).then_some(())
    })
    .await;
    assert!(world.log().contains("the store has become less safe"), "{}", world.log());
}

#[tokio::test]
async fn two_masters_make_a_gateway_not_ready_until_one_is_left() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "masters");
    let master = RedisServer::start(folder.join("master"), &[]);
    let replica = master.replica(folder.join("replica"));
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://{}\"\n[store]\nurl = 'redis://{},{}'\n[clock]\nskew = \"200ms\"\n",
        upstream.address,
        master.address(),
        replica.address()
    ));
    let mut gateway = Gateway::configured(&scratch, &[]);
    let admin = gateway.admin();
    let world = World { gateway, upstream, scratch };
    let ready = async |wanted: u16| {
        until(async || {
            let reply = TestRequest::get("/readyz").send(admin).await.expect("an answer");
            (reply.status == wanted).then_some(())
        })
        .await;
    };
    assert_eq!(world.charge(5).await.status, 201);
    ready(200).await;
    replica.promote();
    ready(503).await;
    let refused = world.charge(6).await;
    assert!(refused.status == 503 || refused.status == 422, "{refused:?}");
    let fresh = TestRequest::post("/charges").key("another-key-of-this-test").json("{}");
    assert_eq!(world.send(fresh.clone()).await.status, 503, "nothing is claimed on one of two stores");
    assert_eq!(world.calls(), 1);
    assert!(world.log().contains("both take writes"), "{}", world.log());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    ready(200).await;
    assert_eq!(world.send(fresh).await.status, 201);
}

#[tokio::test]
async fn the_doctor_ignores_foreign_keys() {
    let world = World::new(&[], charged).await;
    assert_eq!(world.charge(5).await.status, 201);
    world.scratch.store().ask("SET {semel:0}due mine");
    world.scratch.store().ask("LPUSH {semel:0}r:00000000000000000000000000000000 mine");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_semel"));
    let output = doctor.args(["doctor", "--store", &world.scratch.store().url()]).output().expect("it runs");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    for words in ["{semel:0}due", "{semel:0}r:00000000000000000000000000000000", "the store is inconsistent"]
    {
        assert!(printed.contains(words), "{words} in {printed}");
    }
    for words in ["-wal", "the file", "did not answer, so the remaining"] {
        assert!(!printed.contains(words), "{words} in {printed}");
    }
}

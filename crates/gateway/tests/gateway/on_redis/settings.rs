//! Changes to the servers while a gateway runs, and what the gateway and the doctor report.

use crate::store::StoreKind;
use crate::world::{Gateway, Scratch, World, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use semel_test_support::{RedisServer, ScratchDir};
use std::process::Command;

#[tokio::test]
async fn a_setting_that_becomes_dangerous_is_logged() {
    let world = World::on(StoreKind::Redis, &[], charged).await;
    assert_eq!(world.charge(5).await.status, 201);
    // At once, because the start-up text has named the hazards already.
    world.scratch.store().ask("CONFIG SET appendonly no maxmemory-policy allkeys-lru");
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
    let world = World::on(StoreKind::Redis, &[], charged).await;
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

/// The output of `semel` with these arguments.
fn output_of(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_semel")).args(arguments).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Nothing but a sweeper removes records, and they are in the server's memory.
#[tokio::test]
async fn a_sweeper_that_is_off_is_reported_everywhere() {
    let (scratch, upstream) = (Scratch::on(StoreKind::Redis), Upstream::start(charged).await);
    let store = scratch.store().url();
    let configure = |parameters: &str, every: &str| {
        scratch.configure(&format!(
            "[upstream]\nurl = \"http://{}\"\n[store]\nurl = '{store}{parameters}'\n[sweep]\nevery = \"{every}\"\n",
            upstream.address
        ));
    };
    let config = scratch.config();
    let config = config.to_str().expect("text");
    configure("?ttl=on", "0s");
    let checked = output_of(&["config", "check", config]);
    assert!(checked.contains("warning: the sweeper is off"), "{checked}");
    assert!(checked.contains("warning: the store's URL has `ttl`, which has no effect"), "{checked}");
    let mut gateway = Gateway::configured(&scratch, &[]);
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let printed = gateway.rest_of_output();
    assert!(printed.contains("(sweeper-off)") && printed.contains("(redis-ttl-ignored)"), "{printed}");
    let examined = output_of(&["doctor", "--config", config, "--quick"]);
    assert!(examined.contains("sweeper-off") && examined.contains("redis-ttl-ignored"), "{examined}");
    configure("", "1s");
    for arguments in [&["config", "check", config][..], &["doctor", "--config", config, "--quick"]] {
        let printed = output_of(arguments);
        assert!(!printed.contains("sweeper") && !printed.contains("ttl"), "{printed}");
    }
}

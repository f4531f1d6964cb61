//! What depends on the kind of server: Valkey, and a cluster. Everything else is tested on a single Redis.

use crate::world::{Gateway, Scratch, World, charge, within};
use semel_test_support::upstream::{Act, Gate, Seen, Upstream, charged, says};
use semel_test_support::{RedisServer, ScratchDir, services};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

static PREFIXES: AtomicU64 = AtomicU64::new(0);

/// A server that stores a test's records.
struct TestServer {
    url: String,
    _server: Option<(RedisServer, ScratchDir)>,
}

impl TestServer {
    fn on_valkey() -> Option<Self> {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "valkey");
        let server = RedisServer::start_valkey(folder.join("server"), &[])?;
        Some(Self { url: server.url(), _server: Some((server, folder)) })
    }

    /// The cluster is shared, and recreated at each start.
    fn on_cluster() -> Option<Self> {
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        let url = services::redis_cluster_url()?;
        Some(Self { url: format!("{url}?prefix=gateway-{}-{number}", std::process::id()), _server: None })
    }

    fn configure(&self, scratch: &Scratch, upstream: &Upstream) {
        // Each server of a cluster has its own clock.
        scratch.configure(&format!(
            "[upstream]\nurl = \"http://{}\"\n[store]\nurl = '{}'\n[clock]\nskew = \"200ms\"\n",
            upstream.address, self.url
        ));
    }

    async fn world(&self, flags: &[&str], script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> World {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(script).await);
        self.configure(&scratch, &upstream);
        let gateway = Gateway::configured(&scratch, flags);
        World { gateway, upstream, scratch }
    }
}

fn kill_and_restart(world: &mut World, flags: &[&str]) {
    world.gateway.kill();
    world.gateway = Gateway::configured(&world.scratch, flags);
}

async fn an_outcome_is_replayed_after_a_kill(server: TestServer) {
    let mut world = server.world(&[], charged).await;
    let first = world.charge(5).await;
    assert_eq!((first.status, first.is_replay(), first.is_acknowledged()), (201, false, true));
    for _ in 0..2 {
        let retry = world.charge(5).await;
        assert!(retry.is_replay());
        assert_eq!(retry.kept(), first.kept());
        let other = world.charge(6).await;
        world.is_problem(&other, 422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false).await;
        kill_and_restart(&mut world, &[]);
    }
    assert_eq!(world.calls(), 1);
}

async fn an_original_that_still_runs_is_in_progress(server: TestServer) {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let world = server.world(&["--wait", "0s"], script).await;
    let (first, ()) = tokio::join!(world.charge(5), async {
        world.upstream.has_seen(1).await;
        let running = world.charge(5).await;
        world.is_problem(&running, 409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", true).await;
        assert_eq!(world.linked(&running).await["state"], "PROCESSING");
        gate.open();
    });
    assert_eq!((first.status, world.calls()), (201, 1));
}

async fn an_outcome_that_nobody_knows_stays_unknown_after_a_kill(server: TestServer) {
    let mut world = server.world(&[], says("500 Internal Server Error")).await;
    let first = world.charge(5).await;
    assert_eq!((first.status, first.is_acknowledged()), (500, false));
    kill_and_restart(&mut world, &[]);
    let retry = world.charge(5).await;
    world.is_problem(&retry, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false).await;
    assert_eq!(retry.header("operation-id"), first.header("operation-id"));
    assert_eq!(world.linked(&retry).await["state"], "UNKNOWN");
    assert_eq!(world.calls(), 1);
}

async fn a_gateway_that_is_killed_in_the_middle_leaves_a_doubt(server: TestServer) {
    let flags = ["--lease", "1s", "--wait", "0s"];
    let script = |seen: &Seen| if seen.number == 1 { Act::Hang } else { charged(seen) };
    let mut world = server.world(&flags, script).await;
    let sent = tokio::spawn(charge(5).send(world.gateway.address));
    world.upstream.has_seen(1).await;
    kill_and_restart(&mut world, &flags);
    assert!(sent.await.expect("no panic").is_err(), "no gateway was left to answer");
    let settled = world.charge_settled(5).await;
    world.is_problem(&settled, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false).await;
    assert_eq!(world.calls(), 1);
}

async fn two_gateways_on_one_store_are_one(server: TestServer) {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let flags = ["--wait", "50s"];
    let mut world = server.world(&flags, script).await;
    let other = Gateway::configured(&world.scratch, &flags);
    let addresses = [world.gateway.address, other.address];
    let mut sent: JoinSet<_> = (0..40).map(|number| charge(5).send(addresses[number % 2])).collect();
    world.upstream.has_seen(1).await;
    gate.open();
    let mut replays = 0;
    while let Some(reply) = within(sent.join_next()).await {
        let reply = reply.expect("no panic").expect("an answer");
        assert_eq!(reply.text(), "charge 1");
        replays += u32::from(reply.is_replay());
    }
    assert_eq!((replays, world.calls()), (39, 1));
    world.gateway.kill();
    assert!(charge(5).send(other.address).await.expect("an answer").is_replay());
}

/// Each of these promises, on each of the servers.
macro_rules! on_each_server {
    ($($promise:ident),* $(,)?) => {
        mod valkey {
            $(#[tokio::test]
            async fn $promise() {
                let Some(server) = super::TestServer::on_valkey() else { return };
                super::$promise(server).await;
            })*
        }
        mod cluster {
            $(#[tokio::test]
            async fn $promise() {
                let Some(server) = super::TestServer::on_cluster() else { return };
                super::$promise(server).await;
            })*
        }
    };
}

on_each_server!(
    an_outcome_is_replayed_after_a_kill,
    an_original_that_still_runs_is_in_progress,
    an_outcome_that_nobody_knows_stays_unknown_after_a_kill,
    a_gateway_that_is_killed_in_the_middle_leaves_a_doubt,
    two_gateways_on_one_store_are_one,
);

//! Every state of a record, and what the next request with its key gets, tested through the program.

use crate::store::{StoreKind, TestStore, on_every_store};
use crate::world::{KEY, World, charge, until};
use semel::core::fingerprint::{self, Limits, Selection};
use semel::core::key::Key;
use semel::core::policy::{Class, Policy};
use semel::core::scope::{Caller, Operation, Scope};
use semel::{Claimed, Clock as _, Engine, Intent, SystemClock};
use semel_test_support::client::TestRequest;
use semel_test_support::reply::Reply;
use semel_test_support::upstream::{Act, Gate, Seen, charged, response, says};
use serde_json::Value;
use std::time::Duration;

const IN_PROGRESS: &str = "IDEMPOTENCY_REQUEST_IN_PROGRESS";
const UNKNOWN: &str = "IDEMPOTENCY_OUTCOME_UNKNOWN";
const MISMATCH: &str = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";

/// A short lease, and no waiting.
const SHORT: [&str; 4] = ["--lease", "1s", "--wait", "0s"];
/// Expired records are removed at once, not only two minutes after the start.
const SETTLED: &str = "[clock]\nsettle = \"0s\"\n";

/// Leaves the first request unanswered; charges for all others.
fn hangs_once(seen: &Seen) -> Act {
    if seen.number == 1 { Act::Hang } else { charged(seen) }
}

/// Sends a charge and kills the gateway while the upstream processes it.
async fn killed_in_the_middle(kind: StoreKind, flags: &[&str]) -> World {
    let mut world = World::on(kind, flags, hangs_once).await;
    let sent = tokio::spawn(charge(5).send(world.gateway.address));
    world.upstream.has_seen(1).await;
    world.kill_and_restart(flags);
    assert!(sent.await.expect("no panic").is_err(), "no gateway was left to answer");
    world
}

/// Runs `early` with longer and longer leases until it ends within its lease. On a slow machine the lease may expire
/// before, and the result says nothing.
async fn within_lease<T>(early: impl AsyncFn(&str) -> T) -> T {
    for lease in ["4s", "12s", "36s"] {
        let before = SystemClock.uptime();
        let result = early(lease).await;
        if SystemClock.uptime().saturating_sub(before) < span(lease) {
            return result;
        }
    }
    panic!("this machine is too slow")
}

fn span(seconds: &str) -> Duration {
    Duration::from_secs(seconds.trim_end_matches('s').parse().expect("seconds"))
}

/// The answers to a duplicate and to another payload, and the state in between.
struct Early {
    duplicate: Reply,
    state: Value,
    other: Reply,
}

impl Early {
    async fn of(world: &World) -> Self {
        let duplicate = world.charge(5).await;
        let id = duplicate.header("operation-id").expect("an id");
        let state = world.send(TestRequest::get(&format!("/operations/{id}"))).await.json()["state"].clone();
        Self { duplicate, state, other: world.charge(6).await }
    }

    async fn is_refused_in(&self, world: &World, state: &str) {
        world.is_problem(&self.duplicate, 409, IN_PROGRESS, true).await;
        assert_eq!(self.state, state);
        assert_eq!(self.other.code().as_deref(), Some(MISMATCH));
    }
}

async fn none_is_run_as_attempt_one(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let first = world.charge(5).await;
    assert_eq!((first.status, first.text(), first.is_replay()), (201, "charge 1", false));
    assert!(first.is_acknowledged());
    let seen = &world.upstream.seen()[0];
    assert_eq!(seen.header("idempotency-attempt"), Some("1"));
    assert_eq!(seen.header("operation-id"), first.header("operation-id"));
    assert_eq!(seen.header("idempotency-key"), Some(KEY));
    assert!(seen.header("idempotency-fence").is_some());
}

async fn succeeded_and_failed_replayable_are_replayed_also_after_a_kill(kind: StoreKind) {
    for (status, code) in [("200 OK", 200), ("303 See Other", 303), ("404 Not Found", 404), ("422 Nope", 422)]
    {
        let mut world = World::on(kind, &[], says(status)).await;
        let first = world.charge(5).await;
        assert_eq!((first.status, first.is_replay(), first.is_acknowledged()), (code, false, true));
        world.kill_and_restart(&[]);
        for _ in 0..2 {
            let retry = world.charge(5).await;
            assert!(retry.is_replay());
            assert_eq!(retry.kept(), first.kept());
        }
        assert_eq!(world.charge(6).await.code().as_deref(), Some(MISMATCH));
        assert_eq!(world.calls(), 1);
    }
}

async fn after_failed_not_replayable_the_same_payload_runs_again(kind: StoreKind) {
    let retried = response("503 Service Unavailable", &[("retry-after", "7")], "later");
    let world = World::on(kind, &[], move |seen| match seen.number {
        1 => Act::Say(retried.clone()),
        number @ 2..=6 => {
            let status = ["401 a", "403 b", "408 c", "425 d", "429 e"][number - 2];
            Act::Say(response(status, &[], "no"))
        }
        _ => charged(seen),
    })
    .await;
    for status in [503, 401, 403, 408, 425, 429] {
        let reply = world.charge(5).await;
        assert_eq!((reply.status, reply.is_replay(), reply.is_acknowledged()), (status, false, false));
        assert_eq!(world.charge(6).await.code().as_deref(), Some(MISMATCH), "after {status}");
    }
    assert_eq!(world.charge(5).await.text(), "charge 7");
    assert!(world.charge(5).await.is_replay());
    let numbers: Vec<_> = world
        .upstream
        .seen()
        .iter()
        .map(|seen| seen.header("idempotency-attempt").expect("a number").to_owned())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5", "6", "7"]);
    let fences: Vec<u64> = world
        .upstream
        .seen()
        .iter()
        .map(|seen| seen.header("idempotency-fence").expect("a fence").parse().expect("a number"))
        .collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

async fn failed_not_replayable_past_its_time_is_as_none(kind: StoreKind) {
    let script = |seen: &Seen| if seen.number == 1 { says("429 Slow")(seen) } else { charged(seen) };
    let world = World::configured_on(kind, SETTLED, &["--lease", "1s", "--ttl", "1500ms"], script).await;
    assert_eq!(world.charge(5).await.status, 429);
    let reply = until(async || {
        let reply = world.charge(6).await;
        (reply.status != 422).then_some(reply)
    })
    .await;
    assert_eq!(
        (reply.status, reply.text()),
        (201, "charge 2"),
        "another payload is accepted after a release"
    );
    let seen = world.upstream.seen();
    assert_eq!(seen[1].header("idempotency-attempt"), Some("1"));
    let fence =
        |at: usize| seen[at].header("idempotency-fence").expect("a fence").parse::<u64>().expect("a number");
    assert!(fence(1) > fence(0));
}

async fn processing_is_waited_for_and_then_replayed(kind: StoreKind) {
    let gate = Gate::closed();
    let within = gate.clone();
    let script = move |seen: &_| Act::After(within.clone(), Box::new(charged(seen)));
    let world = World::on(kind, &["--wait", "30s"], script).await;
    let ((first, twin), ()) = tokio::join!(async { tokio::join!(world.charge(5), world.charge(5)) }, async {
        world.upstream.has_seen(1).await;
        let other = world.charge(6).await;
        assert_eq!(other.code().as_deref(), Some(MISMATCH), "a mismatch while the request runs");
        gate.open();
    });
    assert_eq!((first.text(), twin.text(), world.calls()), ("charge 1", "charge 1", 1));
    assert!(first.is_replay() != twin.is_replay(), "one ran, one waited");
}

/// PROCESSING survives a kill until the lease expires, even if a gateway with the same name returns; then it is
/// UNKNOWN.
async fn peer_bug_a_crash_blocked_the_key_or_revived_a_claim(kind: StoreKind) {
    let (world, early) = within_lease(async |lease| {
        let world = killed_in_the_middle(kind, &["--lease", lease, "--wait", "0s"]).await;
        let early = Early::of(&world).await;
        (world, early)
    })
    .await;
    early.is_refused_in(&world, "PROCESSING").await;
    let late = world.charge_settled(5).await;
    world.is_problem(&late, 409, UNKNOWN, false).await;
    // If the lease ended while the request was waiting, it only judged the record; the next one marks it.
    assert_eq!(world.charge(5).await.code().as_deref(), Some(UNKNOWN));
    assert_eq!(world.linked(&late).await["state"], "UNKNOWN");
    assert_eq!(world.charge(6).await.code().as_deref(), Some(MISMATCH));
    assert_eq!(world.calls(), 1, "it is not sent again");
}

async fn processing_of_a_class_that_recognises_repeats_is_taken_over(kind: StoreKind) {
    let flags = [&SHORT[..], &["--class", "downstream"]].concat();
    let world = killed_in_the_middle(kind, &flags).await;
    let late = world.charge_settled(5).await;
    assert_eq!((late.status, late.text(), late.is_replay()), (201, "charge 2", false));
    assert!(world.charge(5).await.is_replay());
    let seen = world.upstream.seen();
    assert_eq!(
        seen[0].header("operation-id"),
        seen[1].header("operation-id"),
        "both attempts have the same operation ID"
    );
    assert_eq!(seen[1].header("idempotency-attempt"), Some("2"));
}

async fn unknown_of_a_class_that_recognises_repeats_is_taken_over(kind: StoreKind) {
    let script = |seen: &Seen| if seen.number == 1 { says("500 Oops")(seen) } else { charged(seen) };
    let world = World::on(kind, &["--class", "downstream"], script).await;
    assert_eq!(world.charge(5).await.status, 500);
    assert_eq!(world.charge(6).await.code().as_deref(), Some(MISMATCH));
    assert_eq!(world.charge(5).await.text(), "charge 2");
    assert!(world.charge(5).await.is_replay());
}

async fn a_doubt_survives_a_later_attempt_without_effect(kind: StoreKind) {
    let script = |seen: &Seen| match seen.number {
        1 => Act::End,
        2 => says("429 Slow")(seen),
        _ => charged(seen),
    };
    let world = World::on(kind, &["--class", "downstream"], script).await;
    assert_eq!(world.charge(5).await.status, 502);
    let second = world.charge(5).await;
    assert_eq!((second.status, second.is_acknowledged()), (429, false));
    let path = format!("/operations/{}", second.header("operation-id").expect("an id"));
    assert_eq!(world.send(TestRequest::get(&path)).await.json()["state"], "UNKNOWN");
    assert_eq!(world.charge(5).await.text(), "charge 3");
}

async fn past_the_time_that_the_upstream_remembers_a_doubt_stays_one(kind: StoreKind) {
    let flags = [
        &SHORT[..],
        &["--class", "downstream", "--connect-timeout", "1s", "--response-timeout", "100ms"],
        &["--dedup-window", "7200ms"],
    ]
    .concat();
    let world = World::on(kind, &flags, |_| Act::Hang).await;
    assert_eq!(world.charge(5).await.code().as_deref(), Some("UPSTREAM_TIMEOUT"));
    let late = until(async || {
        let reply = world.charge(5).await;
        (reply.code().as_deref() == Some(UNKNOWN)).then_some(reply)
    })
    .await;
    assert_eq!(late.status, 409);
    let calls = world.calls();
    assert_eq!(world.charge(5).await.code().as_deref(), Some(UNKNOWN));
    assert_eq!(world.calls(), calls);
}

/// A payload as the layer reads it from a charge.
struct Charge(&'static str);

impl fingerprint::Payload for Charge {
    fn fingerprint(&self, selection: &Selection) -> Result<fingerprint::Fingerprint, fingerprint::Error> {
        let operation = Operation::route("POST", "/charges").to_string();
        let request = fingerprint::Request {
            content_type: &[b"application/json"],
            headers: &[("content-type", b"application/json")],
            ..fingerprint::Request::new("POST", &operation, "/charges", self.0.as_bytes())
        };
        request.fingerprint(selection, &Limits { decoded_body_bytes_max: 1 << 20 })
    }
}

/// Claims a charge like a worker that prepares something first, and never returns.
async fn claim_and_vanish(store: &TestStore, lease: Duration) {
    let store = store.open().await;
    let engine = Engine::builder(store.clone()).build().await.expect("the store answers");
    let scope = Scope::new(Caller::Anonymous, Operation::route("POST", "/charges"));
    let policy = Policy::new(Class::External).with(|policy| policy.lease = lease).expect("valid settings");
    let key = Key::from_source(KEY).expect("a key");
    let intent = Intent::new(scope, key, policy, Charge("{\"amount\":5}")).reserved();
    let Ok(Claimed::Leased(lease)) = engine.claim(&intent).await else { panic!("nobody else has it") };
    drop(lease);
    engine.shutdown(Duration::from_secs(1)).await;
    store.close().await;
}

async fn a_claim_is_taken_over_after_its_lease(kind: StoreKind) {
    let (world, early) = within_lease(async |lease| {
        let mut world = World::on(kind, &SHORT, charged).await;
        world.gateway.kill();
        claim_and_vanish(world.scratch.store(), span(lease)).await;
        world.kill_and_restart(&SHORT);
        let early = Early::of(&world).await;
        (world, early)
    })
    .await;
    early.is_refused_in(&world, "CLAIMED").await;
    let late = world.charge_settled(5).await;
    assert_eq!((late.status, late.text(), late.is_replay()), (201, "charge 1", false));
    assert_eq!(world.upstream.seen()[0].header("idempotency-attempt"), Some("2"));
}

async fn an_expired_key_is_refused_until_its_tombstone_is_removed(kind: StoreKind) {
    let flags = ["--lease", "1s", "--ttl", "1500ms", "--tombstone", "1s"];
    let world = World::configured_on(kind, SETTLED, &flags, charged).await;
    assert_eq!(world.charge(5).await.text(), "charge 1");
    let refused = until(async || {
        let reply = world.charge(5).await;
        (!reply.is_replay()).then_some(reply)
    })
    .await;
    assert_eq!(refused.code().as_deref(), Some("IDEMPOTENCY_RECORD_EXPIRED"));
    let again = until(async || {
        let reply = world.charge(6).await;
        (reply.status != 410).then_some(reply)
    })
    .await;
    assert_eq!((again.status, again.text()), (201, "charge 2"));
    let fences: Vec<_> = world
        .upstream
        .seen()
        .iter()
        .map(|seen| seen.header("idempotency-fence").map(str::to_owned))
        .collect();
    assert!(fences[1] > fences[0], "{fences:?}");
}

on_every_store! {
    none_is_run_as_attempt_one,
    succeeded_and_failed_replayable_are_replayed_also_after_a_kill,
    after_failed_not_replayable_the_same_payload_runs_again,
    failed_not_replayable_past_its_time_is_as_none,
    processing_is_waited_for_and_then_replayed,
    peer_bug_a_crash_blocked_the_key_or_revived_a_claim,
    processing_of_a_class_that_recognises_repeats_is_taken_over,
    unknown_of_a_class_that_recognises_repeats_is_taken_over,
    a_doubt_survives_a_later_attempt_without_effect,
    past_the_time_that_the_upstream_remembers_a_doubt_stays_one,
    a_claim_is_taken_over_after_its_lease,
    an_expired_key_is_refused_until_its_tombstone_is_removed,
}

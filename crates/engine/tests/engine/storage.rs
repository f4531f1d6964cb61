//! What is stored, for how long, how much of it, and who can read it.

use super::world::{SWEEP, World, charge, intent, intent_under, never, secs};
use semel::archive::FileArchive;
use semel::core::classify::Ending;
use semel::core::machine::Verdict;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::core::store::{self, Capabilities, Count, Cursor, Delegate, Filter, Kind, Page, Pending, Store};
use semel::quota::{Quotas, Rate, RateKeeper, Rates};
use semel::sealing::{KeyRing, Seal, SealingKey};
use semel::{Claimed, Engine, Error, Event, Failed, Observer, RunError, RunErrorReason, SystemRandom};
use semel_test_support::ScratchDir;
use semel_testkit::faults::{Fault, Question};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: Duration = secs(24 * 3600);

async fn records(world: &World) -> u64 {
    world.store.count(Count::Records, u64::MAX).await.expect("counted").count
}

#[tokio::test]
async fn an_outcome_is_replayed_then_refused_as_expired_and_then_gone() {
    let world = World::new();
    let engine = world.engine().await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    world.skip(secs(24 * 3600 - 10)).await;
    assert!(engine.run(intent("k", "5"), never).await.expect("still kept").replayed);
    world.pass(secs(10) + 2 * SWEEP).await;
    assert_eq!(world.record().await.state_name(), StateName::Expired, "the sweeper has run");
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Expired, .. })
    ));
    engine.shutdown(secs(1)).await;
    world.clock.advance(30 * DAY);
    let next = world.engine().await;
    world.pass(secs(120) + 2 * SWEEP).await;
    assert_eq!(records(&world).await, 0, "swept, after a while to settle");
    assert_eq!(next.run(intent("k", "5"), charge).await.expect("a key never seen").value, 1);
}

#[tokio::test]
async fn a_sweep_processes_everything_due_in_chunks() {
    let world = World::new();
    let engine = world
        .engine_with(|builder| {
            let mut settings = semel::Settings::default();
            settings.sweep.every = Duration::ZERO;
            settings.sweep.chunk = 7;
            settings.sweep.records_per_second_max = u32::MAX;
            builder.settings(settings)
        })
        .await;
    for n in 0..100 {
        engine.run(intent(&format!("key-{n}"), "5"), charge).await.expect("a value");
    }
    world.skip(DAY).await;
    let swept = engine.sweep().await.expect("swept");
    assert_eq!((swept.seen, swept.expired, swept.failed, swept.stopped), (100, 100, 0, false));
    assert_eq!(world.times_seen("SweptChunk"), 3 + 15, "a long round reports its progress");
    assert_eq!(engine.sweep().await.expect("swept").seen, 0);
}

/// The totals of one engine's rounds.
#[derive(Clone, Default)]
struct Rounds(Arc<Mutex<(u64, u64)>>);

impl Rounds {
    /// How many records the engine looked at, and how many outcomes it expired.
    fn seen_and_expired(&self) -> (u64, u64) {
        *self.0.lock().expect("no panic")
    }
}

impl Observer for Rounds {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Swept(swept) = event {
            let mut rounds = self.0.lock().expect("no panic");
            *rounds = (rounds.0 + swept.seen, rounds.1 + swept.expired);
        }
    }
}

/// Two engines that know of each other, and forty outcomes that expire in a second.
async fn two_sweepers(second_sweeps: bool) -> (World, [Engine; 2], [Rounds; 2]) {
    let (world, rounds) = (World::new(), [Rounds::default(), Rounds::default()]);
    let one = world.engine_with(|builder| builder.observer(rounds[0].clone())).await;
    let other = world.engine_with(|builder| {
        let mut settings = semel::Settings::default();
        settings.clock.skew = Duration::ZERO;
        settings.sweep.every = if second_sweeps { SWEEP } else { Duration::ZERO };
        builder.settings(settings).observer(rounds[1].clone())
    });
    let other = other.await;
    let short = Policy::new(Class::External).with(|policy| policy.ttl = secs(300)).expect("valid");
    for n in 0..40 {
        let intent = intent_under(short.clone(), &format!("key-{n}"), "5");
        one.run(intent, charge).await.expect("a value");
    }
    world.pass(secs(299)).await;
    assert_eq!(rounds.clone().map(|rounds| rounds.seen_and_expired()), [(0, 0), (0, 0)]);
    (world, [one, other], rounds)
}

#[tokio::test]
async fn nodes_share_the_sweep_of_expired_records() {
    let (world, _engines, rounds) = two_sweepers(true).await;
    world.pass(secs(1) + 2 * SWEEP).await;
    let [(seen_one, one), (seen_other, other)] = rounds.map(|rounds| rounds.seen_and_expired());
    assert_eq!(one + other, 40);
    assert!(one > 5 && other > 5, "{one} and {other}");
    assert_eq!((seen_one, seen_other), (one, other), "each left the other's share alone");
}

#[tokio::test]
async fn nodes_that_are_behind_do_not_work_on_the_same_records() {
    let (world, _engines, rounds) = two_sweepers(true).await;
    world.skip(secs(30)).await;
    let [(seen_one, one), (seen_other, other)] = rounds.map(|rounds| rounds.seen_and_expired());
    assert_eq!(one + other, 40);
    assert_eq!((seen_one, seen_other), (one, other), "each left the other's share alone");
}

#[tokio::test]
async fn other_nodes_sweep_what_one_leaves_behind() {
    let (world, _engines, rounds) = two_sweepers(false).await;
    world.pass(secs(1) + SWEEP).await;
    let (_, at_first) = rounds[0].seen_and_expired();
    assert!((5..36).contains(&at_first), "its own share only: {at_first}");
    world.pass(4 * SWEEP).await;
    assert_eq!(rounds[0].seen_and_expired(), (40, 40));
}

/// A store on a disk.
struct OnDisk(Arc<dyn Store>);

impl Delegate for OnDisk {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kept_in_memory: false, ..self.inner().capabilities() }
    }
}

/// How many of 300 records that expire at once are swept after so many seconds, at four in a second.
async fn swept_by(seconds: &[u64], is_on_disk: bool) -> Vec<u64> {
    let world = World::new();
    let mut store: Arc<dyn Store> = world.store.clone();
    if is_on_disk {
        store = Arc::new(OnDisk(store));
    }
    let mut settings = semel::Settings::default();
    (settings.sweep.chunk, settings.sweep.records_per_second_max) = (4, 4);
    let builder = Engine::builder(store).settings(settings).on(
        Arc::new(world.clock.clone()),
        Arc::new(SystemRandom),
        Arc::new(tokio::runtime::Handle::current()),
    );
    let engine = builder.build().await.expect("the store answers");
    let short = Policy::new(Class::External).with(|policy| policy.ttl = secs(300)).expect("valid");
    for n in 0..300 {
        engine.run(intent_under(short.clone(), &format!("key-{n}"), "5"), charge).await.expect("a value");
    }
    world.pass(secs(300)).await;
    let (mut swept, mut passed) = (Vec::new(), 0);
    for second in seconds {
        world.pass(secs(second - passed)).await;
        passed = *second;
        let expired = world.store.count(Count::State(StateName::Expired), u64::MAX).await;
        swept.push(expired.expect("counted").count);
    }
    swept
}

#[tokio::test]
async fn a_sweeper_that_is_behind_catches_up_on_a_store_in_memory() {
    let [early, late] = swept_by(&[5, 40], false).await[..] else { panic!("two counts") };
    assert!(early <= 30, "it is not behind yet: {early}");
    assert_eq!(late, 300, "at its usual pace it would take 75 s");
    let on_disk = swept_by(&[40], true).await;
    assert!(on_disk[0] <= 170, "on a disk, requests come first: {on_disk:?}");
}

#[tokio::test]
async fn a_round_ends_although_more_falls_due_meanwhile() {
    let world = World::new();
    let settings = |builder: semel::Builder| {
        let mut settings = semel::Settings::default();
        settings.sweep.every = Duration::ZERO;
        (settings.sweep.chunk, settings.sweep.records_per_second_max) = (5, 1);
        builder.settings(settings)
    };
    let engine = world.engine_on(Arc::new(OnDisk(world.store.clone())), settings).await;
    let long = Policy::new(Class::External).with(|policy| policy.ttl = secs(300)).expect("valid");
    for n in 0..100 {
        engine.run(intent_under(long.clone(), &format!("key-{n}"), "5"), charge).await.expect("a value");
        world.pass(secs(1)).await;
    }
    world.pass(secs(220)).await;
    // Twenty are due, and one more in each second that it takes to sweep one.
    let (swept, ()) = tokio::join!(engine.sweep(), world.pass(secs(200)));
    let swept = swept.expect("swept");
    assert!((20..=30).contains(&swept.seen), "what fell due since is left to the next round: {swept:?}");
    assert!(swept.lag >= secs(19), "{swept:?}");
}

/// A store that loses a part: it cannot list all records then, and reports what is due in its other parts.
struct PartlyLost {
    store: Arc<dyn Store>,
    is_lost: AtomicBool,
}

impl Delegate for PartlyLost {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        if !self.is_lost.load(Ordering::Acquire) {
            return self.store.page(filter, after, limit);
        }
        Box::pin(async { Err(store::Error::new(Kind::DataLost, "listing records")) })
    }
}

#[tokio::test]
async fn a_lost_part_of_the_store_does_not_stop_the_sweeper() {
    let world = World::new();
    let store = Arc::new(PartlyLost { store: world.store.clone(), is_lost: AtomicBool::new(false) });
    let engine = world.engine_on(store.clone(), |builder| builder).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    store.is_lost.store(true, Ordering::Release);
    world.skip(DAY).await;
    world.pass(2 * SWEEP).await;
    assert_eq!(world.record().await.state_name(), StateName::Expired);
}

#[tokio::test]
async fn a_record_is_archived_before_deletion() {
    let folder = ScratchDir::new("archive");
    let path = folder.join("archive.jsonl");
    let world = World::new();
    let archive = FileArchive::open(&path).expect("it opens");
    let engine = world.engine_with(|builder| builder.archive(archive)).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    engine.shutdown(secs(1)).await;
    world.clock.advance(DAY + secs(1));
    engine.sweep().await.expect("swept");
    let lines = std::fs::read_to_string(&path).expect("it is stored");
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["state"], "SUCCEEDED");
    assert_eq!(line["outcome"]["body"], "1");
}

#[tokio::test]
async fn a_quota_refuses_new_keys_and_never_a_retry() {
    let world = World::new();
    let two = Rate { count: NonZeroU32::new(2).expect("two"), per: secs(60) };
    let quotas = Quotas { new_per_caller: Some(two), ..Quotas::default() };
    let engine = world.engine_with(|builder| builder.quotas(quotas)).await;
    let busy = |_| async { Err::<u32, _>(Failed::NotApplied("busy".into())) };
    drop(engine.run(intent("first", "5"), busy).await);
    engine.run(intent("second", "5"), charge).await.expect("the second key");
    let third = engine.run(intent("third", "5"), never).await;
    assert!(
        matches!(third, Err(RunError { reason: RunErrorReason::NotRun(Error::Quota(_)), .. })),
        "{third:?}"
    );
    assert_eq!(engine.run(intent("first", "5"), charge).await.expect("a retry").value, 2);
    assert!(engine.run(intent("second", "5"), never).await.expect("a replay").replayed);
    assert!(world.saw("QuotaExceeded"));
    world.pass(secs(31)).await;
    engine.run(intent("third", "5"), charge).await.expect("one more by now");
}

#[tokio::test]
async fn an_operations_rate_refuses_new_keys_but_no_retry() {
    let world = World::new();
    let rate = |count| Rate { count: NonZeroU32::new(count).expect("not zero"), per: secs(60) };
    let quotas = Quotas { new_per_caller: Some(rate(4)), ..Quotas::default() };
    let engine = world.engine_with(|builder| builder.quotas(quotas)).await;
    let limits = Rates { new_per_caller: Some(rate(2)), ..Rates::default() };
    let exports = RateKeeper::new(limits).expect("valid");
    let export = |key: &str| intent(key, "5").limited_by(exports.clone());
    let busy = |_| async { Err::<u32, _>(Failed::NotApplied("busy".into())) };
    drop(engine.run(export("first"), busy).await);
    engine.run(export("second"), charge).await.expect("the second key");
    for _ in 0..10 {
        let third = engine.run(export("third"), never).await;
        let Err(RunError { reason: RunErrorReason::NotRun(Error::Quota(result)), .. }) = &third else {
            panic!("{third:?}")
        };
        assert!(result.is_of_operation && result.retry_after == secs(30), "{result:?}");
        assert!(engine.run(export("second"), never).await.expect("a replay").replayed);
    }
    assert_eq!(engine.run(export("first"), charge).await.expect("a retry").value, 2);
    assert!(world.saw("QuotaExceeded"));
    for key in ["another", "one more"] {
        engine.run(intent(key, "5"), charge).await.expect("a refusal uses up nothing");
    }
    let over = engine.run(intent("too many", "5"), never).await;
    assert!(
        matches!(over, Err(RunError { reason: RunErrorReason::NotRun(Error::Quota(result)), .. }) if !result.is_of_operation),
        "{over:?}"
    );
    world.pass(secs(31)).await;
    engine.run(export("third"), charge).await.expect("one more by now");
}

#[tokio::test]
async fn a_key_whose_first_claim_was_lost_is_charged_once() {
    let world = World::new();
    let two = Some(Rate { count: NonZeroU32::new(2).expect("two"), per: secs(60) });
    let quotas = Quotas { new_per_caller: two, ..Quotas::default() };
    let engine = world.engine_with(|builder| builder.quotas(quotas)).await;
    let exports = RateKeeper::new(Rates { new_per_caller: two, ..Rates::default() }).expect("valid");
    let export = |key: &str| intent(key, "5").limited_by(exports.clone());
    let is_lost = AtomicBool::new(true);
    world.fate(move |call| match call.question {
        Question::Insert if is_lost.swap(false, Ordering::SeqCst) => Fault::Late,
        _ => Fault::Pass,
    });
    engine.run(export("first"), charge).await.expect("the second insert");
    assert_eq!(world.store.in_flight(), 1, "the first was lost");
    engine.run(export("second"), charge).await.expect("one token is left of both limits");
    let third = engine.run(export("third"), never).await;
    assert!(
        matches!(third, Err(RunError { reason: RunErrorReason::NotRun(Error::Quota(_)), .. })),
        "{third:?}"
    );
}

/// The card number.
const CARD: &str = "4111 1111 1111 1111";

/// Whether anyone with access to the store can read the only record.
async fn is_readable(world: &World) -> bool {
    let stored = semel::core::codec::encode_record(&world.record().await);
    stored.windows(CARD.len()).any(|bytes| bytes == CARD.as_bytes())
}

#[tokio::test]
async fn an_outcome_is_sealed_unless_its_intent_declines() {
    let ring = || KeyRing::new(SealingKey::new("a", &[1; 32]).expect("a key"));
    let secret = |_| async { Ok::<_, Failed>(CARD.to_owned()) };
    let again = |_| async { Err::<String, _>(Failed::InDoubt("it ran again".into())) };
    for (seal, readable) in [(Seal::WithKeys, false), (Seal::Required, false), (Seal::Off, true)] {
        let world = World::new();
        let engine = world.engine_with(|builder| builder.sealing(ring())).await;
        engine.run(intent("k", "5").sealed(seal), secret).await.expect("a value");
        assert_eq!(is_readable(&world).await, readable, "{seal:?}");
        // It is replayed whatever the later intent says.
        for seal in [Seal::WithKeys, Seal::Required, Seal::Off] {
            let fresh = world.engine_with(|builder| builder.sealing(ring())).await;
            let done = fresh.run(intent("k", "5").sealed(seal), again).await.expect("a replay");
            assert!(done.replayed && done.value == CARD, "{seal:?}");
        }
    }
}

#[tokio::test]
async fn required_sealing_without_a_key_is_refused_and_stores_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    let result = engine.run(intent("k", "5").sealed(Seal::Required), never).await;
    let Err(RunError { reason: RunErrorReason::NotRun(error @ Error::NoSealingKey), .. }) = &result else {
        panic!("{result:?}")
    };
    assert!(!error.is_retryable() && error.to_string().contains("Builder::sealing"), "{error}");
    let claimed = engine.claim(&intent("k", "5").sealed(Seal::Required)).await;
    assert!(matches!(claimed, Err(Error::NoSealingKey)), "{claimed:?}");
    assert_eq!(records(&world).await, 0);
    assert!(!engine.has_sealing_keys());
}

#[tokio::test]
async fn outcomes_by_token_or_by_operators_are_sealed() {
    let ring = || KeyRing::new(SealingKey::new("a", &[1; 32]).expect("a key"));
    let plain = || intent("k", "5").sealed(Seal::Off);
    // A worker with only its token.
    let world = World::new();
    let engine = world.engine_with(|builder| builder.sealing(ring())).await;
    let Ok(Claimed::Leased(lease)) = engine.claim(&plain()).await else { panic!("it is claimed") };
    let (id, token) = (lease.id(), lease.token());
    drop(lease);
    let lease = engine.lease(id, token).await.expect("the store answers").expect("it is its own");
    lease.finish(Ending::Succeeded(Outcome::value(CARD))).await.expect("stored");
    assert!(!is_readable(&world).await);
    // An operator.
    let world = World::new();
    let engine = world.engine_with(|builder| builder.sealing(ring())).await;
    let doubt = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(engine.run(plain(), doubt).await);
    let verdict = Verdict::Applied(Some(Outcome::value(CARD)));
    let id = world.record().await.operation_id();
    engine.resolve(id, verdict, "alice", "the bank says so").await.expect("resolved");
    assert!(!is_readable(&world).await);
    // The holder of the lease that it claimed itself uses its own setting.
    let world = World::new();
    let engine = world.engine_with(|builder| builder.sealing(ring())).await;
    let Ok(Claimed::Leased(lease)) = engine.claim(&plain()).await else { panic!("it is claimed") };
    lease.finish(Ending::Succeeded(Outcome::value(CARD))).await.expect("stored");
    assert!(is_readable(&world).await);
}

#[tokio::test]
async fn a_sealed_outcome_without_its_key_counts_as_not_retained() {
    let world = World::new();
    let key = |name: &str, byte| SealingKey::new(name, &[byte; 32]).expect("a key");
    let secret = |_| async { Ok::<_, Failed>("4111 1111 1111 1111".to_owned()) };
    let again = |_| async { Err::<String, _>(Failed::InDoubt("it ran again".into())) };
    let sealing = world.engine_with(|builder| builder.sealing(KeyRing::new(key("a", 1)))).await;
    sealing.run(intent("k", "5"), secret).await.expect("a value");
    let stored = semel::core::codec::encode_record(&world.record().await);
    assert!(!stored.windows(9).any(|bytes| bytes == b"4111 1111"), "the card number is readable");
    let rotated = KeyRing::new(key("b", 2)).and(key("a", 1)).expect("two names");
    let rotated = world.engine_with(|builder| builder.sealing(rotated)).await;
    let done = rotated.run(intent("k", "5"), again).await.expect("opened with the older key");
    assert_eq!(done.value, "4111 1111 1111 1111");
    for other in
        [world.engine().await, world.engine_with(|builder| builder.sealing(KeyRing::new(key("b", 2)))).await]
    {
        let result = other.run(intent("k", "5"), again).await;
        assert!(matches!(result, Err(RunError { reason: RunErrorReason::NotRetained, .. })), "{result:?}");
    }
    assert!(world.saw("Unopened"));
}

#[tokio::test]
async fn a_node_with_another_secret_is_refused() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    one.run(intent("k", "5"), charge).await.expect("a value");
    assert!(other.run(intent("k", "5"), never).await.expect("the same key").replayed);
    let store: Arc<dyn Store> = world.store.clone();
    let stranger = Engine::builder(store).secret([7; 32]).build().await;
    assert!(matches!(stranger, Err(semel::BuildError::Secrets(_))));
}

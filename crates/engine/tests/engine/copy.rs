//! Copying one store into another: what is copied, what is refused, and that no node starts on a partial copy.

use bytes::Bytes;
use semel::copy::{Copy, Error, Progress, Report};
use semel::core::classify::Ending;
use semel::core::codec;
use semel::core::fingerprint::Fingerprint;
use semel::core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel::core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::{Record, StateName, Token};
use semel::core::store::{self, Change, Setting, Store, Written};
use semel::core::time::Time;
use semel::{BuildError, Clock, Engine, Sleep, Spawn, SystemRandom, Task, memory, secrets};
use semel_testkit::faults::{Call, Fault, Faulty, Question};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
const START: Time = Time::from_millis(1_800_000_000_000);

/// A clock that stands still until a test or a sleep advances it.
#[derive(Clone, Default)]
struct Hands(Arc<Mutex<Duration>>);

impl store::Clock for Hands {
    fn now(&self) -> Time {
        START + self.uptime()
    }
}

impl Clock for Hands {
    fn uptime(&self) -> Duration {
        *self.0.lock().expect("not poisoned")
    }

    fn boot(&self) -> Option<String> {
        Some("the boot of the source's machine".to_owned())
    }

    fn sleep(&self, span: Duration) -> Sleep {
        *self.0.lock().expect("not poisoned") += span;
        Box::pin(std::future::ready(()))
    }
}

/// An engine here does nothing by itself: sleeps end at once.
struct Nowhere;

impl Spawn for Nowhere {
    fn spawn(&self, _: Task) {}
}

fn id(number: u64) -> CommandId {
    let mut bytes = [0x5e; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    CommandId::from_bytes(bytes)
}

fn stamp(now: Time) -> Stamp<'static> {
    Stamp::new(now, "a node", "for the test")
}

/// The record of a command in `state`, with a history.
fn record(number: u64, state: StateName) -> Record {
    let command = Command {
        id: id(number),
        operation_id: OperationId::of(&id(number)),
        key_hash: KeyHash::from_bytes([7; 32]),
        caller_hash: CallerHash::from_bytes([8; 32]),
        operation: "POST /charges".into(),
        policy: Policy::new(Class::External).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
        generation: 0,
    };
    let begin = if state == StateName::Claimed { Begin::Claimed } else { Begin::Processing };
    let token = Token::from_random(u128::from(number) << 64 | 1);
    let claim = match machine::decide(Found::Nothing, &command, NewAttempt { token, begin }, stamp(START)) {
        Decision::Run(write) => write.next,
        other => panic!("a command never seen is run: {other:?}"),
    };
    let outcome = Outcome::http(201, [("location", "/charges/7"), ("a", "1"), ("a", "2")], "\0\u{ff}paid");
    let ending = match state {
        StateName::Claimed | StateName::Processing => return claim,
        StateName::Succeeded | StateName::Expired => Ending::Succeeded(outcome),
        StateName::FailedReplayable => Ending::FailedReplayable(outcome),
        StateName::FailedNotReplayable => Ending::NotApplied(Some(outcome)),
        StateName::Unknown => Ending::InDoubt,
    };
    let ended = machine::finish(&claim, token, ending, stamp(START)).expect("the owner may finish").next;
    match (state, ended.expires_at()) {
        (StateName::Expired, Some(over)) => machine::expire(&ended, stamp(over)).expect("past its time").next,
        _ => ended,
    }
}

struct World {
    hands: Hands,
    source: Arc<memory::Store>,
    target: Arc<memory::Store>,
}

impl World {
    /// A source with records of every state and a marker, on which a node has worked and shut down.
    async fn new() -> Self {
        let hands = Hands::default();
        let store = || Arc::new(memory::Store::with_clock(Arc::new(hands.clone())));
        let world = Self { source: store(), target: store(), hands: hands.clone() };
        let engine = world.engine(&world.source).await.expect("an engine");
        engine.shutdown(Duration::from_secs(5)).await;
        for number in 0..700 {
            let state = StateName::ALL[usize::try_from(number % 7).expect("small")];
            let record = record(number, state);
            let written = world.source.write(id(number), Change::Insert(&record)).await.expect("an answer");
            assert!(matches!(written, Written::Done { .. }));
        }
        let marker = world.source.write(id(7_000), Change::InsertMarker).await.expect("an answer");
        assert!(matches!(marker, Written::Done { .. }));
        world
    }

    async fn engine(&self, store: &Arc<memory::Store>) -> Result<Engine, BuildError> {
        let builder = Engine::builder(Arc::clone(store) as Arc<dyn Store>).name("ada");
        builder.on(Arc::new(self.hands.clone()), Arc::new(SystemRandom), Arc::new(Nowhere)).build().await
    }

    /// Why no node starts on the target.
    async fn refusal(&self) -> BuildError {
        self.engine(&self.target).await.err().expect("no node starts on a partial copy")
    }

    async fn copy(&self) -> Result<Report, Error> {
        self.copy_to(&*self.target).await
    }

    async fn copy_to(&self, target: &dyn Store) -> Result<Report, Error> {
        self.copy_from_to(&*self.source, target).await
    }

    async fn copy_from_to(&self, source: &dyn Store, target: &dyn Store) -> Result<Report, Error> {
        Copy { source, target, clock: &self.hands, nodes_have_ended: false }.run(&mut |_| {}).await
    }
}

async fn setting(store: &dyn Store, name: &str) -> Option<Bytes> {
    let settings = store.settings().await.expect("an answer");
    settings.into_iter().find_map(|(known, value)| (known == name).then_some(value))
}

#[tokio::test]
async fn every_state_and_every_byte_arrives() {
    let world = World::new().await;
    let report = world.copy().await.expect("copied");
    assert_eq!((report.records_total(), report.markers, report.found_there), (700, 1, 0));
    assert!(report.records.len() == 7 && report.records.values().all(|count| *count == 100), "{report:?}");
    for number in 0..700 {
        let there = world.target.get(id(number)).await.expect("an answer");
        let entry = there.entry.expect("it is stored").expect("it can be read");
        let own = record(number, StateName::ALL[usize::try_from(number % 7).expect("small")]);
        assert_eq!(codec::encode(&entry), codec::encode_record(&own), "{number}");
    }
    assert_eq!(
        setting(&*world.target, "secrets").await.expect("copied"),
        setting(&*world.source, "secrets").await.expect("made by the engine")
    );
    world.engine(&world.target).await.expect("a node starts on a complete copy");
}

/// A node that starts on the target must notice a clock behind the source's, and must not compare its own uptime with
/// that of the machine that wrote the source's time.
#[tokio::test]
async fn the_time_mark_is_copied_without_its_uptime() {
    let world = World::new().await;
    let before = setting(&*world.source, "clock").await.expect("the engine wrote it");
    assert!(String::from_utf8_lossy(&before).contains("the boot of"), "{before:?}");
    world.copy().await.expect("copied");
    let json = |bytes: Bytes| -> serde_json::Value { serde_json::from_slice(&bytes).expect("JSON") };
    let (before, after) = (json(before), json(setting(&*world.target, "clock").await.expect("copied")));
    assert_eq!((&after["at_ms"], &after["now_ms"]), (&before["at_ms"], &before["now_ms"]));
    assert_eq!((after.get("boot"), after["uptime_ms"].as_u64()), (None, Some(0)));
    assert!(after["steady_since_ms"].is_u64(), "{after}");
}

#[tokio::test]
async fn a_copy_is_another_store_with_an_id_of_its_own() {
    let world = World::new().await;
    let source = world.engine(&world.source).await.expect("an engine");
    let source_id = source.store_id().await.expect("an answer");
    source.shutdown(Duration::from_secs(5)).await;
    let report = world.copy().await.expect("copied");
    assert!(!report.settings.iter().any(|name| name == "store-id"), "{report:?}");
    assert_eq!(setting(&*world.target, "store-id").await, None);
    let target = world.engine(&world.target).await.expect("a node starts on the copy");
    assert_ne!(target.store_id().await.expect("an answer"), source_id);
}

#[tokio::test]
async fn an_interrupted_copy_blocks_nodes_and_can_be_completed() {
    let world = World::new().await;
    let inserted = AtomicU64::new(0);
    let plan = move |call: &Call| {
        let breaks = call.question == Question::Insert && inserted.fetch_add(1, Ordering::SeqCst) >= 300;
        if breaks { Fault::FailBefore } else { Fault::Pass }
    };
    let broken = Faulty::new(Arc::clone(&world.target) as Arc<dyn Store>, plan);
    let failed = world.copy_to(&broken).await.expect_err("the target broke");
    assert!(matches!(failed, Error::Target(_)) && !failed.is_refusal(), "{failed}");
    let refused = world.refusal().await;
    assert!(matches!(refused, BuildError::Secrets(secrets::Error::Copying)), "{refused}");
    let report = world.copy().await.expect("completed");
    assert_eq!((report.records_total(), report.found_there), (700, 300));
    world.engine(&world.target).await.expect("a node starts now");
    let again = world.copy().await.expect_err("it has an ID of its own by now");
    assert!(matches!(again, Error::TargetUsed), "{again}");
}

#[tokio::test]
async fn lost_answers_are_resolved() {
    let world = World::new().await;
    let plan = |call: &Call| {
        if call.question.is_write() && call.number.is_multiple_of(3) { Fault::FailAfter } else { Fault::Pass }
    };
    let lossy = Faulty::new(Arc::clone(&world.target) as Arc<dyn Store>, plan);
    let report = world.copy_to(&lossy).await.expect("copied");
    assert_eq!((report.records_total(), report.markers), (700, 1));
}

/// The source, on which the one registered node renews its registration when its settings are read for the `nth` time.
fn with_a_live_node(source: &Arc<memory::Store>, nth: u64) -> Faulty {
    let (alive, reads) = (Arc::clone(source), AtomicU64::new(0));
    let plan = move |call: &Call| {
        if call.question == Question::Settings && reads.fetch_add(1, Ordering::SeqCst) == nth {
            let beat = async {
                let settings = alive.settings().await.expect("an answer");
                let (name, value) =
                    settings.iter().find(|(name, _)| name.starts_with("secrets.node.")).expect("registered");
                let next = String::from_utf8_lossy(value).replace("\"beat\":", "\"beat\":1");
                assert_eq!(
                    alive.set(name, Some(value), Some(next.as_bytes())).await.expect("an answer"),
                    Setting::Done
                );
            };
            futures_util::future::FutureExt::now_or_never(beat).expect("a memory store answers at once");
        }
        Fault::Pass
    };
    Faulty::new(Arc::clone(source) as Arc<dyn Store>, plan)
}

#[tokio::test]
async fn a_live_node_is_noticed_although_its_end_was_confirmed() {
    let world = World::new().await;
    let engine = world.engine(&world.source).await.expect("an engine");
    let copy = |source| Copy { source, target: &*world.target, clock: &world.hands, nodes_have_ended: true };
    // The settings are read every half second: this is after 10 seconds.
    let source = with_a_live_node(&world.source, 20);
    let refused = copy(&source).run(&mut |_| {}).await.expect_err("it is in use");
    assert!(matches!(&refused, Error::InUse(nodes) if nodes == &["ada"]), "{refused}");
    assert!(refused.is_refusal());
    assert!(world.engine(&world.target).await.is_err(), "no node starts on a target that is still empty");
    drop(engine);
    let begun = world.hands.uptime();
    assert_eq!(copy(&*world.source).run(&mut |_| {}).await.expect("copied").records_total(), 700);
    let watched = world.hands.uptime().saturating_sub(begun);
    assert!(watched >= Copy::CONFIRMED_WATCH && watched < Duration::from_secs(30), "{watched:?}");
}

#[tokio::test]
async fn a_source_with_a_live_node_is_refused() {
    let world = World::new().await;
    let engine = world.engine(&world.source).await.expect("an engine");
    let source = with_a_live_node(&world.source, 5);
    let refused = world.copy_from_to(&source, &*world.target).await.expect_err("it is in use");
    assert!(matches!(&refused, Error::InUse(nodes) if nodes == &["ada"]), "{refused}");
    assert!(refused.is_refusal());
    assert!(world.engine(&world.target).await.is_err(), "no node starts on a target that is still empty");
    // It dies silently.
    drop(engine);
    let (begun, mut watched) = (world.hands.uptime(), 0);
    let copy =
        Copy { source: &*world.source, target: &*world.target, clock: &world.hands, nodes_have_ended: false };
    let copied =
        copy.run(&mut |progress| watched += u32::from(matches!(progress, Progress::Watching { .. }))).await;
    assert_eq!(copied.expect("copied").records_total(), 700);
    assert!(
        watched > 0 && world.hands.uptime() >= begun + Duration::from_secs(90),
        "it was watched until its registration expired"
    );
    let settings = world.target.settings().await.expect("an answer");
    assert!(
        settings.iter().all(|(name, _)| !name.starts_with("secrets.node.")),
        "no node of the source works here"
    );
}

#[tokio::test]
async fn a_source_that_changes_is_noticed_before_nodes_can_start() {
    let world = World::new().await;
    let (alive, pages) = (Arc::clone(&world.source), AtomicU64::new(0));
    let plan = move |call: &Call| {
        if call.question == Question::Page && pages.fetch_add(1, Ordering::SeqCst) == 2 {
            let joining = alive.set("secrets.node.0f", None, Some(b"{}"));
            let joined = futures_util::future::FutureExt::now_or_never(joining).expect("at once");
            assert_eq!(joined.expect("an answer"), Setting::Done);
        }
        Fault::Pass
    };
    let source = Faulty::new(Arc::clone(&world.source) as Arc<dyn Store>, plan);
    let failed = world.copy_from_to(&source, &*world.target).await.expect_err("it was changed");
    assert!(matches!(failed, Error::SourceChanged), "{failed}");
    world.refusal().await;
}

#[tokio::test]
async fn a_target_that_is_not_empty_is_refused_unchanged() {
    let world = World::new().await;
    let stranger = record(9_000, StateName::Succeeded);
    let written = world.target.write(id(9_000), Change::Insert(&stranger)).await.expect("an answer");
    assert!(matches!(written, Written::Done { .. }));
    assert!(matches!(world.copy().await, Err(Error::TargetUsed)));
    assert!(world.target.settings().await.expect("an answer").is_empty());

    let world = World::new().await;
    drop(world.engine(&world.target).await.expect("an engine"));
    assert!(matches!(world.copy().await, Err(Error::TargetUsed)));

    let (world, other) = (World::new().await, World::new().await);
    let inserts = AtomicU64::new(0);
    let broken = Faulty::new(Arc::clone(&world.target) as Arc<dyn Store>, move |call: &Call| {
        let is_later = call.question == Question::Insert && inserts.fetch_add(1, Ordering::SeqCst) > 0;
        if is_later { Fault::FailBefore } else { Fault::Pass }
    });
    world.copy_to(&broken).await.expect_err("it broke");
    let refused = other.copy_to(&*world.target).await.expect_err("another source");
    assert!(matches!(refused, Error::OtherCopy), "{refused}");
    assert!(matches!(
        world.copy_from_to(&*world.target, &*other.target).await,
        Err(Error::Secret(secrets::Error::Copying))
    ));
}

/// A missing record would run again, so nothing may be left out.
#[tokio::test]
async fn a_record_that_cannot_be_read_stops_the_copy() {
    let world = World::new().await;
    assert!(world.source.overwrite(id(30), vec![1, 2, 3]).expect("it is stored"));
    let failed = world.copy().await.expect_err("one cannot be read");
    let Error::Unreadable { operation_ids, .. } = &failed else { panic!("{failed}") };
    assert_eq!(operation_ids, &[OperationId::of(&id(30))]);
    world.refusal().await;
}

#[tokio::test]
async fn a_difference_after_copying_is_found() {
    let world = World::new().await;
    let (altered, gets) = (Arc::clone(&world.target), AtomicU64::new(0));
    let plan = move |call: &Call| {
        // As soon as it is read back.
        if call.question == Question::Get && gets.fetch_add(1, Ordering::SeqCst) == 0 {
            let other = codec::encode_record(&record(500, StateName::Succeeded));
            assert!(altered.overwrite(id(499), other).expect("it is stored"));
        }
        Fault::Pass
    };
    let target = Faulty::new(Arc::clone(&world.target) as Arc<dyn Store>, plan);
    let failed = world.copy_to(&target).await.expect_err("it differs");
    assert!(matches!(failed, Error::Differs(id_there) if id_there == OperationId::of(&id(499))), "{failed}");

    let world = World::new().await;
    let (altered, tallies) = (Arc::clone(&world.target), AtomicU64::new(0));
    let plan = move |call: &Call| {
        if call.question == Question::Get && tallies.fetch_add(1, Ordering::SeqCst) == 0 {
            let own = record(9_000, StateName::Succeeded);
            let adding = altered.write(id(9_000), Change::Insert(&own));
            let added =
                futures_util::future::FutureExt::now_or_never(adding).expect("at once").expect("an answer");
            assert!(matches!(added, Written::Done { .. }));
        }
        Fault::Pass
    };
    let target = Faulty::new(Arc::clone(&world.target) as Arc<dyn Store>, plan);
    let failed = world.copy_to(&target).await.expect_err("one too many");
    assert!(matches!(failed, Error::Miscounted { source: 701, target: 702 }), "{failed}");
}

/// An unused store has no secret by which its keys could be recognised.
#[tokio::test]
async fn a_source_without_a_secret_is_refused() {
    let world = World::new().await;
    let empty = memory::Store::new();
    assert!(matches!(world.copy_from_to(&empty, &*world.target).await, Err(Error::NothingToCopy)));
}

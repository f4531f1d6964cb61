//! An unknown outcome is probed, resolved by an operator, or reported by its owner.

use super::world::{World, charge, intent, intent_under, never, secs};
use semel::core::machine::{Refusal, Verdict};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::{Record, State, StateName};
use semel::core::time::Time;
use semel::{
    Builder, Case, Claimed, Engine, Failed, Finding, OperatorError, Probe, Reconcile, RequestOutcome,
    RunError, RunErrorReason, Settings, Sweep,
};
use semel_testkit::faults::{Fault, Gate, Question};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A provider, how often it is probed, and its answer.
#[derive(Clone)]
struct Provider {
    answer: Arc<Mutex<Finding>>,
    probes: Arc<AtomicU32>,
}

impl Provider {
    fn answering(finding: Finding) -> Self {
        Self { answer: Arc::new(Mutex::new(finding)), probes: Arc::default() }
    }

    fn reconciles(&self, builder: Builder) -> Builder {
        let provider = self.clone();
        builder.reconciler("POST /charges", move |_: Case| {
            provider.probes.fetch_add(1, Ordering::SeqCst);
            std::future::ready(provider.answer.lock().expect("no panic").clone())
        })
    }

    fn probes(&self) -> u32 {
        self.probes.load(Ordering::SeqCst)
    }
}

async fn lose(engine: &Engine) {
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    let result = engine.run(intent("k", "5"), lost).await;
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::Failed(Failed::InDoubt(_)), .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_providers_answer_settles_a_doubt_at_once() {
    let world = World::new();
    let provider = Provider::answering(Finding::Applied(Some(Outcome::value("7"))));
    let engine = world.engine_with(|builder| provider.reconciles(builder)).await;
    lose(&engine).await;
    world.pass(secs(2)).await;
    assert_eq!((provider.probes(), world.record().await.state_name()), (1, StateName::Succeeded));
    let done = engine.run(intent("k", "5"), never).await.expect("the provider's answer");
    assert_eq!((done.value, done.replayed), (7, true));
    assert!(world.saw("Reconciled"));
}

#[tokio::test]
async fn not_found_counts_only_after_the_quiet_period() {
    let world = World::new();
    let provider = Provider::answering(Finding::NotFound);
    let engine = world.engine_with(|builder| provider.reconciles(builder)).await;
    lose(&engine).await;
    world.pass(secs(90)).await;
    assert!(provider.probes() >= 1);
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "95 s of quiet are not over");
    world.pass(secs(40)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("the second attempt").value, 2);
}

#[tokio::test]
async fn a_silent_provider_is_probed_less_often_then_not_at_all() {
    let world = World::new();
    let provider = Provider::answering(Finding::NoAnswer);
    let engine = world.engine_with(|builder| provider.reconciles(builder)).await;
    lose(&engine).await;
    world.pass(secs(120)).await;
    let soon = provider.probes();
    assert!((6..=8).contains(&soon), "probed {soon} times in two minutes");
    for _ in 0..180 {
        world.skip(secs(58)).await;
    }
    let later = provider.probes();
    assert!(later - soon <= 25, "probed {} more times in three hours", later - soon);
    world.skip(secs(23 * 3600)).await;
    world.pass(secs(5)).await;
    assert!(world.saw("LeftToOperator"));
    let last = provider.probes();
    world.skip(secs(3600)).await;
    assert_eq!(provider.probes(), last, "no more probes");
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "and it is still unknown");
}

#[tokio::test]
async fn a_request_for_an_unknown_outcome_triggers_a_probe() {
    let world = World::new();
    let provider = Provider::answering(Finding::NoAnswer);
    let engine = world.engine_with(|builder| provider.reconciles(builder)).await;
    lose(&engine).await;
    world.skip(secs(3600)).await;
    *provider.answer.lock().expect("no panic") = Finding::Applied(Some(Outcome::value("7")));
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
    world.rest().await;
    assert_eq!(engine.run(intent("k", "5"), never).await.expect("settled").value, 7);
}

#[tokio::test]
async fn the_quiet_period_includes_the_clock_skew() {
    let world = World::new();
    let provider = Provider::answering(Finding::NotFound);
    let by_default = Settings::default();
    let engine = world.engine_with(|builder| provider.reconciles(builder.settings(by_default))).await;
    lose(&engine).await;
    world.pass(secs(98)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "95 s and 5 s are not over");
    world.pass(secs(5)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

/// A provider with its own probe interval.
struct Paced(Provider, Probe);

impl Reconcile for Paced {
    fn ask(&self, _: Case) -> Pin<Box<dyn Future<Output = Finding> + Send + '_>> {
        self.0.probes.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(self.0.answer.lock().expect("no panic").clone()))
    }

    fn pace(&self) -> Option<&Probe> {
        Some(&self.1)
    }
}

#[tokio::test]
async fn a_provider_is_believed_only_after_its_longer_quiet_period() {
    let world = World::new();
    let provider = Provider::answering(Finding::NotFound);
    let paced = Paced(provider.clone(), Probe { quiet: secs(300), ..Probe::default() });
    let engine = world.engine_with(|builder| builder.reconciler("POST /charges", paced)).await;
    lose(&engine).await;
    world.pass(secs(290)).await;
    assert!((7..=10).contains(&provider.probes()), "it may still appear: {}", provider.probes());
    assert_eq!(
        world.record().await.state_name(),
        StateName::Unknown,
        "95 s are the minimum, 300 s are requested"
    );
    world.pass(secs(20)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("the second attempt").value, 2);
}

#[tokio::test]
async fn a_shorter_quiet_period_than_the_records_own_changes_nothing() {
    let world = World::new();
    let paced = Paced(Provider::answering(Finding::NotFound), Probe { quiet: secs(1), ..Probe::default() });
    let engine = world.engine_with(|builder| builder.reconciler("POST /charges", paced)).await;
    lose(&engine).await;
    world.pass(secs(90)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown);
}

#[tokio::test]
async fn each_provider_is_probed_at_its_own_pace() {
    let world = World::new();
    let provider = Provider::answering(Finding::NoAnswer);
    let pace = Probe { give_up_after: secs(30), timeout: secs(1), min: secs(5), ..Probe::default() };
    let paced = Paced(provider.clone(), pace);
    let engine = world.engine_with(|builder| builder.reconciler("POST /charges", paced)).await;
    lose(&engine).await;
    world.pass(secs(120)).await;
    assert!((3..=5).contains(&provider.probes()), "{}", provider.probes());
    assert!(world.saw("LeftToOperator"));
}

/// Until then the next request settles it, and the answer to a repeat is better proof than a probe.
#[tokio::test]
async fn a_deduplicating_provider_is_probed_only_after_its_window() {
    let world = World::new();
    let provider = Provider::answering(Finding::NoAnswer);
    let paced = Paced(provider.clone(), Probe { give_up_after: secs(600), ..Probe::default() });
    let engine = world.engine_with(|builder| builder.reconciler("POST /charges", paced)).await;
    let window = secs(3600);
    let ask = || {
        intent_under(
            Policy::new(Class::Downstream).with(|policy| policy.dedup_window = window).expect("valid"),
            "k",
            "5",
        )
    };
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    for _ in 0..2 {
        assert!(matches!(
            engine.run(ask(), lost).await,
            Err(RunError { reason: RunErrorReason::Failed(Failed::InDoubt(_)), .. })
        ));
        world.pass(secs(120)).await;
    }
    assert_eq!((provider.probes(), world.record().await.attempt()), (0, 2));

    world.skip(window).await;
    assert!(provider.probes() > 0, "only a probe can settle it now");
    assert!(!world.saw("LeftToOperator"), "the probe period starts with the first probe");
    assert!(matches!(engine.run(ask(), never).await, Err(RunError { reason: RunErrorReason::Unknown, .. })));
    *provider.answer.lock().expect("no panic") = Finding::Applied(Some(Outcome::value("7")));
    world.pass(secs(300)).await;
    assert_eq!(engine.run(ask(), never).await.expect("the provider's answer").value, 7);
}

#[tokio::test]
async fn the_reconciler_is_looked_up_for_each_probe() {
    let world = World::new();
    let provider = Provider::answering(Finding::Applied(Some(Outcome::value("7"))));
    let listed: Arc<Mutex<Option<Arc<dyn Reconcile>>>> = Arc::default();
    let directory = Arc::clone(&listed);
    let engine = world
        .engine_with(|builder| {
            builder.reconcilers(move |operation| {
                directory.lock().expect("no panic").clone().filter(|_| operation == "POST /charges")
            })
        })
        .await;
    lose(&engine).await;
    world.pass(secs(10)).await;
    assert!(!engine.has_reconciler("POST /charges"));
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "no reconciler yet");
    *listed.lock().expect("no panic") = Some(Arc::new(Paced(provider.clone(), Probe::default())));
    assert!(engine.has_reconciler("POST /charges") && !engine.has_reconciler("POST /refunds"));
    world.pass(secs(2)).await;
    assert_eq!((provider.probes(), world.record().await.state_name()), (1, StateName::Succeeded));
}

#[tokio::test]
async fn a_new_reconciler_per_probe_does_not_lift_the_limit() {
    let world = World::new();
    let running = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&running);
    let engine = world
        .engine_with(|builder| {
            builder.reconcilers(move |_| {
                let counted = Arc::clone(&counted);
                let hangs = move |_: Case| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    std::future::pending()
                };
                Some(Arc::new(hangs))
            })
        })
        .await;
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    for number in 0..1_000 {
        drop(engine.run(intent(&format!("key-{number}"), "5"), lost).await);
    }
    world.pass(secs(10)).await;
    assert_eq!(running.load(Ordering::SeqCst), 128, "twice the total, and none has timed out yet");
}

#[tokio::test]
async fn an_operator_settles_an_unknown_and_appears_in_its_history() {
    let world = World::new();
    let engine = world.engine().await;
    lose(&engine).await;
    let operation_id = world.record().await.operation_id();
    let applied = Verdict::Applied(Some(Outcome::value("7")));
    let record =
        engine.resolve(operation_id, applied, "ann", "seen in the bank's list").await.expect("settled");
    let last = record.history().entries().last().expect("a history");
    assert_eq!((&*last.who, &*last.why), ("ann", "resolved as applied: seen in the bank's list"));
    assert_eq!(engine.run(intent("k", "5"), never).await.expect("the outcome").value, 7);
    let again = engine.resolve(operation_id, Verdict::Refused, "bob", "no").await;
    assert!(matches!(again, Err(OperatorError::Refused(Refusal::WrongState))), "{again:?}");
    let released = engine.release(operation_id, "bob", "no").await;
    assert!(matches!(released, Err(OperatorError::Refused(Refusal::WrongState))), "{released:?}");
}

#[tokio::test]
async fn an_operator_releases_a_key_without_effect() {
    let world = World::new();
    let engine = world.engine().await;
    let busy = |_| async { Err::<u32, _>(Failed::NotApplied("busy".into())) };
    drop(engine.run(intent("k", "5"), busy).await);
    assert!(matches!(
        engine.run(intent("k", "6"), never).await,
        Err(RunError { reason: RunErrorReason::Mismatch, .. })
    ));
    engine
        .release(world.record().await.operation_id(), "ann", "typed the wrong amount")
        .await
        .expect("released");
    assert_eq!(engine.run(intent("k", "6"), charge).await.expect("another payload").value, 2);
    let unknown = semel::core::id::OperationId::from_bytes([9; 16]);
    assert!(matches!(engine.release(unknown, "ann", "?").await, Err(OperatorError::NotFound)));
}

#[tokio::test]
async fn a_provider_that_panics_is_probed_again() {
    let world = World::new();
    let probes = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&probes);
    let asks = move |_: Case| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            assert!(!is_first, "a panic for the test");
            Finding::Applied(Some(Outcome::value("7")))
        }
    };
    let engine = world.engine_with(|builder| builder.reconciler("POST /charges", asks)).await;
    lose(&engine).await;
    world.pass(secs(120)).await;
    assert_eq!((probes.load(Ordering::SeqCst), world.record().await.state_name()), (2, StateName::Succeeded));
}

#[tokio::test]
async fn a_waiter_learns_whether_a_retry_may_settle_the_doubt() {
    for (class, expected) in [(Class::External, false), (Class::Downstream, true)] {
        let world = World::new();
        let engine = world.engine().await;
        let claimed = || intent_under(Policy::new(class), "k", "5");
        let doubt = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
        assert!(engine.run(claimed(), doubt).await.is_err());
        let duplicate = intent_under(Policy::new(Class::External), "k", "5");
        let result = engine.attend(&duplicate).await.expect("an answer").outcome;
        assert!(
            matches!(result, RequestOutcome::Unknown { repeatable } if repeatable == expected),
            "{class}: {result:?}"
        );
        world.skip(secs(24 * 3600)).await;
        let result = engine.attend(&duplicate).await.expect("an answer").outcome;
        assert!(matches!(result, RequestOutcome::Unknown { repeatable: false }), "{class}: {result:?}");
    }
}

/// The doubt in a record: the number of probes, and when the next one is due.
fn probe_state(record: &Record) -> (u32, Option<Time>) {
    match *record.state() {
        State::Unknown { probes, next_probe_at, .. } => (probes, next_probe_at),
        ref other => panic!("{other:?} is not in doubt"),
    }
}

#[tokio::test]
async fn a_doubt_without_reconciler_is_postponed_without_a_trace() {
    let world = World::new();
    let engine = world.engine().await;
    lose(&engine).await;
    let before = world.record().await;
    world.pass(secs(11 * 60)).await;
    engine.sweep().await.expect("the store answers");
    let after = world.record().await;
    let (probes, next) = probe_state(&after);
    assert!(next > probe_state(&before).1, "later than the next rounds: {next:?}");
    assert_eq!(probes, 0, "there was no probe");
    assert_eq!(after.updated_at(), before.updated_at(), "the record has not changed");
    assert_eq!(after.history(), before.history());
}

#[tokio::test]
async fn a_doubt_without_reconciler_is_not_sweep_lag() {
    let world = World::new();
    let engine = world.engine_with(|builder| {
        builder
            .settings(Settings { sweep: Sweep { every: secs(0), ..Sweep::default() }, ..Settings::default() })
    });
    let engine = engine.await;
    lose(&engine).await;
    world.skip(secs(300)).await;
    let swept = engine.sweep().await.expect("the store answers");
    assert!(swept.to_probe > 0, "{swept:?}");
    assert_eq!(swept.lag, secs(0));
}

#[tokio::test]
async fn every_probe_is_counted_exactly_once() {
    let world = World::new();
    let provider = Provider::answering(Finding::NotFound);
    let engine = world.engine_with(|builder| provider.reconciles(builder)).await;
    // The owner went silent: absence proves nothing before the quiet period is over.
    let claimed = engine.claim(&intent("k", "5")).await.expect("a claim");
    let Claimed::Leased(lease) = claimed else { panic!("it is free") };
    drop(lease);
    world.pass(secs(80)).await;
    assert!(provider.probes() > 1, "the quiet period is not over: {}", provider.probes());
    assert_eq!(probe_state(&world.record().await).0, provider.probes());
}

#[tokio::test]
async fn a_silent_owner_is_reported_once() {
    for is_retried in [false, true] {
        let world = World::new();
        let engine = world.engine_with(|builder| {
            let sweep = Sweep { every: secs(0), ..Sweep::default() };
            builder.settings(Settings { sweep, ..Settings::default() })
        });
        let engine = engine.await;
        let claimed = engine.claim(&intent("k", "5")).await.expect("a claim");
        let Claimed::Leased(lease) = claimed else { panic!("it is free") };
        drop(lease);
        world.skip(secs(120)).await;
        if is_retried {
            let result = engine.run(intent("k", "5"), never).await;
            assert!(matches!(result, Err(RunError { reason: RunErrorReason::Unknown, .. })), "{result:?}");
        }
        engine.sweep().await.expect("the store answers");
        assert_eq!(world.times_seen("Lapsed"), 1, "retried: {is_retried}");
        let record = world.record().await;
        let last = record.history().entries().last().expect("an entry");
        assert_eq!(&*last.why, "the owner went silent and its lease ran out");
    }
}

/// The store takes the verdict, but its answer is lost, and the next attempt ends before the operator's node reads again.
#[tokio::test]
async fn a_lost_verdict_is_in_doubt_after_the_next_attempt() {
    let world = World::new();
    let engine = world.engine().await;
    lose(&engine).await;
    let id = world.record().await.operation_id();
    let (gate, is_lost, is_held) = (Gate::new(), AtomicBool::new(false), AtomicBool::new(false));
    let pause = gate.clone();
    world.fate(move |call| match call.question {
        Question::Swap if !is_lost.swap(true, Ordering::SeqCst) => Fault::FailAfter,
        Question::Get if !is_held.swap(true, Ordering::SeqCst) => Fault::DelayBefore(pause.pause()),
        _ => Fault::Pass,
    });
    let resolving = tokio::spawn({
        let engine = engine.clone();
        async move { engine.resolve(id, Verdict::Refused, "ann", "the bank refuses it").await }
    });
    world.rest().await;
    assert!(gate.is_waited_for());
    lose(&engine).await;
    gate.open();
    let resolved = resolving.await.expect("no panic");
    assert!(matches!(&resolved, Err(OperatorError::Store(error)) if error.is_ambiguous()), "{resolved:?}");
    let record = world.record().await;
    assert_eq!((record.attempt(), record.state_name()), (2, StateName::Unknown));
}

#[tokio::test]
async fn who_resolved_a_doubt_is_reported() {
    let world = World::new();
    let engine = world.engine().await;
    lose(&engine).await;
    let id = world.record().await.operation_id();
    engine.resolve(id, Verdict::Applied(None), "ann", "seen").await.expect("settled");
    assert!(world.saw("by: Operator") && !world.saw("by: Reconciler"));
    engine.resolve(id, Verdict::Applied(None), "ann", "seen").await.expect_err("it is settled");
    assert_eq!(world.times_seen("Reconciled"), 1, "a refused verdict resolves nothing");
}

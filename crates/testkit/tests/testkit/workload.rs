//! The workload has at most one effect per key on a correct store, and detects incorrect stores.

use semel_core::id::CommandId;
use semel_core::record::Record;
use semel_core::store::{Change, Delegate, Pending, Reading, Store, Written};
use semel_test_support::ScratchDir;
use semel_testkit::Subject;
use semel_testkit::faults::{Fault, FaultRates, Faulty, Question, Seeded};
use semel_testkit::history::Recorder;
use semel_testkit::linearizability::{self, STEPS_MAX, Verdict};
use semel_testkit::workload::{
    Audit, Event, FileJournal, Journal, MemoryJournal, Note, Report, Workload, audit,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SMALL: Workload = Workload {
    keys: 60,
    duplicates: 3,
    concurrency: 4,
    seed: 1,
    tries_max: 200,
    retry_pause: Duration::ZERO,
};

fn memory() -> Arc<dyn Store> {
    Arc::clone(Subject::memory().store())
}

/// Runs three nodes on `store` and audits them; returns also their calls and answers.
async fn three_nodes(workload: Workload, store: Arc<dyn Store>) -> (Report, Audit, Verdict) {
    let recorder = Recorder::in_memory("auditor");
    let node = |name: &str| -> (String, Arc<dyn Store>) {
        (name.to_owned(), recorder.node(name).record(Arc::clone(&store)))
    };
    let journal = Arc::new(MemoryJournal::default());
    let shared: Arc<dyn Journal> = Arc::clone(&journal) as Arc<dyn Journal>;
    let report = workload.run(&["a", "b", "c"].map(node), &shared).await;
    let auditor = recorder.record(store);
    let audit = audit(&workload, &*auditor, &journal.notes()).await.expect("an answer");
    (report, audit, linearizability::check(&recorder.history(), STEPS_MAX))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_key_has_one_effect_and_its_outcome_is_kept() {
    let (report, audit, verdict) = three_nodes(SMALL, memory()).await;
    let expected = Audit { finished: 60, effects: 60, ..Audit::default() };
    assert_eq!(audit, expected);
    assert_eq!((report.requests, report.claimed, report.finished), (540, 60, 60));
    assert_eq!(report.replayed + report.in_progress, 480);
    assert_eq!(report.violations, [""; 0]);
    verdict.assert_linearizable();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_and_late_answers_cause_no_second_effect() {
    for seed in 0..5 {
        let odds = FaultRates { fail_before: 50, fail_after: 100, late: 100, twice: 50 };
        let store = memory();
        let faulty = Arc::new(Faulty::new(Arc::clone(&store), Seeded::new(seed, odds)));
        let late = Arc::clone(&faulty);
        let delivering = tokio::spawn(async move {
            loop {
                let _ = late.deliver().await;
                tokio::task::yield_now().await;
            }
        });
        let workload = Workload { seed, ..SMALL };
        let recorder = Recorder::in_memory("auditor");
        let node = |name: &str| -> (String, Arc<dyn Store>) {
            let store = Arc::clone(&faulty) as Arc<dyn Store>;
            (name.to_owned(), recorder.node(name).record(store))
        };
        let journal = Arc::new(MemoryJournal::default());
        let shared: Arc<dyn Journal> = Arc::clone(&journal) as Arc<dyn Journal>;
        let report = workload.run(&["a", "b", "c"].map(node), &shared).await;
        delivering.abort();
        while faulty.deliver().await.is_some() {}
        let audit = audit(&workload, &*recorder.record(store), &journal.notes()).await.expect("an answer");
        assert_eq!((&report.violations[..], &audit.violations[..]), (&[][..], &[][..]), "seed {seed}");
        assert!(report.recognised > 0 && audit.effects > 50, "seed {seed}: {report:?}, {audit:?}");
        linearizability::check(&recorder.history(), STEPS_MAX).assert_linearizable();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_node_causes_no_second_effect() {
    let dir = ScratchDir::new("workload");
    let (store, workload) = (memory(), Workload { keys: 2_000, ..SMALL });
    let run = |name: &'static str| {
        let store = Arc::clone(&store);
        let journal = FileJournal::open(dir.join("journal")).expect("a file");
        tokio::spawn(async move {
            let journal: Arc<dyn Journal> = Arc::new(journal);
            workload.run_node(name, &store, &journal).await
        })
    };
    let (killed, other) = (run("a"), run("b"));
    while FileJournal::read(dir.join("journal")).expect("a journal").len() < 300 {
        tokio::task::yield_now().await;
    }
    killed.abort();
    let report = other.await.expect("no panic");
    // An aborted task runs to its next await point.
    drop(killed.await);
    let again = run("a, again").await.expect("no panic");
    assert_eq!((report.violations, again.violations), (Vec::new(), Vec::new()));
    let notes = FileJournal::read(dir.join("journal")).expect("a journal");
    let audit = audit(&workload, &*store, &notes).await.expect("an answer");
    assert_eq!(audit.violations, [""; 0]);
    assert_eq!(audit.finished + audit.unfinished, 2_000);
    assert!(audit.effects >= audit.finished);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    ConflictIsSuccess,
    LosesFinishes,
    AmbiguousIsRefused,
    StaleRefusals,
}

/// A store that is wrong in one way: at every tenth call that gives it the occasion.
struct WrongStore {
    inner: Arc<dyn Store>,
    wrong: Wrong,
    occasions: AtomicU64,
}

impl WrongStore {
    fn over(inner: Arc<dyn Store>, wrong: Wrong) -> Arc<dyn Store> {
        Arc::new(Self { inner, wrong, occasions: AtomicU64::new(0) })
    }

    fn strikes(&self) -> bool {
        self.occasions.fetch_add(1, Ordering::SeqCst) % 10 == 9
    }
}

impl Delegate for WrongStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            let is_finish = matches!(change, Change::Replace(..));
            if is_finish && self.wrong == Wrong::LosesFinishes && self.strikes() {
                return Ok(Written::Done { now: self.inner.get(id).await?.now });
            }
            match (self.inner.write(id, change).await, self.wrong) {
                (Ok(Written::Refused(reading)), Wrong::ConflictIsSuccess) if self.strikes() => {
                    Ok(Written::Done { now: reading.now })
                }
                (Ok(Written::Refused(reading)), Wrong::StaleRefusals) if self.strikes() => {
                    Ok(Written::Refused(Reading::nothing(reading.now)))
                }
                (Err(error), Wrong::AmbiguousIsRefused) if error.is_ambiguous() => {
                    Ok(Written::Refused(self.inner.get(id).await?))
                }
                (answer, _) => answer,
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_conflict_taken_for_success_is_caught() {
    let (_, audit, verdict) = three_nodes(SMALL, WrongStore::over(memory(), Wrong::ConflictIsSuccess)).await;
    assert!(audit.violations.iter().any(|what| what.contains("effects: ")), "{audit:?}");
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_acknowledged_outcome_that_was_lost_is_caught() {
    let (_, audit, verdict) = three_nodes(SMALL, WrongStore::over(memory(), Wrong::LosesFinishes)).await;
    assert!(audit.violations.iter().any(|what| what.contains("acknowledged and is lost")), "{audit:?}");
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_ambiguous_write_read_as_refused_is_caught() {
    let lossy = |call: &semel_testkit::faults::Call| match call.question {
        Question::Insert if call.number % 7 == 3 => Fault::FailAfter,
        _ => Fault::Pass,
    };
    let faulty: Arc<dyn Store> = Arc::new(Faulty::new(memory(), lossy));
    let (_, _, honest) = three_nodes(SMALL, Arc::clone(&faulty)).await;
    honest.assert_linearizable();
    let faulty: Arc<dyn Store> = Arc::new(Faulty::new(memory(), lossy));
    let (_, audit, verdict) = three_nodes(SMALL, WrongStore::over(faulty, Wrong::AmbiguousIsRefused)).await;
    let Verdict::Violation(violation) = verdict else { panic!("{verdict}") };
    assert!(violation.shows_the_unwritten, "{violation}");
    assert!(audit.unfinished > 0, "no request owns a write that was answered as refused: {audit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refusal_that_shows_the_past_is_caught() {
    let (_, _, verdict) = three_nodes(SMALL, WrongStore::over(memory(), Wrong::StaleRefusals)).await;
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict}");
}

#[tokio::test]
async fn an_audit_finds_lost_claims_and_outcomes_without_effect() {
    let store = memory();
    let journal = Arc::new(MemoryJournal::default());
    let workload = Workload { keys: 1, ..SMALL };
    let shared: Arc<dyn Journal> = Arc::clone(&journal) as Arc<dyn Journal>;
    workload.run_node("a", &store, &shared).await;
    let notes = journal.notes();
    let only = |event| notes.iter().copied().filter(|note| note.event == event).collect::<Vec<Note>>();
    let lost = audit(&workload, &*memory(), &only(Event::Claimed)).await.expect("an answer");
    assert!(lost.violations[0].contains("the claim") && lost.absent == 1, "{lost:?}");
    let unmade = audit(&workload, &*store, &only(Event::Finished)).await.expect("an answer");
    assert!(unmade.violations[0].contains("without its effect"), "{unmade:?}");
}

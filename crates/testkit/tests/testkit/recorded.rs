//! A recorder records what happened, also if a process is killed.

use semel::SystemClock;
use semel_core::id::CommandId;
use semel_core::store::{Change, Delegate, Kind, Pending, Store, Written};
use semel_test_support::ScratchDir;
use semel_testkit::Subject;
use semel_testkit::faults::{Fault, Faulty, Gate, Question, Script};
use semel_testkit::history::{Answer, Call, History, Operation, Recorder, Value};
use semel_testkit::linearizability::{self, STEPS_MAX};
use semel_testkit::workload::{Journal, MemoryJournal, Workload};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const ID: CommandId = CommandId::from_bytes([7; 32]);

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::clone(Subject::memory().store())
}

fn answers(history: &History) -> Vec<Option<Answer>> {
    history.operations().iter().map(|operation| operation.answer.map(|(_, answer)| answer)).collect()
}

#[test]
fn every_answer_is_recorded_in_order() {
    let recorder = Recorder::in_memory("a");
    let (one, other) = (recorder.record(memory()), recorder.node("b"));
    let _ = now(one.write(ID, Change::InsertMarker)).expect("an answer");
    let other = other.record(one);
    let _ = now(other.write(ID, Change::InsertMarker)).expect("an answer");
    let history = recorder.history();
    let marker = Some(Value::Marker);
    assert_eq!(
        answers(&history),
        [Some(Answer::Done), Some(Answer::Refused(marker)), Some(Answer::Refused(marker))]
    );
    // The last call is the inner one of the second: it started later and was answered earlier.
    let moments: Vec<_> = history
        .operations()
        .iter()
        .map(|call| (&*call.node, call.invoked_at, call.answer.expect("one").0))
        .collect();
    assert_eq!(moments, [("a", 0, 1), ("b", 2, 5), ("a", 3, 4)]);
}

#[test]
fn errors_say_whether_the_call_is_open() {
    let lines = [Fault::FailBefore, Fault::FailAfter];
    let faulty = Faulty::new(memory(), Script::of(Question::Insert, lines));
    let recorder = Recorder::in_memory("a");
    let store = recorder.record(Arc::new(faulty));
    for _ in 0..2 {
        now(store.write(ID, Change::InsertMarker)).expect_err("by plan");
    }
    let history = recorder.history();
    assert_eq!(answers(&history), [Some(Answer::Failed(Kind::Unavailable)), Some(Answer::Ambiguous)]);
    let open: Vec<_> = history.operations().iter().map(Operation::is_open).collect();
    assert_eq!(open, [false, true]);
}

#[test]
fn a_dropped_call_stays_open_and_an_unpolled_never_starts() {
    let gate = Gate::new();
    let faulty = Faulty::new(memory(), Script::of(Question::Insert, [Fault::DelayAfter(gate.pause())]));
    let recorder = Recorder::in_memory("a");
    let store = recorder.record(Arc::new(faulty));
    drop(store.get(ID));
    let mut write = store.write(ID, Change::InsertMarker);
    assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(write);
    let _ = now(store.get(ID)).expect("an answer");
    assert_eq!(answers(&recorder.history()), [None, Some(Answer::Read(Some(Value::Marker)))]);
    linearizability::check(&recorder.history(), STEPS_MAX).assert_linearizable();
}

/// A store that checks that a call was recorded before it arrived.
struct Looking {
    inner: Arc<dyn Store>,
    file: PathBuf,
}

impl Delegate for Looking {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write<'a>(
        &'a self,
        id: CommandId,
        change: Change<&'a semel_core::record::Record>,
    ) -> Pending<'a, Written> {
        let history = History::read(&self.file).expect("a history");
        let last = history.operations().last().expect("the call");
        assert_eq!((last.id, last.call, last.answer), (id, Call::Write(change.map(Value::of)), None));
        self.inner.write(id, change)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_hold_the_calls_of_several_nodes_in_one_order() {
    let dir = ScratchDir::new("histories");
    let store = memory();
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::default());
    let workload = Workload { keys: 20, ..Workload::default() };
    let mut nodes: Vec<(String, Arc<dyn Store>)> = Vec::new();
    for name in ["a", "b", "c"] {
        let recorder = Recorder::to_file(dir.join(name), name, Arc::new(SystemClock)).expect("a new file");
        nodes.push((name.to_owned(), recorder.record(Arc::clone(&store))));
    }
    workload.run(&nodes, &journal).await;
    let read = |name| History::read(dir.join(name)).expect("a history");
    let history = History::merged(["a", "b", "c"].map(read));
    assert!(history.operations().len() >= 180 && history.by_id().len() == 20);
    linearizability::check(&history, STEPS_MAX).assert_linearizable();
    assert!(Recorder::to_file(dir.join("a"), "a", Arc::new(SystemClock)).is_err(), "it was written before");
}

#[tokio::test]
async fn a_call_is_recorded_first_and_cut_lines_are_skipped() {
    let dir = ScratchDir::new("histories");
    let file = dir.join("a");
    let recorder = Recorder::to_file(&file, "a", Arc::new(SystemClock)).expect("a new file");
    let store = recorder.record(Arc::new(Looking { inner: memory(), file: file.clone() }));
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::default());
    let workload = Workload { keys: 2, duplicates: 2, concurrency: 1, ..Workload::default() };
    let report = workload.run_node("a", &store, &journal).await;
    assert_eq!((report.claimed, report.replayed), (2, 2));
    let _ = store.write(ID, Change::InsertMarker).await.expect("an answer");
    let _ = store.write(ID, Change::RemoveMarker).await.expect("an answer");

    let text = std::fs::read_to_string(&file).expect("text");
    let complete = History::read(&file).expect("a history");
    assert_eq!(complete.operations().len(), 8);
    for length in (0..text.len()).step_by(11) {
        std::fs::write(&file, &text[..length]).expect("a file");
        let cut = History::read(&file).expect("what a killed process has left");
        let lines = text[..length].matches('\n').count();
        let answered = cut.operations().iter().filter(|call| call.answer.is_some()).count();
        assert_eq!(cut.operations().len() + answered, lines, "{length} bytes");
        linearizability::check(&cut, STEPS_MAX).assert_linearizable();
    }
    std::fs::write(&file, text.replacen("\"call\":0", "\"call\":\"zero\"", 1)).expect("a file");
    assert!(History::read(&file).expect_err("nonsense").to_string().contains("line 1 is not an event"));
    std::fs::write(&file, text.split_once('\n').expect("lines").1).expect("a file");
    assert!(History::read(&file).expect_err("no beginning").to_string().contains("never started"));
}

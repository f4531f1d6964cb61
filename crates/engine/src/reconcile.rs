//! The reconciler: asks what became of an effect that nobody can prove.
//!
//! Contents: who is asked, when, how often, and until when. Never here: a verdict of its own. What an answer is
//! worth, and from when on "it is not there" counts, is for [`machine`] to say.

use crate::node::Node;
use crate::observe::Event;
use crate::questions::{Question, Questions};
use crate::settings::Probe;
use crate::tasks::Closing;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{self, Refusal, Verdict};
use semel_core::record::{Record, State};
use semel_core::store::Written;
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// What somebody who was asked about an effect says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It happened. With its outcome, later requests replay it; without, they learn that it happened.
    Applied(Option<semel_core::outcome::Outcome>),
    /// It was refused for good, with this answer.
    Failed(semel_core::outcome::Outcome),
    /// It is not there. Counts as soon as nobody can still send it.
    NotFound,
    /// It is not there and never will be: the system that was asked refuses this operation id from now on.
    Refused,
    /// The question could not be answered. It will be put again.
    NoAnswer,
}

/// An effect that nobody can prove.
#[derive(Debug, Clone)]
pub struct Case {
    /// The public name of the command, which the effect's own system was handed.
    pub operation_id: OperationId,
    /// The record.
    pub record: Arc<Record>,
}

/// Asks the system that an operation's effects happen in.
pub trait Reconcile: Send + Sync + 'static {
    /// What became of the effect?
    fn ask(&self, case: Case) -> Pin<Box<dyn Future<Output = Finding> + Send + '_>>;

    /// How often it may be asked, and for how long. As the engine is [set](crate::Settings::probe) otherwise. How
    /// many questions are under way at once is the engine's to say in any case: some to each, so that one who never
    /// answers is in nobody else's way.
    fn pace(&self) -> Option<&Probe> {
        None
    }
}

/// Any function from a case to a future.
impl<A, F> Reconcile for A
where
    A: Fn(Case) -> F + Send + Sync + 'static,
    F: Future<Output = Finding> + Send + 'static,
{
    fn ask(&self, case: Case) -> Pin<Box<dyn Future<Output = Finding> + Send + '_>> {
        Box::pin(self(case))
    }
}

/// From an operation's name to whom to ask about it.
type Directory = dyn Fn(&str) -> Option<Arc<dyn Reconcile>> + Send + Sync;

/// Who is asked about which operation, and about what it is time to ask.
#[derive(Default)]
pub(crate) struct Reconcilers {
    by_operation: BTreeMap<String, Arc<dyn Reconcile>>,
    /// Looked into for each question: who is in it may change.
    directory: Option<Box<Directory>>,
    questions: Mutex<Questions>,
    wake: Notify,
}

/// How often an answer is held against what is stored there now.
const ROUNDS_MAX: usize = 16;

impl Reconcilers {
    pub(crate) fn register(&mut self, operation: String, reconcile: Arc<dyn Reconcile>) {
        self.by_operation.insert(operation, reconcile);
    }

    pub(crate) fn look_into(&mut self, directory: Box<Directory>) {
        self.directory = Some(directory);
    }

    pub(crate) fn knows(&self, operation: &str) -> bool {
        self.of(operation).is_some()
    }

    fn of(&self, operation: &str) -> Option<Arc<dyn Reconcile>> {
        let named = self.by_operation.get(operation).cloned();
        named.or_else(|| self.directory.as_ref().and_then(|directory| directory(operation)))
    }

    /// Whether there will never be anybody to ask.
    fn is_empty(&self) -> bool {
        self.by_operation.is_empty() && self.directory.is_none()
    }

    /// It is time to ask about this one, or somebody waits for the answer. Tells whether anybody here can be asked.
    pub(crate) fn take_up(&self, id: CommandId, operation: &str) -> bool {
        let Some(asked) = self.of(operation) else { return false };
        self.questions().put(id, asked);
        self.wake.notify_one();
        true
    }

    fn next(&self, bounds: &Probe) -> Option<Question> {
        self.questions().next(bounds)
    }

    /// Makes room for the next one.
    fn answered(&self, question: &Question) {
        self.questions().answered(question);
        self.wake.notify_one();
    }

    fn questions(&self) -> std::sync::MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Starts the reconciler, where anybody can be asked.
pub(crate) fn begin(node: &Arc<Node>) {
    if node.reconcilers.is_empty() {
        return;
    }
    let reconciling = Arc::clone(node);
    node.spawn.spawn(Box::pin(async move {
        let node = reconciling;
        loop {
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                () = node.reconcilers.wake.notified() => {}
            }
            while let Some(question) = node.reconcilers.next(&node.settings.probe) {
                let open = Open { node: Arc::clone(&node), question };
                if node.tasks.is(Closing::Draining) {
                    return;
                }
                node.spawn.spawn(Box::pin(async move { ask(&open.node, open.question.id).await }));
            }
        }
    }));
}

/// A question under way, for as long as this lives: one whose reconciler panics is put again like any other.
struct Open {
    node: Arc<Node>,
    question: Question,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.node.reconcilers.answered(&self.question);
    }
}

/// Asks about one record, if it is still unknown, and stores what the answer is worth.
async fn ask(node: &Arc<Node>, id: CommandId) {
    let Ok(reading) = node.get(id).await else { return };
    let now = node.at(reading.now);
    if !now.can_claim() {
        // Nothing can be dated: not the answer, and not when to ask again.
        return;
    }
    let Some(record) = reading.record() else { return };
    let State::Unknown { since, probes, next_probe_at, .. } = *record.state() else { return };
    let Some(reconcile) = node.reconcilers.of(record.operation()) else { return };
    let from = machine::to_be_asked_from(record, now);
    if reading.now < from {
        // The next request settles it. Nobody is asked before none may any more.
        if next_probe_at.is_none_or(|at| at < from) {
            postpone(node, id, record, Some(from), reading.now).await;
        }
        return;
    }
    let pace = reconcile.pace().unwrap_or(&node.settings.probe);
    // Clients that retry every second are no reason to ask every second.
    let asked_lately = probes > 0 && reading.now.since(record.updated_at()) < pace.min;
    if asked_lately {
        return;
    }
    // Before the question: anyone who moves its time on is the one who asks. A node that dies over it costs one
    // pause.
    let (now, asked) = (reading.now, node.clock.uptime());
    let next = next_probe(pace, since.max(from), probes, now);
    let Some(record) = postpone(node, id, record, next, now).await else { return };
    let operation_id = record.operation_id();
    let record = Arc::new(record);
    let case = Case { operation_id, record: Arc::clone(&record) };
    let finding = tokio::select! {
        biased;
        finding = reconcile.ask(case) => finding,
        () = node.clock.sleep(pace.timeout) => Finding::NoAnswer,
    };
    let verdict = match finding {
        Finding::Applied(outcome) => Verdict::Applied(outcome),
        Finding::Failed(outcome) => Verdict::Failed(outcome),
        Finding::NotFound => Verdict::NotApplied { asked_at: asked_at(node, asked) },
        Finding::Refused => Verdict::Refused,
        Finding::NoAnswer => return left_to_operator(node, &record),
    };
    settle(node, id, &record, verdict, pace.quiet).await;
}

/// When a question was put, at the uptime `asked`, by the time that the node goes by now: that may be another one
/// than then.
fn asked_at(node: &Node, asked: Duration) -> Time {
    node.now() - node.clock.uptime().saturating_sub(asked)
}

/// Stores what the answer is worth. Another node that asks as well only moves the time of the next question: the
/// answer counts for what is stored there then, as long as it is still the same attempt's doubt.
async fn settle(node: &Arc<Node>, id: CommandId, asked: &Record, verdict: Verdict, quiet: Duration) {
    let verdict = node.sealed_verdict(id, verdict);
    let (mut record, mut now) = (asked.clone(), node.now());
    for _ in 0..ROUNDS_MAX {
        let stamp = node.stamp(now, "reconciled");
        let write = match machine::reconcile_after(&record, quiet, verdict.clone(), stamp) {
            Ok(write) => write,
            // Absence proves nothing yet: ask again right after it does, at the latest.
            Err(refusal @ Refusal::QuietUntil(_)) => {
                let (planned, at) = (next_probe_at(&record), refusal.retry_at());
                if planned.is_none() || planned > at {
                    postpone(node, id, &record, at, now).await;
                }
                return;
            }
            Err(_) => return,
        };
        let reading = match node.write(id, &write).await {
            Ok(Written::Done { .. }) => {
                let (operation_id, state) = (record.operation_id(), write.next.state_name());
                node.observe(&Event::Reconciled { operation_id, state });
                return;
            }
            Ok(Written::Refused(reading)) => reading,
            // What was stored is stored; what was not is asked again.
            Err(_) => return,
        };
        match reading.record() {
            Some(current) if current.token() == asked.token() => record = current.clone(),
            _ => return,
        }
        now = reading.now;
    }
}

/// Moves the time of the next question on, as the one who asks now.
async fn postpone(
    node: &Arc<Node>,
    id: CommandId,
    record: &Record,
    next_probe_at: Option<Time>,
    now: Time,
) -> Option<Record> {
    let write = machine::postpone(record, next_probe_at, now).ok()?;
    match node.write(id, &write).await {
        Ok(Written::Done { .. }) => Some(write.next),
        Ok(Written::Refused(_)) | Err(_) => None,
    }
}

/// When to ask again, should this question not be answered: later each time, and at last not at all.
fn next_probe(probe: &Probe, since: Time, probes: u32, now: Time) -> Option<Time> {
    if now.since(since) >= probe.give_up_after {
        return None;
    }
    let pause = probe.min.saturating_mul(2_u32.saturating_pow(probes.min(31))).min(probe.max);
    Some(now + pause)
}

fn next_probe_at(record: &Record) -> Option<Time> {
    match *record.state() {
        State::Unknown { next_probe_at, .. } => next_probe_at,
        _ => None,
    }
}

fn left_to_operator(node: &Node, record: &Record) {
    if let State::Unknown { next_probe_at: None, .. } = record.state() {
        node.observe(&Event::LeftToOperator { operation_id: record.operation_id() });
    }
}

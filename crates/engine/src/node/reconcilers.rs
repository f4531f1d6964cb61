//! The reconcilers of a node, by operation, and the probes that wait for them.

use super::probe_queue::ProbeQueue;
pub(crate) use super::probe_queue::Probing;
use crate::settings::Probe;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Record;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The answer of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It happened. With an outcome, later requests replay it; without, they learn that it was not retained.
    Applied(Option<semel_core::outcome::Outcome>),
    /// It was refused permanently, with this answer.
    Failed(semel_core::outcome::Outcome),
    /// It was not found. Counts as soon as nobody can still send it.
    NotFound,
    /// It did not happen and never will: the system refuses this operation ID from now on.
    Refused,
    /// The probe was inconclusive. It will be repeated.
    NoAnswer,
}

/// An unknown outcome to probe.
#[derive(Debug, Clone)]
pub struct Case {
    /// The operation ID, which the system that runs the effect received.
    pub operation_id: OperationId,
    /// The record.
    pub record: Arc<Record>,
}

/// Asks the system that runs an operation's effects.
pub trait Reconcile: Send + Sync + 'static {
    /// Finds out whether the effect happened.
    fn ask(&self, case: Case) -> Pin<Box<dyn Future<Output = Finding> + Send + '_>>;

    /// How often and for how long to probe. Default: the engine's [settings](crate::Settings::probe). The limits on
    /// concurrent probes are always the engine's, so that a reconciler that never answers does not block others.
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

/// From an operation's name to its reconciler.
type Directory = dyn Fn(&str) -> Option<Arc<dyn Reconcile>> + Send + Sync;

/// The reconcilers by operation, and the pending probes.
#[derive(Default)]
pub(crate) struct Reconcilers {
    by_operation: BTreeMap<String, Arc<dyn Reconcile>>,
    /// Consulted for each probe, because its result may change.
    directory: Option<Box<Directory>>,
    questions: Mutex<ProbeQueue>,
    pub(crate) wake: Notify,
}

impl Reconcilers {
    pub(crate) fn register(&mut self, operation: String, reconcile: Arc<dyn Reconcile>) {
        self.by_operation.insert(operation, reconcile);
    }

    pub(crate) fn set_directory(&mut self, directory: Box<Directory>) {
        self.directory = Some(directory);
    }

    pub(crate) fn knows(&self, operation: &str) -> bool {
        self.of(operation).is_some()
    }

    pub(crate) fn of(&self, operation: &str) -> Option<Arc<dyn Reconcile>> {
        let named = self.by_operation.get(operation).cloned();
        named.or_else(|| self.directory.as_ref().and_then(|directory| directory(operation)))
    }

    /// Whether there are no reconcilers.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_operation.is_empty() && self.directory.is_none()
    }

    /// Queues a probe that is due, or that a request waits for. Returns whether this node has a reconciler for it.
    pub(crate) fn queue_probe(&self, id: CommandId, operation: &str) -> bool {
        let Some(asked) = self.of(operation) else { return false };
        self.questions().put(id, asked);
        self.wake.notify_one();
        true
    }

    pub(crate) fn next(&self, bounds: &Probe) -> Option<Probing> {
        self.questions().next(bounds)
    }

    /// Makes room for the next one.
    pub(crate) fn answered(&self, question: &Probing) {
        self.questions().answered(question);
        self.wake.notify_one();
    }

    fn questions(&self) -> std::sync::MutexGuard<'_, ProbeQueue> {
        self.questions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

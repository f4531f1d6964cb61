//! Commands of class `local`: their record is written in the transaction of their effect.
//!
//! Everything about such a command except the database: its identity, which duplicate runs it, what a reading means,
//! what to write, and who is notified. [`machine`](semel_core::machine) makes the decisions. Only the crate `semel-tx`,
//! which has the transactions, should call this.

mod ending;
pub(crate) mod handover;
pub(crate) mod inside;
mod judge;
mod unanswered;

pub use ending::{LocalWrites, MarkerWrite, Unwritable, without_body};
pub use handover::{Handover, HandoverOutcome, HandoverResult, Joinable};
pub use inside::inside_work;
pub use judge::{LocalAttempt, LocalJudgement, LocalLook};
pub use semel_core::machine::LocalEnding;
pub use unanswered::Unanswered;

use crate::call::answer::{Error, ExecuteResponse};
use crate::call::claim;
use crate::call::engine::Engine;
use crate::call::intent::Intent;
use crate::call::recognise::RecognisedIntent;
use crate::call::reply::{self, Subject};
use crate::call::wait::{self, Waited, Waiter};
use crate::node::Node;
use crate::node::beat;
use crate::node::running::{Progress, RunningEntry};
use crate::observe::Event;
use crate::runtime::backoff::Backoff;
use crate::runtime::spans::span;
use crate::runtime::tasks::Closing;
use crate::secrets::View;
use handover::JoinedHandover;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{Found, Reply};
use semel_core::scope::{EventId, NameError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// An attempt of a local command while its transaction is open. Passed to the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Local {
    /// The operation ID, the same on every attempt and replay.
    pub operation_id: OperationId,
    /// The number of the attempt. Attempts that were rolled back leave no record and are not counted.
    pub attempt: u32,
    /// Grows with every attempt.
    pub fence: u64,
}

impl Local {
    /// The id of an event that this command causes: the same on every attempt.
    pub fn event_id(&self, name: &str) -> Result<EventId, NameError> {
        self.operation_id.event_id(name)
    }
}

/// The result of [`Engine::enter_local`].
pub enum EnterResult {
    /// No duplicate in this process runs it: look for it in the database.
    Owned(LocalCommand),
    /// A duplicate ran it, or its outcome is known.
    Answered(ExecuteResponse),
}

/// Why work in a transaction was given up. Roll the transaction back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It took longer than the policy's work deadline.
    Overran,
    /// The engine shuts down.
    Closing,
}

/// A local command that this process runs or looks for. While it exists, duplicates in this process wait for it.
pub struct LocalCommand {
    node: Arc<Node>,
    recognised: RecognisedIntent,
    /// The layer that gets its result, if it was handed over. Dropped before the entry, which lets a second join begin.
    handover: Option<JoinedHandover>,
    running_entry: RunningEntry,
    wait_until: Duration,
    backoff: Backoff,
}

/// How long the engine waits for its database, and by which clock.
#[derive(Clone)]
pub struct DatabaseTimeouts {
    node: Arc<Node>,
}

impl DatabaseTimeouts {
    pub(crate) fn of(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node) }
    }

    /// The clock for [`LocalLook::asked`].
    pub fn uptime(&self) -> Duration {
        self.node.clock.uptime()
    }

    /// The timeout for answers of the database that decide something.
    pub fn store_timeout(&self) -> Duration {
        self.node.settings.store_timeout
    }

    /// The result of `future`, or `None` after `span`.
    pub async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.node.clock.within(span, future).await
    }

    /// The result of `future`, or `None` after the [store's timeout](Self::store_timeout).
    pub async fn bounded<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.within(self.store_timeout(), future).await
    }
}

impl std::fmt::Debug for DatabaseTimeouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatabaseTimeouts({:?})", self.store_timeout())
    }
}

/// Whether to wait for duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// As long as the intent allows.
    Allowed,
    /// Not at all: the caller has an open transaction.
    Never,
}

impl Engine {
    /// Recognises a local command and registers it as running in this process, after its duplicates here have ended.
    pub async fn enter_local(&self, intent: Intent, waiting: Waiting) -> Result<EnterResult, Error> {
        let node = &self.node;
        if node.tasks.is(Closing::Draining) {
            return Err(Error::Closing);
        }
        let wait = intent.wait.unwrap_or(node.settings.wait);
        let wait = if waiting == Waiting::Allowed { wait } else { Duration::ZERO };
        let asked = node.clock.uptime();
        let waiter = Waiter { asked, until: asked + wait };
        let Some(handover) = intent.handover.clone() else {
            return self.enter(intent, waiter).await;
        };
        if let Some(command) = handover.join()? {
            // It was entered when it was handed over.
            return Ok(EnterResult::Owned(LocalCommand {
                wait_until: waiter.until,
                handover: Some(JoinedHandover::new(handover)),
                ..command
            }));
        }
        Ok(match self.enter(intent, waiter).await? {
            EnterResult::Owned(command) => {
                let handover = Some(JoinedHandover::new(handover));
                EnterResult::Owned(LocalCommand { handover, ..command })
            }
            EnterResult::Answered(answer) => {
                handover.answered(&answer);
                EnterResult::Answered(answer)
            }
        })
    }

    async fn enter(&self, intent: Intent, waiter: Waiter) -> Result<EnterResult, Error> {
        let node = &self.node;
        let recognised = RecognisedIntent::local(node, intent)?;
        if let Some(answer) = self.known_outcome(&recognised) {
            return Ok(EnterResult::Answered(answer));
        }
        let command = recognised.command();
        let running_entry = loop {
            let progress = match node.running.enter(recognised.id()) {
                Ok(running_entry) => break running_entry,
                Err(progress) => progress,
            };
            let waited = wait::for_local(node, &command, progress, waiter);
            match waited.instrument(span!("wait")).await {
                Waited::Answered(answer) => return Ok(EnterResult::Answered(answer)),
                Waited::Stalled(error) => return Err(Error::StoreLost(error)),
                Waited::NeverRan => {}
                // If the store has no entry, it is in progress.
                Waited::AskTheStore => {
                    let found = claim::look(&node.store, &recognised).await.map_err(Error::after_another)?;
                    let waited = wait::for_remote(node, &command, found, None, waiter);
                    let answer = waited.instrument(span!("wait")).await.map_err(Error::StoreLost)?;
                    return Ok(EnterResult::Answered(answer));
                }
            }
        };
        running_entry.show(Progress::Transaction);
        drop(command);
        beat::catch_up(&node.store).await?;
        let backoff = Backoff::new(node.settings.poll_min, node.settings.poll_max);
        let node = Arc::clone(node);
        Ok(EnterResult::Owned(LocalCommand {
            node,
            recognised,
            running_entry,
            wait_until: waiter.until,
            backoff,
            handover: None,
        }))
    }
}

impl LocalCommand {
    /// Uses the current hashing secrets. Call it before each read, because a rotation changes where to look.
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.recognised = self.recognised.again(&self.node)?;
        Ok(())
    }

    /// Whether the secrets that the command was looked up with are still current.
    fn is_view_current(&self) -> bool {
        let stage = |view: &View| {
            let outgoing = view.outgoing.as_ref();
            (view.current.generation, outgoing.map(|outgoing| (outgoing.old.generation, outgoing.stage)))
        };
        let uptime = self.node.clock.uptime();
        let view = self.node.secrets.view().ok().filter(|view| view.check(uptime).is_ok());
        view.is_some_and(|view| stage(&view) == stage(&self.recognised.view))
    }

    /// The operation ID, under the current secret.
    pub fn operation_id(&self) -> OperationId {
        self.recognised.command().operation_id
    }

    /// The ID whose lock is taken, and which is read first: during a rotation, the ID under the old secret. Nodes at
    /// different stages of the rotation agree on it.
    pub fn arbiter(&self) -> CommandId {
        let commands = self.recognised.commands();
        commands.old.map_or(commands.current.id, |old| old.id)
    }

    /// The second ID to read: that of the new secret, during a rotation.
    pub fn moved_to(&self) -> Option<CommandId> {
        let commands = self.recognised.commands();
        commands.old.map(|_| commands.current.id)
    }

    /// The [arbiter](Self::arbiter) and the [second ID](Self::moved_to).
    pub fn ids(&self) -> (CommandId, Option<CommandId>) {
        (self.arbiter(), self.moved_to())
    }

    /// How long to wait for the database.
    pub fn timeouts(&self) -> DatabaseTimeouts {
        DatabaseTimeouts::of(&self.node)
    }

    /// How long its transaction may wait for this process: as long as its work may take, and its commit after that.
    pub fn idle_max(&self) -> Duration {
        self.recognised.transaction_idle_max(self.node.settings.store_timeout)
    }

    /// Waits before the next try of the lock: until the store notifies of a change, or for a growing pause. Returns
    /// `false` immediately if the intent's wait is over. Hold no database resources meanwhile.
    pub async fn pause(&mut self) -> bool {
        let node = &self.node;
        let left = self.wait_until.saturating_sub(node.clock.uptime());
        if left.is_zero() {
            return false;
        }
        let sleep = node.clock.sleep(self.backoff.next_span(node.random.bits()).min(left));
        match node.store.raw.changed(self.arbiter()) {
            Some(changed) => tokio::select! {
                biased;
                () = changed => {}
                () = sleep => {}
            },
            None => sleep.await,
        }
        true
    }

    /// Waits before the work is run again, regardless of the intent's wait.
    pub async fn back_off(&mut self) {
        let span = self.backoff.next_span(self.node.random.bits());
        self.node.clock.sleep(span).await;
    }

    /// The answer if the wait is over while somebody else has the lock.
    pub fn in_progress(&self) -> ExecuteResponse {
        let command = self.recognised.command();
        let subject = Subject::under(command.id, &command);
        let answer = reply::answer(&self.node, &subject, Found::Nothing, Reply::InProgress);
        self.answered(&answer);
        answer
    }

    /// The layer that handed it over gets the answer.
    fn answered(&self, answer: &ExecuteResponse) {
        if let Some(handover) = &self.handover {
            handover.answered(answer);
        }
    }

    /// Runs `work` in a task of the engine, so that it completes even if the caller goes away. `None` if the task was
    /// dropped with its runtime: its result is not known.
    pub async fn conduct<T, F>(
        self,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<Option<T>, Error>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let spawn = Arc::clone(&self.node.spawn);
        let (reply, answered) = oneshot::channel();
        let task = async move {
            let _guard = guard;
            drop(reply.send(work(self).await));
        };
        spawn.spawn(Box::pin(task.instrument(tracing::Span::current())));
        Ok(answered.await.ok())
    }

    /// The result of the work, unless its deadline or the engine's shutdown comes first.
    pub async fn until_interrupted<T>(
        &self,
        attempt: &LocalAttempt,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        let node = &self.node;
        let interrupted = tokio::select! {
            biased;
            done = work => return Ok(done),
            () = node.tasks.closed(Closing::Now) => Interrupted::Closing,
            () = node.clock.sleep(attempt.work_deadline()) => Interrupted::Overran,
        };
        if interrupted == Interrupted::Overran {
            self.overran(attempt);
        }
        Err(interrupted)
    }

    /// The work took too long. Roll its transaction back.
    pub fn overran(&self, attempt: &LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::Overran { operation_id, operation });
    }

    /// The work panicked. Roll its transaction back.
    pub fn panicked(&self, attempt: &LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::Panicked { operation_id, operation });
    }
}

impl std::fmt::Debug for LocalCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation_id = self.recognised.command().operation_id;
        f.debug_struct("LocalCommand").field("operation_id", &operation_id).finish_non_exhaustive()
    }
}

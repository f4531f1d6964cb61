//! The engine: the main type for Rust services.
//!
//! How a call runs through the engine, and how the engine is shut down. [`machine`](semel_core::machine) decides what a
//! state means.

use crate::background::sweep;
use crate::call::answer::{Error, ExecuteResponse, GivenUp, RequestOutcome};
use crate::call::attempt::Attempt;
use crate::call::claim::{self, Claim, FoundEntry};
use crate::call::conduct::{self, Work, WorkResult};
use crate::call::intent::Intent;
use crate::call::recognise::RecognisedIntent;
use crate::call::reply::{self, Subject};
use crate::call::wait::{self, Waited, Waiter};
use crate::node::Node;
use crate::node::beat;
use crate::node::clock::NodeClock;
use crate::node::running::RunningEntry;
use crate::node::store_id::StoreId;
use crate::node::writable::WriteRefusal;
use crate::observe::{Call, SweepReport};
use crate::runtime::spans::span;
use crate::runtime::tasks::Closing;
use crate::settings::ClockSettings;
use crate::time::{self, ClockComparison, ClockStatus};
use semel_core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Reply, Stamp};
use semel_core::record::Token;
use semel_core::store::{self, ClockSource, Reading, Store};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// Makes side effects happen once, over a store.
///
/// Cheap to clone; every clone is the same engine.
///
/// When the last clone is dropped, sweeping and reconciling stop. Running attempts still run to their end. Call
/// [`shutdown`](Self::shutdown) before the process ends.
#[derive(Clone)]
pub struct Engine {
    pub(crate) node: Arc<Node>,
    _handle: Arc<Handle>,
}

/// Stops the background tasks when the last clone of the engine is dropped.
struct Handle(Arc<Node>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.tasks.close(Closing::Draining);
    }
}

/// What was still running when the engine was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShutdownReport {
    /// How many attempts were running when the shutdown began.
    pub running: usize,
    /// How many of them were cancelled at the deadline. Their records are `UNKNOWN`, or `FAILED_NOT_REPLAYABLE` if
    /// the effect had not begun.
    pub cut_off: usize,
    /// How many still had not stored their ending. Their leases expire, and their outcomes are unknown.
    pub unstored: usize,
    /// How many other commands had a claim that the store did not acknowledge and that was not found again. Nothing
    /// ran under such a claim. If it is in the store, or still arrives, its lease expires, as after a kill.
    pub lost_claims: usize,
}

impl Engine {
    /// Runs `work` once for `intent`.
    ///
    /// The first call runs `work` in a task of the engine: if the caller goes away, nothing is cancelled. The outcome
    /// is durable before this returns (unless [`RanAttempt::stored`](crate::RanAttempt::stored) is `None`: it could not be stored
    /// in time). Every other call gets the same outcome, or the reason why there is none.
    /// [`ExecuteResponse::into_outcome`] makes everything but a success an error.
    ///
    /// [`run`](Self::run) is the same for work that returns a value.
    pub async fn execute<W, F, L>(&self, intent: Intent, work: W) -> Result<ExecuteResponse<L>, Error>
    where
        W: FnOnce(Attempt) -> F + Send + 'static,
        F: Future<Output = WorkResult<L>> + Send + 'static,
        L: Send + 'static,
    {
        let node = &self.node;
        if node.tasks.is(Closing::Draining) {
            return Err(Error::Closing);
        }
        let recognised = RecognisedIntent::new(node, intent)?;
        let command = recognised.command();
        if let Some(answer) = self.known_outcome(&recognised) {
            return Ok(answer);
        }
        let asked = node.clock.uptime();
        let waiter = Waiter { asked, until: asked + recognised.intent.wait.unwrap_or(node.settings.wait) };
        let running_entry = loop {
            let progress = match node.running.enter(recognised.id()) {
                Ok(running_entry) => break running_entry,
                Err(progress) => progress,
            };
            let waited = wait::for_local(node, &command, progress, waiter);
            match waited.instrument(span!("wait")).await {
                Waited::Answered(answer) => return Ok(answer),
                Waited::Stalled(error) => return Err(Error::StoreLost(error)),
                Waited::NeverRan => {}
                Waited::AskTheStore => {
                    let found = claim::look(&node.store, &recognised).await.map_err(Error::after_another)?;
                    let waited = wait::for_remote(node, &command, found, None, waiter);
                    return waited.instrument(span!("wait")).await.map_err(Error::StoreLost);
                }
            }
        };
        if recognised.begin_by.is_some_and(|by| node.clock.uptime() >= by) {
            return Err(Error::GivenUp(GivenUp::Late));
        }
        let work: Work<L> = Box::new(move |attempt| Box::pin(work(attempt)));
        match self.claim_and_run(recognised.clone(), running_entry, work).await? {
            RunResult::Answered(answer) => Ok(answer),
            RunResult::InProgress(found, running_entry) => {
                let waited = wait::for_remote(node, &command, found, Some(&running_entry), waiter);
                waited.instrument(span!("wait")).await.map_err(Error::StoreLost)
            }
        }
    }

    pub(crate) fn of(node: Arc<Node>) -> Self {
        Self { _handle: Arc::new(Handle(Arc::clone(&node))), node }
    }

    /// Accepts no new work and waits for running attempts, at most until `deadline`. Then it cancels the rest and
    /// stores what is known in each record. For claims that the store did not acknowledge, it looks until then, but
    /// not longer than [`finish_wait`](crate::Settings::finish_wait) after the last attempt has ended.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let node = &self.node;
        let finish_wait = node.settings.finish_wait;
        node.tasks.close(Closing::Draining);
        let asked = node.clock.uptime();
        let running = node.tasks.running();
        let mut cut_off = 0;
        let are_searches_over = if in_time(&node.clock, deadline, node.tasks.idle()).await {
            let left = deadline.saturating_sub(node.clock.uptime().saturating_sub(asked));
            in_time(&node.clock, left.min(finish_wait), node.tasks.all_idle()).await
        } else {
            cut_off = node.tasks.running();
            false
        };
        if !are_searches_over {
            node.tasks.close(Closing::Now);
            in_time(&node.clock, finish_wait, node.tasks.all_idle()).await;
        }
        let (unstored, lost_claims) = (node.tasks.running(), node.tasks.unanswered());
        if unstored == 0 {
            // Best effort: the others remove a silent node anyway.
            in_time(&node.clock, node.settings.finish_wait, async { drop(node.secrets.leave().await) }).await;
        }
        ShutdownReport { running, cut_off, unstored, lost_claims }
    }

    /// Runs one sweep now.
    pub async fn sweep(&self) -> Result<SweepReport, store::Error> {
        sweep::sweep(&self.node, sweep::SweepScope::All).await
    }

    /// How long the store has refused writes, and why; `None` while it accepts them. After a [loss of
    /// data](semel_core::store::Kind::DataLost), the undamaged parts of a store may still accept some. Derived from the
    /// writes of requests and of the heartbeat, and from entries that the engine inserts and removes, so this call is
    /// cheap.
    pub fn refuses_writes(&self) -> Option<WriteRefusal> {
        let uptime = self.node.clock.uptime();
        self.node.store.loss.refusing(uptime).or_else(|| self.node.store.writes.refusing(uptime))
    }

    /// The status of the store's clock.
    pub fn clock_status(&self) -> ClockStatus {
        self.node.clock.trusted.status()
    }

    /// Whether this node trusts the store's clock, or has trusted it since its start. If not, it should get no requests:
    /// it has refused all new keys so far, or it is ahead of the time in the store and waits to see whether another
    /// machine still uses that time. Where the store has one clock for all nodes, it waits for nobody.
    pub fn has_trusted_clock(&self) -> bool {
        let is_shared = self.node.store.raw.capabilities().clock == ClockSource::One;
        self.node.clock.trusted.has_been_trusted() && (is_shared || !self.node.clock.trusted.is_watching())
    }

    /// Whether this node knows the current state of the hashing secret. If not, it claims nothing.
    pub fn has_current_secret(&self) -> bool {
        self.node.secrets.view().is_ok()
    }

    /// The store's clock as this node reads it, beside what the nodes of the store last wrote about theirs.
    pub async fn compare_clocks(&self) -> Result<ClockComparison, store::Error> {
        let comparing = time::compare_clocks(&*self.node.store.raw, &*self.node.clock.machine);
        self.node.store.bounded(Call::Beat, comparing).await
    }

    /// The time since some fixed moment, by the engine's clock. It only grows, also if the time is corrected.
    pub fn uptime(&self) -> Duration {
        self.node.clock.uptime()
    }

    /// The settings by which the clock is trusted.
    pub fn clock_settings(&self) -> &ClockSettings {
        &self.node.settings.clock
    }

    /// Confirms that the store's clock is right: all nodes of the store use it from now on. `who` and `why` are
    /// stored. Returns the confirmed time.
    pub async fn confirm_clock(&self, who: &str, why: &str) -> Result<Time, store::Error> {
        let node = &self.node;
        let confirming = time::confirm_clock(&*node.store.raw, &*node.clock.machine, who, why);
        let confirmed = node.store.bounded(Call::Beat, confirming).await?;
        // Apply it in the same way as all other nodes.
        beat::beat(&node.store).await?;
        Ok(confirmed)
    }

    /// How many attempts this engine is running.
    pub fn running(&self) -> usize {
        self.node.running.len()
    }

    /// How long a duplicate waits for a running attempt, unless its intent says otherwise ([`Settings::wait`]).
    ///
    /// [`Settings::wait`]: crate::Settings::wait
    pub fn wait(&self) -> Duration {
        self.node.settings.wait
    }

    /// Whether a reconciler probes unknown outcomes of this operation.
    pub fn has_reconciler(&self, operation: &str) -> bool {
        self.node.reconcilers.knows(operation)
    }

    /// Whether it has keys to seal outcomes.
    pub fn has_sealing_keys(&self) -> bool {
        self.node.sealing.has_keys()
    }

    /// The store that the engine works on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node.store.raw
    }

    /// The ID of this engine's store. Read once from the store; a store without an ID gets one.
    pub async fn store_id(&self) -> Result<StoreId, store::Error> {
        let node = &self.node;
        node.store.id(&*node.random).await
    }

    /// An outcome from the cache, which cannot have changed: it has not expired. A node that does not trust its clock
    /// cannot know that, since its time may be behind that of the nodes which use the key again.
    pub(crate) fn known_outcome<L>(&self, recognised: &RecognisedIntent) -> Option<ExecuteResponse<L>> {
        let node = &self.node;
        let now = node.clock.now_at_the_latest();
        if !now.can_claim() {
            return None;
        }
        let (id, record) =
            recognised.ids().find_map(|id| Some((id, node.cache.get(id, node.clock.uptime())?)))?;
        let (found, command) = (Found::Record(&record), recognised.command());
        let new_attempt = NewAttempt { token: Token::from_random(0), begin: Begin::Processing };
        let decision = machine::decide(found, &command, new_attempt, Stamp::new(now, &node.name, ""));
        if let Decision::Answer(reply @ (Reply::Replay(_) | Reply::Mismatch)) = decision {
            return Some(reply::answer(node, &Subject::under(id, &command), found, reply));
        }
        // Expired: the store decides what happens next.
        node.cache.forget(id);
        None
    }

    /// Claims the command and runs it, both in a task of the engine.
    async fn claim_and_run<L: Send + 'static>(
        &self,
        recognised: RecognisedIntent,
        running_entry: RunningEntry,
        work: Work<L>,
    ) -> Result<RunResult<L>, Error> {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let operation_id = recognised.command().operation_id;
        let engine = self.clone();
        let (reply, answered) = oneshot::channel();
        let (aside, in_progress) = oneshot::channel();
        let attempt = async move {
            let _guard = guard;
            let lost_claims = engine.attempt(&recognised, running_entry, work, reply, aside).await;
            claim::give_back(&engine.node, lost_claims);
        };
        // The attempt runs in another task, but belongs to the trace of the request.
        self.node.spawn.spawn(Box::pin(attempt.instrument(tracing::Span::current())));
        match answered.await {
            Ok(result) => result.map(RunResult::Answered),
            // No answer: it runs elsewhere, or the task was dropped halfway and the outcome is unknown.
            Err(_) => Ok(match in_progress.await {
                Ok((found, running_entry)) => RunResult::InProgress(found, running_entry),
                Err(_) => RunResult::Answered(ExecuteResponse {
                    operation_id,
                    outcome: RequestOutcome::Unknown { repeatable: false },
                }),
            }),
        }
    }

    /// Returns the claims whose fate is not known.
    async fn attempt<L: Send>(
        &self,
        recognised: &RecognisedIntent,
        running_entry: RunningEntry,
        work: Work<L>,
        reply: conduct::Reply<L>,
        aside: oneshot::Sender<(FoundEntry, RunningEntry)>,
    ) -> Vec<claim::LostClaim> {
        let node = &self.node;
        let command = recognised.command();
        let since = node.clock.uptime();
        match claim::claim(node, recognised).instrument(span!("claim")).await {
            Ok(Claim::Owned(ownership)) => {
                conduct::conduct(Arc::clone(node), ownership, running_entry, work, reply).await;
            }
            Ok(Claim::Judged(FoundEntry { id, reading })) => {
                let judged = judged(node, &command, &reading);
                if judged == Reply::InProgress {
                    drop(reply);
                    drop(aside.send((FoundEntry { id, reading }, running_entry)));
                    return Vec::new();
                }
                wait::show_end(Some(&running_entry), (id, since), &reading, judged);
                if let Some(record) = reading.record().filter(|record| reply::is_kept(record)) {
                    node.cache.keep(id, record, since);
                }
                let subject = Subject::under(id, &command);
                drop(reply.send(Ok(reply::answer(node, &subject, reading.found(), judged))));
            }
            Ok(Claim::MarkedUnknown(id)) => {
                let subject = Subject::under(id, &command);
                drop(reply.send(Ok(reply::answer(node, &subject, Found::Nothing, Reply::Unknown))));
            }
            Ok(Claim::Lapsed(ownership)) => {
                drop((running_entry, work));
                drop(reply.send(Err(Error::GivenUp(GivenUp::Lapsed))));
                ownership.abandon(claim::LAPSED).await;
            }
            Err(failed) => {
                drop(running_entry);
                drop(reply.send(Err(failed.error)));
                return failed.lost_claims;
            }
        }
        Vec::new()
    }
}

/// The machine's reply to a request that runs nothing.
pub(crate) fn judged<'a>(node: &Node, command: &Command<'_>, reading: &'a Reading) -> Reply<'a> {
    let new_attempt = NewAttempt { token: Token::from_random(0), begin: Begin::Processing };
    match machine::decide(reading.found(), command, new_attempt, node.stamp(reading.now, "")) {
        Decision::Answer(reply) => reply,
        // It could run by now, but it was judged a moment ago, when somebody else was running it.
        Decision::Run(_) | Decision::MarkUnknown(_) | Decision::Follow => Reply::InProgress,
    }
}

enum RunResult<L> {
    Answered(ExecuteResponse<L>),
    InProgress(FoundEntry, RunningEntry),
}

/// Whether `ends` completed within `span`.
async fn in_time(clock: &NodeClock, span: Duration, ends: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = ends => true,
        () = clock.sleep(span) => false,
    }
}

//! One attempt from start to end, in a task of the engine.
//!
//! It ends with the work, the lease, the deadline or a shutdown, whichever comes first. Nothing here is cancelled if
//! the caller goes away.

use crate::call::answer::{Error, ExecuteResponse, GivenUp, RanAttempt, RequestOutcome};
use crate::call::attempt::Attempt;
use crate::call::reply::{self, Subject};
use crate::node::Node;
use crate::node::ownership::{Finished, Ownership};
use crate::node::running::{Progress, RunningEntry, StoredRecord};
use crate::observe::Event;
use crate::runtime::spans::span;
use crate::runtime::tasks::Closing;
use futures_util::FutureExt;
use semel_core::classify::Ending;
use semel_core::id::CommandId;
use semel_core::labels::Labels;
use semel_core::machine::{self, Found};
use semel_core::outcome::Outcome;
use semel_core::record::{Record, Token};
use semel_core::store::Reading;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// The result of the work: how the attempt ended, and a value for the call that ran it.
#[derive(Debug)]
pub struct WorkResult<L = ()> {
    /// How the attempt ended.
    pub ending: Ending,
    /// Returned only to the call that ran the work.
    pub local: L,
    /// Why, in a few words for the record's history; empty if the state explains itself.
    pub why: Cow<'static, str>,
    held: KeptAlive,
}

/// A value that is dropped when the ending is stored.
#[derive(Default)]
struct KeptAlive(Option<Box<dyn Any + Send>>);

impl fmt::Debug for KeptAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "KeptAlive(something)" } else { "KeptAlive(nothing)" })
    }
}

impl<L> WorkResult<L> {
    /// Without a reason.
    pub const fn new(ending: Ending, local: L) -> Self {
        Self { ending, local, why: Cow::Borrowed(""), held: KeptAlive(None) }
    }

    /// Keeps `held` until the ending is stored, or never will be. For memory accounting: an outcome occupies memory
    /// until then, even if its caller was answered earlier.
    #[must_use]
    pub fn holding(self, held: impl Any + Send) -> Self {
        Self { held: KeptAlive(Some(Box::new(held))), ..self }
    }

    /// Adds a reason. Do not put parts of a request or response into it.
    #[must_use]
    pub fn because(self, why: impl Into<Cow<'static, str>>) -> Self {
        Self { why: why.into(), ..self }
    }
}

impl From<Ending> for WorkResult {
    fn from(ending: Ending) -> Self {
        Self::new(ending, ())
    }
}

/// Work that has not begun.
pub(crate) type Work<L> =
    Box<dyn FnOnce(Attempt) -> Pin<Box<dyn Future<Output = WorkResult<L>> + Send>> + Send>;

/// How long work that can send nothing more may still read an answer after its deadline. A suspended process has to
/// read what arrived meanwhile.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(2);

/// The channel to the caller, who may have gone away.
pub(crate) type Reply<L> = oneshot::Sender<Result<ExecuteResponse<L>, Error>>;

/// What ended the attempt.
#[expect(clippy::large_enum_variant, reason = "nearly all of them end, and one is held at a time")]
enum FirstEvent<L> {
    Ended(WorkResult<L>),
    Panicked,
    Overran,
    /// The effect had not begun in time, and now cannot.
    Late,
    Closing,
}

/// Runs the work of an attempt that is claimed, and stores how it ended.
pub(crate) async fn conduct<L: Send>(
    node: Arc<Node>,
    ownership: Ownership,
    running_entry: RunningEntry,
    work: Work<L>,
    reply: Reply<L>,
) {
    let ownership = Arc::new(ownership);
    let record = ownership.record();
    running_entry.show(Progress::Running(StoredRecord { id: ownership.id, record: Arc::clone(&record) }));
    node.observe(&Event::Claimed { operation: record.operation(), attempt: record.attempt() });
    let has_begun = !reply::has_not_begun(&record);
    ownership.begin_deadline();
    let renewal = node.renewer.keep(&ownership).await;
    let hindrance = if has_begun && !ownership.may_send() {
        Some(GivenUp::Lapsed)
    } else if ownership.is_late() {
        Some(GivenUp::Late)
    } else {
        node.tasks.is(Closing::Now).then_some(GivenUp::Closing)
    };
    if let Some(why) = hindrance {
        renewal.end().await;
        give_up(&ownership, running_entry, reply, why).await;
        return;
    }
    let operation_id = record.operation_id();
    let event = first_event(&node, &ownership, work).await;
    // Close before the record is read: a clone of the attempt may be starting it right now.
    ownership.close();
    renewal.end().await;
    // From here on, the store may have the ending before this node knows it.
    running_entry.show(Progress::Unsure(StoredRecord { id: ownership.id, record: ownership.record() }));
    match event {
        FirstEvent::Ended(ended) => {
            settle(&ownership, running_entry, reply, ended).await;
        }
        event if reply::has_not_begun(&ownership.record()) || ownership.has_sent_nothing() => {
            let why = match event {
                FirstEvent::Panicked => GivenUp::Panicked,
                FirstEvent::Overran => GivenUp::Overran,
                FirstEvent::Late => GivenUp::Late,
                FirstEvent::Closing | FirstEvent::Ended(_) => GivenUp::Closing,
            };
            give_up(&ownership, running_entry, reply, why).await;
        }
        // Neither a release nor an ending: the record stays unchanged until its lease expires.
        FirstEvent::Panicked => {
            node.observe(&Event::Panicked { operation_id, operation: record.operation() });
            drop(running_entry);
            answer(reply, &record, unknown(&ownership));
        }
        FirstEvent::Overran | FirstEvent::Late => {
            node.observe(&Event::Overran { operation_id, operation: record.operation() });
            in_doubt(&ownership, running_entry, reply, "the work took longer than its deadline").await;
        }
        FirstEvent::Closing => in_doubt(&ownership, running_entry, reply, "the process was shut down").await,
    }
}

async fn first_event<L>(node: &Arc<Node>, ownership: &Arc<Ownership>, work: Work<L>) -> FirstEvent<L> {
    let attempt = Attempt { ownership: Arc::clone(ownership) };
    let left = || ownership.deadline().saturating_sub(node.clock.uptime());
    let mut work = pin!(AssertUnwindSafe(async move { work(attempt).await }).catch_unwind());
    // Checked before every step of the work: a suspended machine must not continue where it stopped.
    let in_time = std::future::poll_fn(|context| {
        if left().is_zero() { Poll::Ready(None) } else { work.as_mut().poll(context).map(Some) }
    });
    let deadline = async {
        while !left().is_zero() {
            node.clock.sleep(left()).await;
        }
    };
    // Only work that promised to check can be stopped without a doubt; all other work has begun.
    let late = async {
        let Some(by) = ownership.begin_by() else { return std::future::pending().await };
        node.clock.sleep(by.saturating_sub(node.clock.uptime())).await;
        if !ownership.close_if_unsent() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = in_time => ended,
        () = late => return FirstEvent::Late,
        () = node.tasks.closed(Closing::Now) => return FirstEvent::Closing,
        () = deadline => None,
    };
    // Nothing may be sent from here on, so the work may continue if it only waits for an answer.
    ownership.close();
    let ended = match ended {
        None if ownership.may_await_answer() => node.clock.within(LATE_ANSWER_MAX, work).await,
        ended => ended,
    };
    match ended {
        Some(Ok(ended)) => FirstEvent::Ended(ended),
        Some(Err(_)) => FirstEvent::Panicked,
        None => FirstEvent::Overran,
    }
}

/// Stores the ending. Answers the caller as soon as it is stored or the wait is over, and keeps trying.
async fn settle<L>(
    ownership: &Ownership,
    running_entry: RunningEntry,
    reply: Reply<L>,
    ended: WorkResult<L>,
) {
    let WorkResult { mut ending, local, why, held: _held } = ended;
    if let Some((stored, _)) = ownership.stored_elsewhere() {
        ending = stored;
    }
    let node = &ownership.node;
    let attempt = ownership.record().attempt();
    let repeatable = || reply::is_repeatable(&node.clock, &ownership.record());
    let kept = node.sealing.seal_ending(ownership.id, ownership.seal, ending.clone());
    let mut finish = pin!(ownership.finish(kept.clone(), &why).instrument(span!("finish")));
    let Some(finished) = node.clock.within(node.settings.finish_wait, &mut finish).await else {
        let request_outcome = RequestOutcome::Ran(RanAttempt {
            ending: ending.clone(),
            stored: None,
            attempt,
            repeatable: repeatable(),
            local,
        });
        answer(reply, &ownership.record(), request_outcome);
        let finished = finish.await;
        let _: RequestOutcome = concluded(ownership, &running_entry, &kept, finished, |_| None);
        return;
    };
    let ran = |stored| {
        let (ending, repeatable) = (ending.clone(), repeatable());
        Some(RequestOutcome::Ran(RanAttempt { ending, stored: Some(stored), attempt, repeatable, local }))
    };
    let request_outcome = concluded(ownership, &running_entry, &kept, finished, ran);
    // Before the answer: a caller that retries immediately must not find its own last attempt running.
    drop(running_entry);
    answer(reply, &ownership.record(), request_outcome);
}

/// Reports the result of storing the ending. `ran` answers the caller if it is stored.
fn concluded<L>(
    ownership: &Ownership,
    running_entry: &RunningEntry,
    ending: &Ending,
    finished: Finished,
    ran: impl FnOnce(crate::call::answer::Stored) -> Option<RequestOutcome<L>>,
) -> RequestOutcome<L> {
    let node = &ownership.node;
    match finished {
        Finished::Stored(record) => {
            node.observe(&Event::Finished { operation: record.operation(), state: record.state_name() });
            let since = ownership.held_since();
            node.cache.keep(ownership.id, &record, since);
            let answered = reply::stored(&node.clock, &record);
            let stored = StoredRecord { id: ownership.id, record };
            running_entry.show(Progress::Ended { stored, since });
            ran(answered).unwrap_or_else(|| unknown(ownership))
        }
        Finished::Overtaken(reading) => overtaken(ownership, ending, &reading),
        Finished::Never => unknown(ownership),
    }
}

/// The finish was refused for good: the caller gets what is stored, never the attempt's own answer.
pub(crate) fn overtaken<L>(ownership: &Ownership, ending: &Ending, reading: &Reading) -> RequestOutcome<L> {
    let node = &ownership.node;
    let record = ownership.record();
    let (found, operation_id, operation) = (reading.found(), record.operation_id(), record.operation());
    report_fenced(node, (ownership.id, &record), found, record.token(), ending);
    if machine::outlived(&record, found) {
        node.observe(&Event::RecordLost { operation_id, operation });
    }
    let subject = Subject { id: ownership.id, operation_id, operation, caller: record.caller_hash() };
    reply::request_outcome(node, &subject, found, machine::overtaken(&record, found))
}

/// Reports a refused ending of the attempt with this token to the observer. Returns whether the entry contradicts it.
pub(crate) fn report_fenced(
    node: &Node,
    (id, record): (CommandId, &Record),
    found: Found<'_>,
    token: Token,
    ending: &Ending,
) -> bool {
    let (operation_id, operation) = (record.operation_id(), record.operation());
    // Labels are stored next to an outcome, not inside it.
    let open = |outcome: &Outcome| {
        let labels = Labels::default();
        Outcome { labels, ..node.sealing.open(id, operation_id, outcome) }
    };
    let differs = machine::contradicts(found, token, ending, open);
    node.observe(&Event::Fenced { operation_id, operation, differs });
    differs
}

/// Stores that the outcome is unknown. The caller gets what the record says: a verdict may have come first.
async fn in_doubt<L>(ownership: &Ownership, running_entry: RunningEntry, reply: Reply<L>, why: &str) {
    let (node, ending) = (&ownership.node, Ending::InDoubt);
    let mut finish = pin!(ownership.finish(ending.clone(), why));
    let Some(finished) = node.clock.within(node.settings.finish_wait, &mut finish).await else {
        answer(reply, &ownership.record(), unknown(ownership));
        let finished = finish.await;
        let _: RequestOutcome = concluded(ownership, &running_entry, &ending, finished, |_| None);
        return;
    };
    let request_outcome = concluded(ownership, &running_entry, &ending, finished, |_| None);
    drop(running_entry);
    answer(reply, &ownership.record(), request_outcome);
}

/// Nothing was sent: give the attempt back, so that the next request is the next attempt.
async fn give_up<L>(ownership: &Ownership, running_entry: RunningEntry, reply: Reply<L>, why: GivenUp) {
    let node = &ownership.node;
    let mut abandoning = pin!(ownership.abandon(why.reason()));
    // A caller whose time was too short retries at once, and must not find its own last attempt.
    let wait = if why == GivenUp::Late { node.settings.finish_wait } else { Duration::ZERO };
    let in_time = node.clock.within(wait, &mut abandoning).await;
    let conclude = |finished| {
        let _: RequestOutcome =
            concluded(ownership, &running_entry, &Ending::NotApplied(None), finished, |_| None);
        drop(running_entry);
    };
    if let Some(finished) = in_time {
        conclude(finished);
        drop(reply.send(Err(Error::GivenUp(why))));
    } else {
        drop(reply.send(Err(Error::GivenUp(why))));
        conclude(abandoning.await);
    }
}

/// The outcome of the attempt is unknown.
pub(crate) fn unknown<L>(ownership: &Ownership) -> RequestOutcome<L> {
    RequestOutcome::Unknown { repeatable: reply::is_repeatable(&ownership.node.clock, &ownership.record()) }
}

/// Answers the caller, who may have gone away.
fn answer<L>(reply: Reply<L>, record: &Record, request_outcome: RequestOutcome<L>) {
    drop(reply.send(Ok(ExecuteResponse { operation_id: record.operation_id(), outcome: request_outcome })));
}

//! The course of one attempt, in a task of the engine's own.
//!
//! What lives here: work, lease, deadline, shutdown, and the ending: whichever comes first. What must never: anything
//! that a caller's going away could cancel.

use crate::answer::{Answer, Error, GivenUp, Ran, Told};
use crate::attempt::Attempt;
use crate::node::Node;
use crate::observe::Event;
use crate::ownership::{Finished, Ownership};
use crate::running::{Place, Progress, Standing};
use crate::spans::span;
use crate::tasks::Closing;
use crate::telling::{self, Subject};
use futures_util::FutureExt;
use semel_core::classify::Ending;
use semel_core::labels::Labels;
use semel_core::machine;
use semel_core::outcome::Outcome;
use semel_core::record::Record;
use semel_core::store::Reading;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// What the work hands back: how the attempt ended, and whatever else the call that ran it wants.
#[derive(Debug)]
pub struct Ended<L = ()> {
    /// How the attempt ended.
    pub ending: Ending,
    /// Handed to the call that ran the work, and to nobody else.
    pub local: L,
    /// Why, in a few words for the record's history, which is what an operator goes by; empty where the state says it all.
    pub why: Cow<'static, str>,
    held: Held,
}

/// What is dropped once an ending is stored, whatever it is.
#[derive(Default)]
struct Held(Option<Box<dyn Any + Send>>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Held(something)" } else { "Held(nothing)" })
    }
}

impl<L> Ended<L> {
    /// Without a word about why.
    pub const fn new(ending: Ending, local: L) -> Self {
        Self { ending, local, why: Cow::Borrowed(""), held: Held(None) }
    }

    /// The same, and drops `held` as soon as the ending is stored, or never will be. For whoever counts the memory that an outcome
    /// takes: it is held until then, also where the caller has been answered without it.
    #[must_use]
    pub fn holding(self, held: impl Any + Send) -> Self {
        Self { held: Held(Some(Box::new(held))), ..self }
    }

    /// The same, and why. Nothing of a request or response belongs in there.
    #[must_use]
    pub fn because(self, why: impl Into<Cow<'static, str>>) -> Self {
        Self { why: why.into(), ..self }
    }
}

impl From<Ending> for Ended {
    fn from(ending: Ending) -> Self {
        Self::new(ending, ())
    }
}

/// Work that is ready to be begun.
pub(crate) type Work<L> = Box<dyn FnOnce(Attempt) -> Pin<Box<dyn Future<Output = Ended<L>> + Send>> + Send>;

/// Where the answer goes; the caller may have gone away.
pub(crate) type Reply<L> = oneshot::Sender<Result<Answer<L>, Error>>;

/// What happened first.
#[expect(clippy::large_enum_variant, reason = "nearly all of them end, and one is held at a time")]
enum Came<L> {
    Ended(Ended<L>),
    Panicked,
    Overran,
    Closing,
}

/// Runs the work of an attempt that is claimed, and stores how it ended.
pub(crate) async fn conduct<L: Send>(
    node: Arc<Node>,
    ownership: Ownership,
    place: Place,
    work: Work<L>,
    reply: Reply<L>,
) {
    let ownership = Arc::new(ownership);
    let record = ownership.record();
    place.show(Progress::Running(Standing { id: ownership.id, record: Arc::clone(&record) }));
    node.observe(&Event::Claimed { operation: record.operation(), attempt: record.attempt() });
    let begun = !telling::has_not_begun(&record);
    ownership.begin_deadline();
    let keeping = node.renewer.keep(&ownership).await;
    let hindrance = if begun && !ownership.may_send() {
        Some(GivenUp::Lapsed)
    } else {
        node.tasks.is(Closing::Now).then_some(GivenUp::Closing)
    };
    if let Some(why) = hindrance {
        keeping.end().await;
        give_up(&ownership, &place, reply, why).await;
        return;
    }
    let operation_id = record.operation_id();
    let came = came_first(&node, &ownership, work).await;
    // Before the record is read: a clone of the attempt may just be starting it.
    ownership.close();
    keeping.end().await;
    // From here on an ending may stand in the store before this node knows that it does.
    place.show(Progress::Unsure(Standing { id: ownership.id, record: ownership.record() }));
    match came {
        Came::Ended(ended) => {
            settle(&ownership, place, reply, ended).await;
        }
        came if telling::has_not_begun(&ownership.record()) => {
            let why = match came {
                Came::Panicked => GivenUp::Panicked,
                Came::Overran => GivenUp::Overran,
                Came::Closing | Came::Ended(_) => GivenUp::Closing,
            };
            give_up(&ownership, &place, reply, why).await;
        }
        // Never a release, and no word of the owner's either: it stands as it is until its lease dies.
        Came::Panicked => {
            node.observe(&Event::Panicked { operation_id, operation: record.operation() });
            drop(place);
            answer(reply, &record, unknown(&ownership));
        }
        Came::Overran => {
            node.observe(&Event::Overran { operation_id, operation: record.operation() });
            in_doubt(&ownership, &place, reply, "the work took longer than its deadline").await;
        }
        Came::Closing => in_doubt(&ownership, &place, reply, "the process was shut down").await,
    }
}

async fn came_first<L>(node: &Arc<Node>, ownership: &Arc<Ownership>, work: Work<L>) -> Came<L> {
    let attempt = Attempt { ownership: Arc::clone(ownership) };
    let left = || ownership.deadline().saturating_sub(node.clock.uptime());
    let mut work = pin!(AssertUnwindSafe(async move { work(attempt).await }).catch_unwind());
    // Asked before every step of the work: a machine that was suspended must not go on where it stopped.
    let work = std::future::poll_fn(|context| {
        if left().is_zero() { Poll::Ready(None) } else { work.as_mut().poll(context).map(Some) }
    });
    let deadline = async {
        while !left().is_zero() {
            node.clock.sleep(left()).await;
        }
    };
    tokio::select! {
        biased;
        ended = work => match ended {
            Some(Ok(ended)) => Came::Ended(ended),
            Some(Err(_)) => Came::Panicked,
            None => Came::Overran,
        },
        () = node.tasks.closed(Closing::Now) => Came::Closing,
        () = deadline => Came::Overran,
    }
}

/// Stores the ending; tells the caller once it is stored, or once it has waited long enough, and goes on trying.
async fn settle<L>(ownership: &Ownership, place: Place, reply: Reply<L>, ended: Ended<L>) {
    let Ended { mut ending, local, why, held: _held } = ended;
    if let Some((stored, _)) = ownership.stored_elsewhere() {
        ending = stored;
    }
    let node = &ownership.node;
    let attempt = ownership.record().attempt();
    let repeatable = || telling::is_repeatable(node, &ownership.record());
    let kept = node.sealed_ending(ownership, ending.clone());
    let mut finish = pin!(ownership.finish(kept.clone(), &why).instrument(span!("finish")));
    let Some(finished) = node.within(node.settings.finish_wait, &mut finish).await else {
        let told =
            Told::Ran(Ran { ending: ending.clone(), stored: None, attempt, repeatable: repeatable(), local });
        answer(reply, &ownership.record(), told);
        let finished = finish.await;
        let _: Told = concluded(ownership, &place, &kept, finished, |_| None);
        return;
    };
    let ran = |stored| {
        let (ending, repeatable) = (ending.clone(), repeatable());
        Some(Told::Ran(Ran { ending, stored: Some(stored), attempt, repeatable, local }))
    };
    let told = concluded(ownership, &place, &kept, finished, ran);
    // Before the answer: a caller that repeats the command at once must not find its own last attempt running.
    drop(place);
    answer(reply, &ownership.record(), told);
}

/// Lets everybody know what came of the ending. `ran` says it to the caller, where it is stored.
fn concluded<L>(
    ownership: &Ownership,
    place: &Place,
    ending: &Ending,
    finished: Finished,
    ran: impl FnOnce(crate::answer::Stored) -> Option<Told<L>>,
) -> Told<L> {
    let node = &ownership.node;
    match finished {
        Finished::Stored(record) => {
            node.observe(&Event::Finished { operation: record.operation(), state: record.state_name() });
            node.cache.keep(ownership.id, &record, node.clock.uptime());
            let stored = telling::stored(node, &record);
            place.show(Progress::Ended(Standing { id: ownership.id, record }));
            ran(stored).unwrap_or_else(|| unknown(ownership))
        }
        Finished::Overtaken(reading) => overtaken(ownership, ending, &reading),
        Finished::Never => unknown(ownership),
    }
}

/// The finish was refused for good: the caller is told what stands there, never the attempt's own answer.
pub(crate) fn overtaken<L>(ownership: &Ownership, ending: &Ending, reading: &Reading) -> Told<L> {
    let node = &ownership.node;
    let record = ownership.record();
    let (found, operation_id, operation) = (reading.found(), record.operation_id(), record.operation());
    // Labels stand beside a stored outcome, and not in it.
    let open = |outcome: &Outcome| {
        let labels = Labels::default();
        Outcome { labels, ..node.opened(ownership.id, operation_id, outcome) }
    };
    let differs = machine::contradicts(found, ending, |stands, known| open(stands) == open(known));
    node.observe(&Event::Fenced { operation_id, operation, differs });
    if machine::outlived(&record, found) {
        node.observe(&Event::RecordLost { operation_id, operation });
    }
    let subject = Subject { id: ownership.id, operation_id, operation, caller: record.caller_hash() };
    telling::told(node, &subject, found, machine::overtaken(&record, found))
}

async fn in_doubt<L>(ownership: &Ownership, place: &Place, reply: Reply<L>, why: &str) {
    // The caller need not wait for it to be stored: it is told the same either way.
    answer(reply, &ownership.record(), unknown(ownership));
    let finished = ownership.finish(Ending::InDoubt, why).await;
    let _: Told = concluded(ownership, place, &Ending::InDoubt, finished, |_| None);
}

/// Nothing was sent: the attempt is given back, so that the next request is the next attempt.
async fn give_up<L>(ownership: &Ownership, place: &Place, reply: Reply<L>, why: GivenUp) {
    drop(reply.send(Err(Error::GivenUp(why))));
    let finished = ownership.abandon(why.reason()).await;
    let _: Told = concluded(ownership, place, &Ending::NotApplied(None), finished, |_| None);
}

/// Nobody can tell what became of the attempt.
pub(crate) fn unknown<L>(ownership: &Ownership) -> Told<L> {
    Told::Unknown { repeatable: telling::is_repeatable(&ownership.node, &ownership.record()) }
}

/// Tells the caller, who may have gone away.
fn answer<L>(reply: Reply<L>, record: &Record, told: Told<L>) {
    drop(reply.send(Ok(Answer { operation_id: record.operation_id(), told })));
}

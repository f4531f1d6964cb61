//! How a request waits for a duplicate that runs already.
//!
//! Contents: looking, and being woken. Never here: beginning an attempt; whatever would need one is still in progress
//! to a waiter.

use crate::answer::Answer;
use crate::backoff::Backoff;
use crate::node::Node;
use crate::running::{Place, Progress, Standing};
use crate::telling::{self, Subject};
use semel_core::id::CommandId;
use semel_core::machine::{self, Command, Found, Reply};
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What came of waiting for a duplicate in this process.
pub(crate) enum Waited<L> {
    /// The caller gets this.
    Answered(Answer<L>),
    /// The duplicate ran and left no word: the store knows more.
    AskTheStore,
    /// The store has not answered the duplicate's claim for longer than anybody waits for it.
    Stalled(store::Error),
    /// The duplicate never ran: anyone who waited for it is a request like any other.
    NeverRan,
}

/// Waits for a duplicate in this process, until `until` by the uptime.
pub(crate) async fn for_local<L>(
    node: &Node,
    command: &Command<'_>,
    mut twin: watch::Receiver<Progress>,
    until: Duration,
) -> Waited<L> {
    let mut ran = false;
    // Storing a claim takes as long as the store takes; there is nothing to tell until then.
    let claimed_by = until.max(node.clock.uptime() + node.settings.request_timeout());
    loop {
        let progress = twin.borrow_and_update().clone();
        match &progress {
            Progress::Claiming if node.clock.uptime() >= claimed_by => {
                let context = "waiting for the store to answer a claim of the same command";
                return Waited::Stalled(store::Error::new(Kind::Unavailable, context));
            }
            // Nothing is bound before the transaction has ended, and it may be rolled back. But another node may have
            // been faster, and its outcome be known to anyone who asks here.
            Progress::Transaction if node.clock.uptime() >= until => return Waited::AskTheStore,
            Progress::Claiming | Progress::Transaction => {}
            Progress::Running(Standing { id, record }) | Progress::Unsure(Standing { id, record }) => {
                ran = true;
                // As of its own last write: while it runs, its owner is alive.
                let reply = machine::attend(Found::Record(record), command, record.updated_at());
                let waited = node.clock.uptime() >= until;
                // Only a lease that is known to be alive speaks for the record: past it, somebody may have taken the
                // attempt over and ended it.
                let is_certain = matches!(progress, Progress::Running(_))
                    && machine::is_held(record, node.now_at_the_latest());
                match (reply, is_certain) {
                    (Reply::InProgress, _) if !waited => {}
                    (_, true) => return Waited::Answered(answer(node, command, *id, record, reply)),
                    (_, false) => return Waited::AskTheStore,
                }
            }
            Progress::Ended(Standing { id, record }) => {
                // Only what is final and not past its time is sure to stand there still: between the write and this
                // look the process may have stood still, and others gone on.
                if telling::is_kept(record) {
                    let reply = machine::attend(Found::Record(record), command, node.now_at_the_latest());
                    if matches!(reply, Reply::Replay(_) | Reply::Mismatch) {
                        return Waited::Answered(answer(node, command, *id, record, reply));
                    }
                }
                return Waited::AskTheStore;
            }
            Progress::Left if ran => return Waited::AskTheStore,
            Progress::Left => return Waited::NeverRan,
        }
        let by = if ran || matches!(progress, Progress::Transaction) { until } else { claimed_by };
        let span = by.saturating_sub(node.clock.uptime());
        tokio::select! {
            biased;
            changed = twin.changed() => drop(changed),
            () = node.clock.sleep(span) => {}
        }
    }
}

/// Waits for an attempt of another node, by looking at the store, until `until` by the uptime. Twins in this process
/// are shown what it sees.
pub(crate) async fn for_remote<L>(
    node: &Node,
    command: &Command<'_>,
    (id, mut reading): (CommandId, Reading),
    place: Option<&Place>,
    until: Duration,
) -> Result<Answer<L>, store::Error> {
    let mut backoff = Backoff::new(node.settings.poll_min, node.settings.poll_max);
    let mut changed = node.store.changed(id);
    if changed.is_some()
        && machine::attend(reading.found(), command, node.at(reading.now)) == Reply::InProgress
    {
        // It may have changed before this was told of changes.
        reading = node.get(id).await?;
    }
    loop {
        let reply = machine::attend(reading.found(), command, node.at(reading.now));
        if reply != Reply::InProgress || node.clock.uptime() >= until {
            show_end(place, id, &reading, reply);
            return Ok(telling::answer(node, &Subject::under(id, command), reading.found(), reply));
        }
        if let (Some(place), Some(record)) = (place, reading.record()) {
            place.show(Progress::Unsure(Standing { id, record: Arc::new(record.clone()) }));
        }
        let left = until.saturating_sub(node.clock.uptime());
        // Told of changes, a look now and then is only a net.
        let pause = if changed.is_some() {
            node.settings.poll_max * 4
        } else {
            backoff.next_span(node.random.bits())
        };
        let nap = node.clock.sleep(pause.min(left).max(Duration::from_millis(1)));
        match changed.take() {
            Some(changed) => tokio::select! {
                biased;
                () = changed => {}
                () = nap => {}
            },
            None => nap.await,
        }
        // Before the look: a change between the two must not go unnoticed.
        changed = node.store.changed(id);
        reading = node.get(id).await?;
    }
}

/// Twins that wait in this process learn of an outcome that cannot change any more.
pub(crate) fn show_end(place: Option<&Place>, id: CommandId, reading: &Reading, reply: Reply<'_>) {
    if let (Some(place), Reply::Replay(_), Some(record)) = (place, reply, reading.record()) {
        place.show(Progress::Ended(Standing { id, record: Arc::new(record.clone()) }));
    }
}

fn answer<L>(
    node: &Node,
    command: &Command<'_>,
    id: CommandId,
    record: &Record,
    reply: Reply<'_>,
) -> Answer<L> {
    telling::answer(node, &Subject::under(id, command), Found::Record(record), reply)
}

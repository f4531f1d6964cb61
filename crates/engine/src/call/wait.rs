//! Waiting for a running duplicate.
//!
//! A waiter polls and is notified. It never starts an attempt: if one is needed, the command is still in progress.

use crate::call::answer::ExecuteResponse;
use crate::call::claim::FoundEntry;
use crate::call::reply::{self, Subject};
use crate::node::Node;
use crate::node::running::{Progress, RunningEntry, StoredRecord};
use crate::runtime::backoff::Backoff;
use semel_core::id::CommandId;
use semel_core::machine::{self, Command, Found, Reply};
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    /// The uptime at which its caller asked.
    pub(crate) asked: Duration,
    /// The uptime at which it gives up.
    pub(crate) until: Duration,
}

/// The result of waiting for a duplicate in this process.
pub(crate) enum Waited<L> {
    /// The answer for the caller.
    Answered(ExecuteResponse<L>),
    /// The duplicate ended without a result for this caller: ask the store.
    AskTheStore,
    /// The store has not answered the duplicate's claim in time.
    Stalled(store::Error),
    /// The duplicate never ran: its waiters start again like new requests.
    NeverRan,
}

/// Waits for a duplicate in this process.
pub(crate) async fn for_local<L>(
    node: &Node,
    command: &Command<'_>,
    mut running: watch::Receiver<Progress>,
    Waiter { asked, until }: Waiter,
) -> Waited<L> {
    let mut ran = false;
    // Until the claim is stored, there is no answer.
    let claimed_by = until.max(node.clock.uptime() + node.settings.request_timeout());
    loop {
        let progress = running.borrow_and_update().clone();
        match &progress {
            Progress::Claiming if node.clock.uptime() >= claimed_by => {
                let context = "waiting for the store to answer a claim of the same command";
                return Waited::Stalled(store::Error::new(Kind::Unavailable, context));
            }
            // The transaction may still be rolled back, so it decides nothing yet. But another node may have been
            // faster and stored its outcome.
            Progress::Transaction if node.clock.uptime() >= until => return Waited::AskTheStore,
            Progress::Claiming | Progress::Transaction => {}
            Progress::Running(StoredRecord { id, record })
            | Progress::Unsure(StoredRecord { id, record }) => {
                ran = true;
                // Judged at its last write: while it runs, its owner is alive.
                let reply = machine::attend(Found::Record(record), command, record.updated_at());
                let waited = node.clock.uptime() >= until;
                // Only a valid lease guarantees that the record is current: after it, somebody may have taken over
                // and ended the attempt.
                let is_certain = matches!(progress, Progress::Running(_))
                    && machine::is_held(record, node.clock.now_at_the_latest());
                match (reply, is_certain) {
                    (Reply::InProgress, _) if !waited => {}
                    (_, true) => return Waited::Answered(answer(node, command, *id, record, reply)),
                    (_, false) => return Waited::AskTheStore,
                }
            }
            Progress::Ended { stored: StoredRecord { id, record }, since } => {
                // Only a final outcome that has not expired is certainly still stored: the process may have been
                // suspended since. Before this caller asked, another node may have erased it, or used the key again
                // if this one's time is behind.
                let now = node.clock.now_at_the_latest();
                let may_keep = now.can_claim() && node.cache.may_keep(*since, node.clock.uptime());
                if (*since >= asked || may_keep) && reply::is_kept(record) {
                    let reply = machine::attend(Found::Record(record), command, now);
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
            changed = running.changed() => drop(changed),
            () = node.clock.sleep(span) => {}
        }
    }
}

/// Waits for an attempt of another node by polling the store. The entry was read after the waiter asked. Duplicates in
/// this process get its result.
pub(crate) async fn for_remote<L>(
    node: &Node,
    command: &Command<'_>,
    FoundEntry { id, mut reading }: FoundEntry,
    running_entry: Option<&RunningEntry>,
    Waiter { asked: mut since, until }: Waiter,
) -> Result<ExecuteResponse<L>, store::Error> {
    let mut backoff = Backoff::new(node.settings.poll_min, node.settings.poll_max);
    let mut changed = node.store.raw.changed(id);
    if changed.is_some()
        && machine::attend(reading.found(), command, node.clock.at(reading.now)) == Reply::InProgress
    {
        // It may have changed before the subscription.
        since = node.clock.uptime();
        reading = node.store.get(id).await?;
    }
    loop {
        let reply = machine::attend(reading.found(), command, node.clock.at(reading.now));
        if reply != Reply::InProgress || node.clock.uptime() >= until {
            show_end(running_entry, (id, since), &reading, reply);
            return Ok(reply::answer(node, &Subject::under(id, command), reading.found(), reply));
        }
        if let (Some(running_entry), Some(record)) = (running_entry, reading.record()) {
            running_entry.show(Progress::Unsure(StoredRecord { id, record: Arc::new(record.clone()) }));
        }
        let left = until.saturating_sub(node.clock.uptime());
        // With notifications, polling is only a safety net.
        let pause = if changed.is_some() {
            node.settings.poll_max * 4
        } else {
            backoff.next_span(node.random.bits())
        };
        let sleep = node.clock.sleep(pause.min(left).max(Duration::from_millis(1)));
        match changed.take() {
            Some(changed) => tokio::select! {
                biased;
                () = changed => {}
                () = sleep => {}
            },
            None => sleep.await,
        }
        // Subscribe before reading, so that no change between the two is missed.
        changed = node.store.raw.changed(id);
        since = node.clock.uptime();
        reading = node.store.get(id).await?;
    }
}

/// Notifies waiting duplicates in this process of a final outcome, which was read at the uptime `since` or later.
pub(crate) fn show_end(
    running_entry: Option<&RunningEntry>,
    (id, since): (CommandId, Duration),
    reading: &Reading,
    reply: Reply<'_>,
) {
    if let (Some(running_entry), Reply::Replay(_), Some(record)) = (running_entry, reply, reading.record()) {
        let stored = StoredRecord { id, record: Arc::new(record.clone()) };
        running_entry.show(Progress::Ended { stored, since });
    }
}

fn answer<L>(
    node: &Node,
    command: &Command<'_>,
    id: CommandId,
    record: &Record,
    reply: Reply<'_>,
) -> ExecuteResponse<L> {
    reply::answer(node, &Subject::under(id, command), Found::Record(record), reply)
}

//! The sweeper: turns expired outcomes into tombstones, removes old tombstones, marks expired leases.
//!
//! Handles due records in chunks and at a limited rate, safe with any number of nodes: each step is a compare-and-swap,
//! and the loser has nothing left to do. Nodes divide expiry and removal among themselves; what one of them leaves
//! undone for a few rounds, all others take over. Only records whose retention is over, as the machine judges, are
//! removed.

use crate::archive::Archived;
use crate::background::sweep_pace::Pace;
use crate::node::Node;
use crate::node::beat;
use crate::node::clock::NodeClock;
use crate::node::store_access::StoreAccess;
use crate::observe::{Event, SweepReport};
use crate::runtime::tasks::Closing;
use futures_util::future::join_all;
use semel_core::id::CommandId;
use semel_core::machine::{self, Due};
use semel_core::record::{Record, StateName};
use semel_core::store::{self, Change, Cursor, Filter, Item, Kind, Page, Written};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// After this long without a probe, no node seems to have a reconciler for it.
const NOBODY_ASKED: Duration = Duration::from_mins(10);
/// How long such a record is then set aside.
const SET_ASIDE: Duration = Duration::from_hours(1);

/// For how many rounds a due record is left to the node whose work share it is in.
const ROUNDS_LEFT_TO_ITS_NODE: u32 = 3;

/// The history's reason for a tombstone with a later end.
const EXTENDED: &str = "the clock was confirmed since; it is kept for its full length from then";

/// The reason for correcting a record's dates.
pub(crate) const REDATED: &str = "a wrong clock had dated it ahead";

/// Which records a round handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepScope {
    /// This node's work share of expiry and removal, and everything else.
    WorkShare,
    /// Everything that is due.
    All,
}

/// States whose dates may be in the future although the record is due.
const UNSETTLED: [StateName; 3] = [StateName::Claimed, StateName::Processing, StateName::Unknown];

/// Starts the sweeper, unless it is turned off.
pub(crate) fn begin(node: &Arc<Node>) {
    if node.settings.sweep.every.is_zero() {
        return;
    }
    let sweeping = Arc::clone(node);
    node.spawn.spawn(Box::pin(async move {
        let node = sweeping;
        loop {
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                () = node.clock.sleep(node.settings.sweep.every) => {}
            }
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                swept = sweep(&node, SweepScope::WorkShare) => {
                    // Every failed call has its own event.
                    if let Ok(swept) = swept {
                        node.observe(&Event::Swept(&swept));
                    }
                }
            }
        }
    }));
}

/// Handles every due record within `scope` once.
pub(crate) async fn sweep(node: &Arc<Node>, scope: SweepScope) -> Result<SweepReport, store::Error> {
    let mut swept = SweepReport::default();
    beat::catch_up(&node.store).await?;
    let now = node.clock.at(node.clock.now());
    if !now.can_judge_leases() {
        swept.stopped = true;
        return Ok(swept);
    }
    let may_look = node.clock.trusted.may_look_for_future_dates(node.clock.uptime());
    if may_look && node.clock.trusted.begin_look_for_future_dates() {
        let replaced_up_to = node.clock.trusted.replaced_up_to();
        let all_settled = sweep_unsettled(node, &mut swept).await;
        if !matches!(all_settled, Ok(true)) {
            node.clock.trusted.look_for_future_dates();
        }
        match all_settled {
            Ok(true) => node.clock.trusted.no_dates_are_ahead(replaced_up_to, node.clock.uptime()),
            Ok(false) => {}
            // What is due in the other parts of the store does not wait for a part that is lost.
            Err(error) if error.kind() == Kind::DataLost => {}
            Err(error) => return Err(error),
        }
    }
    sweep_due(node, scope, &mut swept).await?;
    Ok(swept)
}

/// Handles what is due when it begins, the longest overdue first.
async fn sweep_due(node: &Arc<Node>, scope: SweepScope, swept: &mut SweepReport) -> Result<(), store::Error> {
    let pace = pace_of(node);
    let (mut after, mut began_at) = (None::<Cursor>, None::<Time>);
    loop {
        let started_at = node.clock.uptime();
        let mut page = node.store.due(after.as_ref(), node.settings.sweep.chunk.max(1)).await?;
        let listed = page.items.len();
        let last = page.items.last().and_then(Item::record).and_then(Record::due_at);
        // What falls due meanwhile is left to the next round, which also tries again what this one could not settle.
        // A clock that is not trusted reports too much as due.
        let until = (*began_at.get_or_insert(page.now)).min(page.now);
        let is_later = last.is_some_and(|due_at| due_at > until);
        if scope == SweepScope::WorkShare {
            keep_work_share(node, &mut page);
        }
        let lag = chunk(node, &page, swept).await;
        let Some(next) = page.next.filter(|_| !is_later) else { return Ok(()) };
        after = Some(next);
        throttle(&node.clock, pace, (listed, lag), started_at).await;
    }
}

/// Removes what this node leaves to others for now. If all nodes are behind, a record that is overdue by no more than
/// this node's own is left to its node: otherwise, all of them would work on the same records.
fn keep_work_share(node: &Node, page: &mut Page) {
    let now = page.now;
    let overdue = |item: &Item| {
        let is_shared = |record: &&Record| {
            matches!(machine::due(record, node.clock.at(now)), Due::Expire | Due::Purge | Due::Extend)
        };
        let record = item.record().filter(is_shared)?;
        Some(record.due_at().map_or(Duration::MAX, |due_at| now.since(due_at)))
    };
    let work_share = node.secrets.work_share();
    let own = page.items.iter().filter(|item| work_share.has(item.id)).filter_map(overdue).max();
    let left_until =
        own.unwrap_or_default().saturating_add(node.settings.sweep.every * ROUNDS_LEFT_TO_ITS_NODE);
    page.items
        .retain(|item| work_share.has(item.id) || overdue(item).is_none_or(|overdue| overdue >= left_until));
}

/// Handles every unresolved record: one that a wrong clock dated in the future is due long before the store reports
/// it. Returns whether no record is left that has to wait.
async fn sweep_unsettled(node: &Arc<Node>, swept: &mut SweepReport) -> Result<bool, store::Error> {
    let mut all_settled = true;
    for state in UNSETTLED {
        all_settled &= sweep_state(node, state, swept).await?;
    }
    Ok(all_settled)
}

async fn sweep_state(
    node: &Arc<Node>,
    state: StateName,
    swept: &mut SweepReport,
) -> Result<bool, store::Error> {
    let filter = Filter { state: Some(state), ..Filter::default() };
    let (pace, mut all_settled) = (pace_of(node), true);
    let mut after: Option<Cursor> = None;
    loop {
        let started_at = node.clock.uptime();
        let page = node.store.page(&filter, after.as_ref(), node.settings.sweep.chunk.max(1)).await?;
        let now = node.clock.at(page.now);
        let is_due = |item: &Item| item.record().is_some_and(|it| machine::due(it, now) != Due::Nothing);
        let (handled, next) = (page.items.len(), page.next);
        let (items, rest): (Vec<_>, Vec<_>) = page.items.into_iter().partition(is_due);
        all_settled &= !rest.iter().filter_map(Item::record).any(|it| machine::is_dated_ahead(it, now));
        chunk(node, &Page { now: page.now, items, next: None }, swept).await;
        let Some(next) = next else { return Ok(all_settled) };
        after = Some(next);
        throttle(&node.clock, pace, (handled, Duration::ZERO), started_at).await;
    }
}

/// Archives records that are about to lose their outcome or to be removed. Returns whether they may be.
async fn archived(node: &Node, page: &Page) -> bool {
    let Some(archive) = &node.archive else { return true };
    let now = node.clock.at(page.now);
    let loses_data = |record: &Record| matches!(machine::due(record, now), Due::Expire | Due::Purge);
    let records = page.items.iter().filter_map(|item| item.record().map(|record| (item.id, record)));
    let batch: Vec<_> = records
        .filter(|(_, record)| loses_data(record))
        .map(|(id, record)| Archived { id, record })
        .collect();
    if batch.is_empty() {
        return true;
    }
    match archive.keep(&batch).await {
        Ok(()) => true,
        Err(error) => {
            node.observe(&Event::ArchiveFailed { error: &error });
            false
        }
    }
}

/// Handles the records of one chunk concurrently, so that a store with group commits writes them together. Returns by
/// how much the longest overdue one was overdue.
async fn chunk(node: &Arc<Node>, page: &Page, swept: &mut SweepReport) -> Duration {
    let now = page.now;
    swept.at = Some(now);
    let may_go = archived(node, page).await;
    for done in join_all(page.items.iter().map(|item| handle(node, item, now, may_go))).await {
        swept.seen += 1;
        match done {
            Done::Lapsed => swept.lapsed += 1,
            Done::Redated => swept.redated += 1,
            Done::Extended => swept.extended += 1,
            Done::Expired => swept.expired += 1,
            Done::Purged => swept.purged += 1,
            Done::ToProbe => swept.to_probe += 1,
            Done::Unreadable => swept.unreadable += 1,
            Done::Failed => swept.failed += 1,
            Done::SomebodyElse => {}
        }
    }
    let (judged, records) = (node.clock.at(now), page.items.iter().filter_map(Item::record));
    let is_late = |record: &&Record| match machine::due(record, judged) {
        Due::Nothing => false,
        // Without a reconciler, only an operator can resolve it: the sweeper is not behind.
        Due::Probe => node.reconcilers.knows(record.operation()),
        Due::Lapsed | Due::Redate | Due::Extend | Due::Expire | Due::Purge => true,
    };
    let overdue = records.filter(is_late).filter_map(Record::due_at);
    let lag = overdue.map(|due_at| now.since(due_at)).max().unwrap_or_default();
    swept.lag = swept.lag.max(lag);
    node.observe(&Event::SweptChunk { at: now, lag: swept.lag });
    lag
}

enum Done {
    Lapsed,
    Redated,
    Extended,
    Expired,
    Purged,
    ToProbe,
    Unreadable,
    Failed,
    SomebodyElse,
}

async fn handle(node: &Arc<Node>, item: &Item, now: Time, may_go: bool) -> Done {
    let Some(record) = item.record() else { return Done::Unreadable };
    let stamp = node.stamp(now, "its time was over");
    match machine::due(record, stamp.now) {
        Due::Nothing => Done::SomebodyElse,
        Due::Probe => {
            if !node.reconcilers.queue_probe(item.id, record.operation()) {
                set_aside(&node.store, item.id, record, now).await;
            }
            Done::ToProbe
        }
        Due::Lapsed => {
            let stamp = node.stamp(now, machine::LAPSED);
            let Ok(write) = machine::lapse(record, stamp) else { return Done::SomebodyElse };
            let done = swap(&node.store, item.id, &write, Done::Lapsed).await;
            if matches!(done, Done::Lapsed) {
                node.observe_lapse(&write.next);
            }
            done
        }
        Due::Redate => {
            let stamp = node.stamp(now, REDATED);
            let Ok(write) = machine::redate(record, stamp) else { return Done::SomebodyElse };
            swap(&node.store, item.id, &write, Done::Redated).await
        }
        Due::Extend => {
            let stamp = node.stamp(now, EXTENDED);
            let Ok(write) = machine::extend(record, stamp) else { return Done::SomebodyElse };
            swap(&node.store, item.id, &write, Done::Extended).await
        }
        Due::Expire | Due::Purge if !may_go => Done::Failed,
        Due::Expire => {
            let Ok(write) = machine::expire(record, stamp) else { return Done::SomebodyElse };
            report_expired(node, record, swap(&node.store, item.id, &write, Done::Expired).await)
        }
        Due::Purge => {
            let Ok(expect) = machine::purge(record, stamp.now) else { return Done::SomebodyElse };
            let done = if record.state_name() == StateName::Succeeded { Done::Expired } else { Done::Purged };
            report_expired(
                node,
                record,
                settled(&node.store.write(item.id, Change::Remove(expect)).await, done),
            )
        }
    }
}

/// Reports an expired outcome.
fn report_expired(node: &Node, record: &Record, done: Done) -> Done {
    if matches!(done, Done::Expired) {
        node.observe(&Event::Expired { operation: record.operation() });
    }
    done
}

/// This node has no reconciler for it. Another node may have one; if no node has probed it for a while, it is postponed
/// so that it does not delay every round. The record's history is unchanged, because there was no probe.
async fn set_aside(store: &StoreAccess, id: CommandId, record: &Record, now: Time) {
    let overdue = record.due_at().map_or(Duration::ZERO, |due_at| now.since(due_at));
    if overdue < NOBODY_ASKED {
        return;
    }
    if let Ok(write) = machine::plan_probe(record, Some(now + SET_ASIDE)) {
        // Refused or failed: it is due again in the next round.
        let _ = swap(store, id, &write, Done::ToProbe).await;
    }
}

async fn swap(store: &StoreAccess, id: CommandId, write: &machine::Write, done: Done) -> Done {
    settled(&store.write(id, write).await, done)
}

fn settled(result: &Result<Written, store::Error>, done: Done) -> Done {
    match result {
        Ok(Written::Done { .. }) => done,
        Ok(Written::Refused(_)) => Done::SomebodyElse,
        Err(_) => Done::Failed,
    }
}

fn pace_of(node: &Node) -> Pace {
    Pace::new(&node.settings.sweep, node.store.raw.capabilities().kept_in_memory)
}

/// Pauses for as long as the records were handled too fast; they were overdue by `lag`.
async fn throttle(clock: &NodeClock, pace: Pace, (handled, lag): (usize, Duration), started_at: Duration) {
    let took = clock.uptime().saturating_sub(started_at);
    let pause = pace.pause(handled, lag, took);
    // Shorter pauses are below the resolution of timers.
    if pause >= Duration::from_millis(1) {
        clock.sleep(pause).await;
    }
}

//! The reconciler: probes unknown outcomes.
//!
//! Decides who is asked, when, how often, and until when. [`machine`] decides what an answer means, and from when "not
//! found" counts.

use crate::node::Node;
use crate::node::clock::NodeClock;
use crate::node::reconcilers::{Case, Finding, Probing};
use crate::node::store_access::StoreAccess;
use crate::observe::{Event, Resolver};
use crate::runtime::tasks::Closing;
use crate::settings::Probe;
use semel_core::id::CommandId;
use semel_core::machine::{self, Refusal, Verdict};
use semel_core::record::{Record, State};
use semel_core::store::Written;
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// How often a verdict is applied again after a conflict.
const ROUNDS_MAX: usize = 16;

/// Starts the reconciler, if there is any.
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

/// A running probe. Dropped also if the reconciler panics, so that the probe is repeated.
struct Open {
    node: Arc<Node>,
    question: Probing,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.node.reconcilers.answered(&self.question);
    }
}

/// Probes one record, if it is still unknown, and stores the verdict.
async fn ask(node: &Arc<Node>, id: CommandId) {
    let Ok(reading) = node.store.get(id).await else { return };
    let now = node.clock.at(reading.now);
    if !now.can_claim() {
        // Nothing can be dated: neither the verdict nor the next probe.
        return;
    }
    let Some(record) = reading.record() else { return };
    let State::Unknown { since, probes, next_probe_at, .. } = *record.state() else { return };
    let Some(reconcile) = node.reconcilers.of(record.operation()) else { return };
    let from = machine::to_be_asked_from(record, now);
    if reading.now < from {
        // The next request can resolve it. Probe only after that is no longer allowed.
        if next_probe_at.is_none_or(|at| at < from) {
            plan(&node.store, id, record, Some(from)).await;
        }
        return;
    }
    let pace = reconcile.pace().unwrap_or(&node.settings.probe);
    // Do not probe every second because clients retry every second.
    let asked_lately = probes > 0 && reading.now.since(record.updated_at()) < pace.min;
    if asked_lately {
        return;
    }
    // Before the probe: the node that postpones it is the one that asks. If that node dies, the probe is delayed by
    // one pause.
    let (now, asked) = (reading.now, node.clock.uptime());
    let next = next_probe(pace, since.max(from), probes, now);
    let Some(record) = postpone(&node.store, id, record, next, now).await else { return };
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
        Finding::NotFound => Verdict::NotApplied { asked_at: asked_at(&node.clock, asked) },
        Finding::Refused => Verdict::Refused,
        Finding::NoAnswer => return left_to_operator(node, &record),
    };
    settle(node, id, &record, verdict, pace.quiet).await;
}

/// The time of a probe at the uptime `asked`, by the node's current time, which may have been replaced since.
fn asked_at(clock: &NodeClock, asked: Duration) -> Time {
    clock.now() - clock.uptime().saturating_sub(asked)
}

/// Stores the verdict. A concurrent probe of another node only postpones the next probe: the verdict still applies,
/// as long as the same attempt is in doubt.
async fn settle(node: &Arc<Node>, id: CommandId, asked: &Record, verdict: Verdict, quiet: Duration) {
    let verdict = node.sealing.seal_verdict(id, verdict);
    let (mut record, mut now) = (asked.clone(), node.clock.now());
    for _ in 0..ROUNDS_MAX {
        let why = format!("a probe answered: {}", verdict.name());
        let stamp = node.stamp(now, &why);
        let write = match machine::reconcile_after(&record, quiet, verdict.clone(), stamp) {
            Ok(write) => write,
            // Absence proves nothing yet: probe again right after the quiet period, at the latest.
            Err(refusal @ Refusal::QuietUntil(_)) => {
                let (planned, at) = (next_probe_at(&record), refusal.retry_at());
                if planned.is_none() || planned > at {
                    plan(&node.store, id, &record, at).await;
                }
                return;
            }
            Err(_) => return,
        };
        let reading = match node.store.write(id, &write).await {
            Ok(Written::Done { .. }) => {
                let (operation_id, state) = (record.operation_id(), write.next.state_name());
                let (operation, by) = (record.operation(), Resolver::Reconciler);
                node.observe(&Event::Reconciled { operation_id, operation, state, by });
                return;
            }
            Ok(Written::Refused(reading)) => reading,
            // If it was not stored, the probe is repeated.
            Err(_) => return,
        };
        match reading.record() {
            Some(current) if current.token() == asked.token() => record = current.clone(),
            _ => return,
        }
        now = reading.now;
    }
}

/// Postpones the next probe, which makes this node the one that asks now.
async fn postpone(
    store: &StoreAccess,
    id: CommandId,
    record: &Record,
    next_probe_at: Option<Time>,
    now: Time,
) -> Option<Record> {
    let write = machine::postpone(record, next_probe_at, now).ok()?;
    match store.write(id, &write).await {
        Ok(Written::Done { .. }) => Some(write.next),
        Ok(Written::Refused(_)) | Err(_) => None,
    }
}

/// Moves the time of the next probe without a probe.
async fn plan(store: &StoreAccess, id: CommandId, record: &Record, next_probe_at: Option<Time>) {
    if let Ok(write) = machine::plan_probe(record, next_probe_at) {
        // Refused or failed: another node has moved it, or it is due again in the sweeper's next round.
        let _ = store.write(id, &write).await;
    }
}

/// When to probe again if this probe gets no answer: later each time, and finally never.
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

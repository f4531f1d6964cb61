//! The owner of an attempt, and how its writes reach the store.
//!
//! The owner's token, the last known record, and the loop that writes it: try, read again if the answer was lost,
//! decide again. Every write is a transition of [`machine`].

use crate::node::Node;
use crate::node::beat;
use crate::observe::Event;
use crate::runtime::backoff::Backoff;
use crate::sealing::Seal;
use semel_core::classify::Ending;
use semel_core::id::CommandId;
use semel_core::machine::{self, Expect, Refusal, Write};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, Token};
use semel_core::store::{self, Kind, Reading, Written};
use semel_core::time::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// How often a write is recomputed before that counts as a fault of the store.
const ROUNDS_MAX: usize = 64;

/// The pause before a finish is tried again, at first and at most.
const FINISH_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

pub(crate) struct Ownership {
    pub(crate) node: Arc<Node>,
    pub(crate) id: CommandId,
    pub(crate) token: Token,
    /// Whether the outcome is sealed.
    pub(crate) seal: Seal,
    known: Mutex<Arc<Record>>,
    /// An upper bound of the uptime at which this owner dated its last stored write.
    held_since: Mutex<Duration>,
    /// One write at a time.
    pub(crate) writing: Arc<tokio::sync::Mutex<()>>,
    /// How it ended, if that was stored in the application's own transaction.
    ended: Mutex<Option<(Ending, Arc<Record>)>>,
    /// The lease is lost, or the attempt is over: nothing may be sent any more.
    closed: AtomicBool,
    /// Whether a check has allowed the work to send, if the work promised to send nothing without one.
    checked: Mutex<Option<bool>>,
    /// The uptime by which the effect must have begun, if the caller set a limit.
    begin_by: Option<Duration>,
    /// The uptime at which the work must have ended.
    deadline: Mutex<Duration>,
    /// The work was given more time.
    deadline_moved: Notify,
    /// Stops [`keep_lease`](Self::keep_lease).
    pub(crate) renewed_enough: Notify,
}

/// Why a write of the owner was not stored.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The machine does not allow it for the stored record.
    Refused(Reading),
    /// The store did not accept it; it may do so later.
    Store(store::Error),
    /// The clock is not trusted, so the write cannot be dated; later it may be.
    Clock,
}

/// The result of storing an attempt's ending.
#[derive(Debug)]
pub(crate) enum Finished {
    /// It is stored.
    Stored(Arc<Record>),
    /// The record no longer belongs to this attempt, or is gone; contains the current entry.
    Overtaken(Reading),
    /// The store was closed for good.
    Never,
}

impl Ownership {
    /// `held_since`: the uptime at which the owner dated the record, or an earlier one.
    pub(crate) fn new(
        node: Arc<Node>,
        id: CommandId,
        record: Record,
        held_since: Duration,
        seal: Seal,
    ) -> Self {
        let token = record.token();
        let (known, held_since) = (Mutex::new(Arc::new(record)), Mutex::new(held_since));
        let (writing, ended) = (Arc::default(), Mutex::default());
        let (closed, checked, deadline) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let (deadline_moved, renewed_enough) = (Notify::new(), Notify::new());
        Self {
            node,
            id,
            token,
            seal,
            known,
            held_since,
            writing,
            ended,
            closed,
            checked,
            begin_by: None,
            deadline,
            deadline_moved,
            renewed_enough,
        }
    }

    /// The same with a limit for the beginning of the effect.
    pub(crate) fn beginning_by(self, begin_by: Option<Duration>) -> Self {
        Self { begin_by, ..self }
    }

    /// The record as it was last known to be stored.
    pub(crate) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The ending that the application's own transaction has stored, with the record.
    pub(crate) fn stored_elsewhere(&self) -> Option<(Ending, Arc<Record>)> {
        self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The application's own transaction has stored how the attempt ended.
    pub(crate) fn ended_elsewhere(&self, ending: Ending, record: Record) {
        let record = Arc::new(record);
        self.close();
        self.learn(Arc::clone(&record));
        *self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((ending, record));
    }

    fn learn(&self, record: Arc<Record>) {
        *self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = record;
    }

    /// A write that was dated at the uptime `dated` or later is stored.
    fn hold(&self, dated: Duration) {
        *self.held_since.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = dated;
    }

    /// The last stored write was made at this uptime or later.
    pub(crate) fn held_since(&self) -> Duration {
        *self.held_since.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether the effect may be sent right now.
    pub(crate) fn may_send(&self) -> bool {
        let closed = self.closed.load(Ordering::Acquire);
        // Read this before the record: a renewal in between can only extend the lease.
        let held_since = self.held_since();
        let uptime = self.node.clock.uptime();
        let held_for = uptime.saturating_sub(held_since);
        // If this node's time may be outdated, others may judge the lease differently.
        !closed
            && !self.node.clock.trusted.is_out_of_touch(uptime)
            && machine::may_send(&self.record(), self.token, self.node.clock.now_at_the_latest(), held_for)
    }

    /// Nothing may be sent from here on, not even by a clone of the attempt.
    ///
    /// A clone that passed the check before has already stored its start, so the record that is read *after* this
    /// call shows it.
    pub(crate) fn close(&self) {
        // A check that runs right now ends first, so that `has_sent_nothing` shows its result.
        let _checked = self.checked();
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the effect may be sent right now. If so, it counts as sent.
    pub(crate) fn check(&self) -> bool {
        let mut checked = self.checked();
        let is_too_late = *checked == Some(false) && self.is_late();
        let may_send = !is_too_late && self.may_send();
        if let Some(checked) = checked.as_mut() {
            *checked |= may_send;
        }
        may_send
    }

    /// The work promises to send nothing unless a check succeeds.
    pub(crate) fn promise_checks(&self) {
        self.checked().get_or_insert(false);
    }

    /// Whether the work promised to check before it sends, and no check has succeeded. Ask after [`close`](Self::close).
    pub(crate) fn has_sent_nothing(&self) -> bool {
        *self.checked() == Some(false)
    }

    /// Nothing may be sent from here on, if nothing was: `false` if something may have been sent.
    pub(crate) fn close_if_unsent(&self) -> bool {
        let checked = self.checked();
        let is_unsent = *checked == Some(false);
        if is_unsent {
            self.closed.store(true, Ordering::Release);
        }
        is_unsent
    }

    /// The uptime by which the effect must have begun.
    pub(crate) fn begin_by(&self) -> Option<Duration> {
        self.begin_by
    }

    /// Whether the time for the beginning of the effect is over.
    pub(crate) fn is_late(&self) -> bool {
        self.begin_by.is_some_and(|by| self.node.clock.uptime() >= by)
    }

    /// Whether the work promised to check before it sends, and may have sent.
    pub(crate) fn may_await_answer(&self) -> bool {
        *self.checked() == Some(true)
    }

    fn checked(&self) -> MutexGuard<'_, Option<bool>> {
        self.checked.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The work's full deadline starts now.
    pub(crate) fn begin_deadline(&self) {
        let until = self.node.clock.uptime() + self.record().policy().work_deadline;
        *self.deadline.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = until;
        self.deadline_moved.notify_one();
    }

    /// By when the work must have ended.
    pub(crate) fn deadline(&self) -> Duration {
        *self.deadline.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) async fn start(&self) -> Result<Arc<Record>, WriteError> {
        let start = |record: &Record, now| machine::start(record, self.token, self.node.stamp(now, ""));
        self.write(&mut Vec::new(), start).await
    }

    pub(crate) async fn renew(&self) -> Result<Arc<Record>, WriteError> {
        self.write(&mut Vec::new(), |record, now| machine::renew(record, self.token, self.node.clock.at(now)))
            .await
    }

    /// Completes when no write of this owner is running.
    pub(crate) async fn write_is_over(&self) {
        drop(self.writing.lock().await);
    }

    /// Renews the lease for as long as it is polled. Ends if the lease is lost. After the deadline it waits for a new
    /// deadline: work that blocks its thread cannot be dropped and must not be renewed for ever, but it may still
    /// [start](Self::start), which gives it the full time again.
    pub(crate) async fn keep_lease(&self) {
        let lease = self.record().policy().lease;
        loop {
            if self.node.clock.uptime() >= self.deadline() {
                self.deadline_moved.notified().await;
                continue;
            }
            let pause = match self.renew().await {
                // Never zero: if the store's time is known only roughly, that would be a busy loop.
                Ok(_) => self.renewal_due_in().max(lease / 20),
                Err(WriteError::Store(_) | WriteError::Clock) => lease / 20,
                Err(WriteError::Refused(_)) => return self.lose_lease(),
            };
            self.node.clock.alarm(pause).await;
        }
    }

    /// The lease is no longer renewed: nothing may be sent, and the observer is notified.
    pub(crate) fn lose_lease(&self) {
        self.close();
        let record = self.record();
        let (operation_id, operation) = (record.operation_id(), record.operation());
        self.node.observe(&Event::LeaseLost { operation_id, operation });
    }

    /// Stores how the attempt ended. Does not give up: not during an outage, not with a full disk.
    pub(crate) async fn finish(&self, mut ending: Ending, why: &str) -> Finished {
        let mut backoff = Backoff::new(FINISH_PAUSE.0, FINISH_PAUSE.1);
        let (mut tried, mut is_reported) = (Vec::new(), false);
        loop {
            let finish = |record: &Record, now| {
                machine::finish(record, self.token, ending.clone(), self.node.stamp(now, why))
            };
            let result = self.write(&mut tried, finish).await;
            let error = match result {
                Ok(record) => return Finished::Stored(record),
                Err(WriteError::Refused(reading)) => return Finished::Overtaken(reading),
                Err(WriteError::Store(error)) => error,
                Err(WriteError::Clock) => store::Error::new(Kind::Unavailable, "waiting for a trusted clock"),
            };
            match error.kind() {
                Kind::Closed => return Finished::Never,
                // Known to have happened, but too large: store it without its body rather than not at all.
                Kind::TooLarge if without_body(&mut ending) => {
                    tried.clear();
                    continue;
                }
                _ => {}
            }
            // Even if the store cannot take the outcome now, it may take a renewal.
            if self.lease_is_short() {
                drop(self.renew().await);
            }
            if !is_reported {
                let record = self.record();
                let (operation_id, operation) = (record.operation_id(), record.operation());
                self.node.observe(&Event::Unstored { operation_id, operation, error: &error });
                is_reported = true;
            }
            let pause = backoff.next_span(self.node.random.bits());
            self.node.clock.sleep(pause).await;
        }
    }

    /// When to renew the lease: after a third of its duration, judged by the latest possible time.
    pub(crate) fn renewal_due_in(&self) -> Duration {
        let record = self.record();
        let left = machine::lease_left(&record, self.node.clock.now_at_the_latest().at);
        left.saturating_sub(record.policy().lease / 3 * 2)
    }

    fn lease_is_short(&self) -> bool {
        let record = self.record();
        record.lease_until().is_some()
            && machine::lease_left(&record, self.node.clock.now()) < record.policy().lease / 2
    }

    /// Gives up the attempt before anything was sent.
    pub(crate) async fn abandon(&self, why: &str) -> Finished {
        self.finish(Ending::NotApplied(None), why).await
    }

    /// Computes a write from the known record and stores it; after a conflict, from the stored record. `tried`
    /// contains earlier tries of this transition that may still arrive.
    async fn write(
        &self,
        tried: &mut Vec<Write>,
        transition: impl Fn(&Record, Time) -> Result<Write, Refusal>,
    ) -> Result<Arc<Record>, WriteError> {
        let _one_at_a_time = self.writing.lock().await;
        if let Some((_, record)) = self.stored_elsewhere() {
            return Ok(record);
        }
        // If this fails, an ending is still stored, but nothing may be sent.
        drop(beat::catch_up(&self.node.store).await);
        let started_at = self.node.clock.uptime();
        let mut now = self.node.clock.now();
        let mut shown: Option<Reading> = None;
        for _ in 0..ROUNDS_MAX {
            let record = self.record();
            let write = match tried.last() {
                // Reuse the last write instead of collecting a new one each time: an outage may be long.
                Some(last) if last.expect == Expect::unchanged(&record) => last.clone(),
                _ => match transition(&record, now) {
                    Ok(write) => write,
                    Err(Refusal::ClockNotTrusted) => return Err(WriteError::Clock),
                    Err(_) => return Err(self.refused(shown).await),
                },
            };
            let reading = match self.node.store.write(self.id, &write).await {
                Ok(Written::Done { .. }) => {
                    let record = Arc::new(write.next);
                    self.learn(Arc::clone(&record));
                    self.hold(started_at);
                    return Ok(record);
                }
                Ok(Written::Refused(reading)) => reading,
                Err(error) if error.is_ambiguous() => {
                    if tried.last() != Some(&write) {
                        tried.push(write);
                    }
                    self.node.store.get(self.id).await.map_err(WriteError::Store)?
                }
                Err(error) => return Err(WriteError::Store(error)),
            };
            now = reading.now;
            // Check all of them: a write whose answer was lost may have arrived and caused the next refusal.
            let was_applied = tried.iter().any(|write| machine::was_applied(write, reading.found()));
            let Some(current) = reading.record().cloned().map(Arc::new) else {
                return Err(WriteError::Refused(reading));
            };
            if current.token() != self.token {
                // It belongs to another attempt: nothing of it may be returned here, least of all its fence.
                self.close();
                return Err(WriteError::Refused(reading));
            }
            self.learn(Arc::clone(&current));
            if was_applied {
                self.hold(started_at);
                return Ok(current);
            }
            shown = Some(reading);
        }
        let context = "writing a record that the store keeps showing unchanged and keeps refusing to change";
        Err(WriteError::Store(store::Error::new(Kind::Unfit, context)))
    }

    async fn refused(&self, shown: Option<Reading>) -> WriteError {
        match shown {
            Some(reading) => WriteError::Refused(reading),
            // Refused by the known record: read the stored one.
            None => match self.node.store.get(self.id).await {
                Ok(reading) => WriteError::Refused(reading),
                Err(error) => WriteError::Store(error),
            },
        }
    }
}

/// Removes the body from an ending. Returns whether there was one.
fn without_body(ending: &mut Ending) -> bool {
    let outcome: &mut Outcome = match ending {
        Ending::Succeeded(outcome)
        | Ending::FailedReplayable(outcome)
        | Ending::NotAppliedForGood(outcome)
        | Ending::NotApplied(Some(outcome)) => outcome,
        Ending::NotApplied(None) | Ending::InDoubt => return false,
    };
    let had_one = outcome.body != Body::NotRetained;
    outcome.body = Body::NotRetained;
    had_one
}

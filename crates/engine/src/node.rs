//! What every part of one engine shares.
//!
//! What lives here: the store and how it is asked, the clock, and what this node knows. What must never: the course of
//! an attempt.

use crate::archive::Archive;
use crate::cache::Cache;
use crate::clock::{Clock, within};
use crate::clockwatch::{self, ClockWatch};
use crate::intent::Intent;
use crate::observe::{Call, Event, Observer};
use crate::ownership::Ownership;
use crate::quota::{Denied, Keepers, Permit};
use crate::random::Random;
use crate::reconcile::Reconcilers;
use crate::renewer::Renewer;
use crate::running::Running;
use crate::sealing::{KeyRing, Seal};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::spawn::Spawn;
use crate::tasks::Tasks;
use crate::timeline::Timeline;
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{Command, Expect, Stamp, Verdict};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, Token};
use semel_core::store::{self, Cursor, Fresh, Item, Kind, Page, Reading, Store, Written};
use semel_core::time::Time;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// One engine, as its own tasks see it.
pub(crate) struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) observer: Arc<dyn Observer>,
    /// The name that stands in the history of what this node writes.
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) timeline: Timeline,
    pub(crate) running: Arc<Running>,
    pub(crate) renewer: Renewer,
    /// Places for those who look after claims that were lost sight of.
    pub(crate) giving_back: Semaphore,
    pub(crate) cache: Cache,
    pub(crate) tasks: Tasks,
    pub(crate) reconcilers: Reconcilers,
    pub(crate) quota: Keepers,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    pub(crate) watch: Mutex<ClockWatch>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) sealing: Option<KeyRing>,
}

impl Node {
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// The store's time, the earliest that it can be.
    pub(crate) fn now(&self) -> Time {
        self.timeline.earliest(self.clock.uptime())
    }

    /// The store's time, the latest that it can be.
    pub(crate) fn now_at_the_latest(&self) -> Time {
        self.timeline.latest(self.clock.uptime())
    }

    /// Whether leases and quiet periods are judged by a clock that every node shares.
    pub(crate) fn has_own_clock(&self) -> bool {
        self.store.capabilities().own_clock
    }

    /// Whether the store's time, as it was told to a question put at `asked`, goes with the time that really passed. Where it does
    /// not, nothing is deleted and no absence is believed: a clock set a year ahead makes every outcome look expired, and one set two
    /// minutes ahead makes every quiet period look over.
    pub(crate) fn time_is_trusted(&self, now: Time, asked: Duration) -> bool {
        let received = self.clock.uptime();
        // An answer that was long under way tells too little about the clock.
        let (took, most) = (received.saturating_sub(asked), self.settings.sweep.skew / 2);
        if took > most {
            self.observe(&Event::Undated { took, most });
            return false;
        }
        let verdict =
            self.watch.lock().unwrap_or_else(std::sync::PoisonError::into_inner).feed(now, received);
        let by = match verdict {
            clockwatch::Verdict::Steady => return true,
            clockwatch::Verdict::MovedForward(by) => i64::try_from(by.as_millis()).unwrap_or(i64::MAX),
            clockwatch::Verdict::MovedBack(by) => i64::try_from(by.as_millis()).map_or(i64::MIN, |by| -by),
        };
        self.observe(&Event::ClockMoved { now, by_millis: by });
        false
    }

    pub(crate) fn stamp<'a>(&'a self, now: Time, why: &'a str) -> Stamp<'a> {
        Stamp { now, who: &self.name, why }
    }

    pub(crate) fn fresh_token(&self) -> Token {
        Token::from_random(self.random.bits())
    }

    /// An outcome as it is stored under `id`.
    pub(crate) fn sealed(&self, id: CommandId, outcome: Outcome) -> Outcome {
        match &self.sealing {
            Some(ring) => ring.seal(&id, &outcome, &*self.random),
            None => outcome,
        }
    }

    /// An ending as its owner stores it.
    pub(crate) fn sealed_ending(&self, ownership: &Ownership, ending: Ending) -> Ending {
        if ownership.seal == Seal::Off {
            return ending;
        }
        let seal = |outcome| self.sealed(ownership.id, outcome);
        match ending {
            Ending::Succeeded(outcome) => Ending::Succeeded(seal(outcome)),
            Ending::FailedReplayable(outcome) => Ending::FailedReplayable(seal(outcome)),
            Ending::NotApplied(outcome) => Ending::NotApplied(outcome.map(seal)),
            Ending::NotAppliedForGood(outcome) => Ending::NotAppliedForGood(seal(outcome)),
            Ending::InDoubt => Ending::InDoubt,
        }
    }

    /// A verdict as it is stored under `id`.
    pub(crate) fn sealed_verdict(&self, id: CommandId, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Applied(outcome) => Verdict::Applied(outcome.map(|outcome| self.sealed(id, outcome))),
            Verdict::Failed(outcome) => Verdict::Failed(self.sealed(id, outcome)),
            Verdict::NotApplied { .. } | Verdict::Refused => verdict,
        }
    }

    /// A stored outcome as it was before it was sealed. One that cannot be opened is known to have been given, and not
    /// retained.
    pub(crate) fn opened(&self, id: CommandId, operation_id: OperationId, outcome: &Outcome) -> Outcome {
        let opened = match (&self.sealing, &outcome.body) {
            (_, Body::Kept(_) | Body::NotRetained) => return outcome.clone(),
            (Some(ring), Body::Sealed(_)) => ring.open(&id, outcome).ok(),
            (None, Body::Sealed(_)) => None,
        };
        opened.unwrap_or_else(|| {
            self.observe(&Event::Unopened { operation_id });
            Outcome::not_retained(outcome.status)
        })
    }

    /// Leave to mint the key of a command that seems to be new.
    pub(crate) async fn admit(&self, command: &Command<'_>, intent: &Intent) -> Result<Permit, crate::Error> {
        let now = self.clock.uptime();
        let count = |what, at_most| -> store::Pending<'_, u64> {
            let counting = self.ask(Call::Count, self.store.count(what, at_most), |counted| counted.now);
            Box::pin(async move { counting.await.map(|counted| counted.count) })
        };
        let Intent { address, rates, measure, .. } = intent;
        let keeper = self.quota.of(*measure);
        let admitted = keeper.admit_with(&count, rates.as_ref(), command.caller_hash, *address, now).await;
        admitted.map_err(|denied| match denied {
            Denied::Exceeded(exceeded) => crate::Error::Quota(exceeded),
            Denied::Store(error) => crate::Error::Store(error),
        })
    }

    pub(crate) async fn insert(&self, id: CommandId, fresh: Fresh<'_>) -> Result<Written, store::Error> {
        self.ask(Call::Insert, self.store.insert(id, fresh), Written::now).await
    }

    pub(crate) async fn swap(
        &self,
        id: CommandId,
        expect: Expect,
        next: &Record,
    ) -> Result<Written, store::Error> {
        self.ask(Call::Swap, self.store.swap(id, expect, next), Written::now).await
    }

    pub(crate) async fn remove(&self, id: CommandId, expect: Expect) -> Result<Written, store::Error> {
        self.ask(Call::Remove, self.store.remove(id, expect), Written::now).await
    }

    pub(crate) async fn get(&self, id: CommandId) -> Result<Reading, store::Error> {
        self.ask(Call::Get, self.store.get(id), |reading| reading.now).await
    }

    pub(crate) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), store::Error> {
        self.ask(Call::Find, self.store.find(operation_id), |(now, _)| *now).await
    }

    pub(crate) async fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.ask(Call::Due, self.store.due(after, limit), |page| page.now).await
    }

    /// Puts a write of the machine into the store: as an insert where nothing may stand, else as a swap.
    pub(crate) async fn write(
        &self,
        id: CommandId,
        write: &semel_core::machine::Write,
    ) -> Result<Written, store::Error> {
        match write.expect {
            Expect::Absent => self.insert(id, Fresh::Record(&write.next)).await,
            expect @ Expect::Unchanged { .. } => self.swap(id, expect, &write.next).await,
        }
    }

    /// Asks the store, bounded in time, and takes note of its time and of how long it took. A question that is not
    /// answered in time may still be carried out: ambiguous.
    async fn ask<T>(
        &self,
        call: Call,
        answer: store::Pending<'_, T>,
        told: impl FnOnce(&T) -> Time,
    ) -> Result<T, store::Error> {
        let asked = self.clock.uptime();
        let result = self.within(self.settings.store_timeout, answer).await.unwrap_or_else(|| {
            Err(store::Error::new(Kind::Ambiguous, format!("waiting for the answer to {}", call.name())))
        });
        let received = self.clock.uptime();
        if let Ok(value) = &result {
            self.timeline.note(told(value), asked, received);
        }
        let took = received.saturating_sub(asked);
        self.observe(&Event::Asked { call, took, error: result.as_ref().err() });
        result
    }

    /// What `future` yields, unless that takes longer than `span`. Sets a timer only for what is not ready at once.
    pub(crate) async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        within(&*self.clock, span, future).await
    }
}

//! The store and its calls, the clock, and other state that all parts of an engine share.
//!
//! Also what has to hold on to that state: the owner of an attempt, and the renewer of leases. Nothing here knows an
//! intent or an answer.

pub(crate) mod beat;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod loss;
pub(crate) mod ownership;
mod probe_queue;
pub(crate) mod reconcilers;
pub(crate) mod renewer;
pub(crate) mod running;
pub(crate) mod store_id;
pub(crate) mod writable;

use crate::archive::Archive;
use crate::node::cache::Cache;
use crate::node::clock::NodeClock;
use crate::node::loss::LossWatch;
use crate::node::ownership::Ownership;
use crate::node::reconcilers::Reconcilers;
use crate::node::renewer::Renewer;
use crate::node::running::Running;
use crate::node::store_id::StoreId;
use crate::node::writable::{StatusChange, WriteSubject, WriteWatch};
use crate::observe::{Call, Event, Observer};
use crate::quota::Keepers;
use crate::runtime::random::Random;
use crate::runtime::spawn::Spawn;
use crate::runtime::tasks::Tasks;
use crate::sealing::{KeyRing, Seal};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::time::ClockChange;
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{Stamp, Verdict};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, StateName, Token};
use semel_core::store::{self, Change, Count, Cursor, Filter, Item, Kind, Page, Reading, Store, Written};
use semel_core::time::{Now, Time};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// How many IDs are tried for an answer of the store, in parts of it that may be lost.
const PARTS_TRIED_MAX: u8 = 8;

/// The shared state of one engine.
pub(crate) struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: NodeClock,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) observer: Arc<dyn Observer>,
    /// This node's name in the history of records.
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    /// Whether the store accepts writes.
    pub(crate) writes: WriteWatch,
    /// Whether the store has lost data.
    pub(crate) loss: LossWatch,
    /// The store's ID, after the first query.
    pub(crate) store_id: OnceCell<StoreId>,
    pub(crate) running: Arc<Running>,
    pub(crate) renewer: Renewer,
    /// Limits concurrent searches for claims whose fate is not known.
    pub(crate) giving_back: Semaphore,
    pub(crate) cache: Cache,
    pub(crate) tasks: Tasks,
    pub(crate) reconcilers: Reconcilers,
    pub(crate) quota: Keepers,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) sealing: Option<KeyRing>,
}

impl Node {
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// Reports a record that became unknown because its owner went silent.
    pub(crate) fn observe_lapse(&self, record: &Record) {
        if record.state_name() == StateName::Unknown {
            let (operation_id, operation) = (record.operation_id(), record.operation());
            self.observe(&Event::Lapsed { operation_id, operation });
        }
    }

    /// The status of the clock has changed.
    pub(crate) fn clock_changed(&self, change: ClockChange) {
        if matches!(change, ClockChange::Plausible | ClockChange::Confirmed | ClockChange::Followed { .. }) {
            self.clock.trusted.look_for_future_dates();
        }
        self.observe(&Event::Clock(change));
    }

    pub(crate) fn stamp<'a>(&'a self, now: Time, why: &'a str) -> Stamp<'a> {
        Stamp::new(self.clock.at(now), &self.name, why)
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

    /// A stored outcome, unsealed. One that cannot be unsealed counts as not retained.
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

    /// How many records there are of `what`, if not more than `at_most`.
    pub(crate) async fn count(&self, what: Count, at_most: u64) -> Result<u64, store::Error> {
        let counting = self.ask(Call::Count, self.store.count(what, at_most), |counted| &mut counted.now);
        counting.await.map(|counted| counted.count)
    }

    pub(crate) async fn get(&self, id: CommandId) -> Result<Reading, store::Error> {
        self.ask(Call::Get, self.store.get(id), |reading| &mut reading.now).await
    }

    pub(crate) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), store::Error> {
        self.ask(Call::Find, self.store.find(operation_id), |(now, _)| now).await
    }

    pub(crate) async fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.ask(Call::Due, self.store.due(after, limit), |page| &mut page.now).await
    }

    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, store::Error> {
        self.ask(Call::Page, self.store.page(filter, after, limit), |page| &mut page.now).await
    }

    /// The store's clock, trusted or not, and the uptime of the answer.
    pub(crate) async fn clock_time(&self) -> Result<(Time, Duration), store::Error> {
        let mut part = 0;
        loop {
            let nothing = CommandId::from_bytes([part; 32]);
            let mut shown = None;
            let noting = Box::pin(async {
                let reading = self.store.get(nothing).await?;
                shown = Some(reading.now);
                Ok(reading)
            });
            match self.ask(Call::Get, noting, |reading| &mut reading.now).await {
                Ok(reading) => return Ok((shown.unwrap_or(reading.now), self.clock.uptime())),
                // The part of the store with that ID is lost; others may continue.
                Err(error) if error.kind() == Kind::DataLost && part < PARTS_TRIED_MAX => part += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies a change, or a write of the machine, to the store.
    pub(crate) async fn write<'a>(
        &self,
        id: CommandId,
        change: impl Into<Change<&'a Record>>,
    ) -> Result<Written, store::Error> {
        let change = change.into();
        let call = match change {
            Change::Insert(_) | Change::InsertMarker => Call::Insert,
            Change::Replace(..) => Call::Swap,
            Change::Remove(_) | Change::RemoveMarker => Call::Remove,
        };
        let asked = self.clock.uptime();
        let written = self.ask(call, self.store.write(id, change), written_now).await;
        match &written {
            // A full store still accepts removals.
            Ok(Written::Done { .. }) if call == Call::Remove => {}
            Ok(Written::Done { .. }) => self.wrote(WriteSubject::Record, asked, Ok(())),
            // A refusal by condition says nothing about whether the store accepts writes.
            Ok(Written::Refused(_)) => {}
            Err(error) => self.wrote(WriteSubject::Record, asked, Err(error)),
        }
        written
    }

    /// Checks that no part of the store is lost.
    pub(crate) async fn check_store(&self) {
        let asked = self.clock.uptime();
        match self.clock.within(self.settings.store_timeout, self.store.check()).await {
            // Without a view, the settings may be what is lost.
            Some(Ok(())) if self.secrets.view().is_ok() && self.loss.intact(asked) => {
                self.observe(&Event::StoreIntact);
            }
            Some(Err(error)) => self.note_loss(&error),
            Some(Ok(())) | None => {}
        }
    }

    /// Reports a loss of data, if `error` is one and it is news.
    pub(crate) fn note_loss(&self, error: &store::Error) {
        if error.kind() == Kind::DataLost && self.loss.lost(self.clock.uptime()) {
            self.observe(&Event::StoreLost { error });
        }
    }

    /// Records the result of a write that began at the uptime `asked`.
    pub(crate) fn wrote(&self, subject: WriteSubject, asked: Duration, result: Result<(), &store::Error>) {
        match (self.writes.note(subject, asked, result), result) {
            (Some(StatusChange::Refuses), Err(error)) => self.observe(&Event::StoreRefuses { error }),
            (Some(StatusChange::Writes), _) => {
                self.observe(&Event::StoreWrites);
                self.secrets.refresh_soon();
            }
            _ => {}
        }
    }

    /// Calls the store with a timeout, and records its time: `time` locates it in the answer, and it is replaced by
    /// the node's trusted time.
    async fn ask<T>(
        &self,
        call: Call,
        answer: store::Pending<'_, T>,
        time: impl FnOnce(&mut T) -> &mut Time,
    ) -> Result<T, store::Error> {
        let asked = self.clock.uptime();
        let mut result = self.bounded(call, answer).await;
        if let Ok(value) = &mut result {
            self.date(time(value), asked);
        }
        result
    }

    /// Records the store's time from an answer to a call at `asked`, and replaces it by the node's trusted time.
    pub(crate) fn date(&self, time: &mut Time, asked: Duration) -> Now {
        let (at, change) = self.clock.trusted.note(*time, asked, self.clock.uptime());
        *time = at;
        if let Some(change) = change {
            self.clock_changed(change);
        }
        self.clock.at(at)
    }

    /// A call to the store with a timeout and an event. A call that times out may still be carried out, so its error
    /// is ambiguous.
    pub(crate) async fn bounded<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, store::Error>>,
    ) -> Result<T, store::Error> {
        let asked = self.clock.uptime();
        let timeout = match call {
            Call::Insert | Call::Swap | Call::Remove | Call::Get | Call::Find => {
                self.settings.request_timeout()
            }
            Call::Due | Call::Count | Call::Page | Call::Beat => self.settings.store_timeout,
        };
        let result = self.clock.within(timeout, answer).await.unwrap_or_else(|| {
            Err(store::Error::new(Kind::Ambiguous, format!("waiting for the answer to {}", call.name())))
        });
        let took = self.clock.uptime().saturating_sub(asked);
        self.observe(&Event::Asked { call, took, error: result.as_ref().err() });
        if let Err(error) = &result {
            self.note_loss(error);
        }
        result
    }
}

fn written_now(written: &mut Written) -> &mut Time {
    match written {
        Written::Done { now } => now,
        Written::Refused(reading) => &mut reading.now,
    }
}

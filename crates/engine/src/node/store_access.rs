//! Calls to the store, and what a node learns from their answers.
//!
//! Every call has a timeout and an event, and every answer shows the store's time, whether the store accepts writes, and
//! whether it has lost data.

use crate::node::clock::NodeClock;
use crate::node::loss::LossWatch;
use crate::node::store_id::StoreId;
use crate::node::writable::{StatusChange, WriteSubject, WriteWatch};
use crate::observe::{Call, Event, Observer};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::time::ClockChange;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Record;
use semel_core::store::{self, Change, Count, Cursor, Filter, Item, Kind, Page, Reading, Store, Written};
use semel_core::time::{Now, Time};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How many IDs are tried for an answer of the store, in parts of it that may be lost.
const PARTS_TRIED_MAX: u8 = 8;

pub(crate) struct StoreAccess {
    /// The store itself, for calls that are not dated.
    pub(crate) raw: Arc<dyn Store>,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) settings: Arc<Settings>,
    /// Whether the store accepts writes.
    pub(crate) writes: WriteWatch,
    /// Whether the store has lost data.
    pub(crate) loss: LossWatch,
    /// The store's ID, after the first query.
    pub(super) id: OnceCell<StoreId>,
    observer: Arc<dyn Observer>,
    secrets: Arc<Secrets>,
}

impl StoreAccess {
    pub(crate) fn new(
        raw: Arc<dyn Store>,
        clock: Arc<NodeClock>,
        settings: Arc<Settings>,
        observer: Arc<dyn Observer>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let (writes, loss, id) = (WriteWatch::default(), LossWatch::default(), OnceCell::new());
        Self { raw, clock, settings, writes, loss, id, observer, secrets }
    }

    /// How many records there are of `what`, if not more than `at_most`.
    pub(crate) async fn count(&self, what: Count, at_most: u64) -> Result<u64, store::Error> {
        let counting = self.ask(Call::Count, self.raw.count(what, at_most), |counted| &mut counted.now);
        counting.await.map(|counted| counted.count)
    }

    pub(crate) async fn get(&self, id: CommandId) -> Result<Reading, store::Error> {
        self.ask(Call::Get, self.raw.get(id), |reading| &mut reading.now).await
    }

    pub(crate) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), store::Error> {
        self.ask(Call::Find, self.raw.find(operation_id), |(now, _)| now).await
    }

    pub(crate) async fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.ask(Call::Due, self.raw.due(after, limit), |page| &mut page.now).await
    }

    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, store::Error> {
        self.ask(Call::Page, self.raw.page(filter, after, limit), |page| &mut page.now).await
    }

    /// The store's clock, trusted or not, and the uptime of the answer.
    pub(crate) async fn clock_time(&self) -> Result<(Time, Duration), store::Error> {
        let mut part = 0;
        loop {
            let nothing = CommandId::from_bytes([part; 32]);
            let mut shown = None;
            let noting = Box::pin(async {
                let reading = self.raw.get(nothing).await?;
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
        let written = self.ask(call, self.raw.write(id, change), written_now).await;
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
    pub(crate) async fn check(&self) {
        let asked = self.clock.uptime();
        match self.clock.within(self.settings.store_timeout, self.raw.check()).await {
            // Without a view, the settings may be what is lost.
            Some(Ok(())) if self.secrets.view().is_ok() && self.loss.intact(asked) => {
                self.observer.observe(&Event::StoreIntact);
            }
            Some(Err(error)) => self.note_loss(&error),
            Some(Ok(())) | None => {}
        }
    }

    /// Reports a loss of data, if `error` is one and it is news.
    pub(crate) fn note_loss(&self, error: &store::Error) {
        if error.kind() == Kind::DataLost && self.loss.lost(self.clock.uptime()) {
            self.observer.observe(&Event::StoreLost { error });
        }
    }

    /// Records the result of a write that began at the uptime `asked`.
    pub(crate) fn wrote(&self, subject: WriteSubject, asked: Duration, result: Result<(), &store::Error>) {
        match (self.writes.note(subject, asked, result), result) {
            (Some(StatusChange::Refuses), Err(error)) => {
                self.observer.observe(&Event::StoreRefuses { error });
            }
            (Some(StatusChange::Writes), _) => {
                self.observer.observe(&Event::StoreWrites);
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
        self.observer.observe(&Event::Asked { call, took, error: result.as_ref().err() });
        if let Err(error) = &result {
            self.note_loss(error);
        }
        result
    }
    /// The status of the clock has changed.
    pub(crate) fn clock_changed(&self, change: ClockChange) {
        if matches!(change, ClockChange::Plausible | ClockChange::Confirmed | ClockChange::Followed { .. }) {
            self.clock.trusted.look_for_future_dates();
        }
        self.observer.observe(&Event::Clock(change));
    }
}

fn written_now(written: &mut Written) -> &mut Time {
    match written {
        Written::Done { now } => now,
        Written::Refused(reading) => &mut reading.now,
    }
}

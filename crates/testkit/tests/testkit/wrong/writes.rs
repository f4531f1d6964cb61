//! Wrong writes.

use super::{Store, Wrong};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::machine::{Found, Unchanged};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Entry, Record, State, Token};
use semel_core::store::{Change, Error, Reading, Setting, Store as _, Written};
use tokio::task::yield_now;

impl Store {
    /// Stores the record or the marker of `change`, whatever is stored.
    async fn force(&self, id: CommandId, change: Change<&Record>) -> Result<Written, Error> {
        let reading = self.inner.get(id).await?;
        let bytes = match change.record() {
            Some(record) => codec::encode_record(record),
            None => codec::encode(&Entry::Moved),
        };
        match (reading.found(), change.record()) {
            (Found::Record(stands), Some(next)) => {
                return self.inner.write(id, Change::Replace(Unchanged::of(stands), next)).await;
            }
            (Found::Nothing, Some(next)) => return self.inner.write(id, Change::Insert(next)).await,
            (Found::Nothing, None) => return self.inner.write(id, Change::InsertMarker).await,
            _ => self.inner.overwrite(id, bytes)?,
        };
        Ok(Written::Done { now: reading.now })
    }

    pub(super) async fn wrong_write(&self, id: CommandId, change: Change<&Record>) -> Result<Written, Error> {
        let mangled = change.map(|record| self.mangled(record));
        if let Change::Insert(record) = &mangled {
            self.first_writes.lock().expect("no panic").entry(id).or_insert_with(|| record.clone());
        }
        let reading = self.inner.get(id).await?;
        let change = self.careless(mangled.as_ref(), &reading);
        let is_insert = matches!(change, Change::Insert(_) | Change::InsertMarker);
        let is_met = change.is_met_by(reading.found());
        match (self.wrong, change) {
            (Wrong::InsertWritesOver, _) if is_insert => self.force(id, change).await,
            (Wrong::InsertLooksThenWrites, _) if is_insert && reading.entry.is_none() => {
                yield_now().await;
                self.force(id, change).await
            }
            (Wrong::InsertHiddenRetry, _) if is_insert => {
                drop(self.inner.write(id, change).await?);
                self.inner.write(id, change).await
            }
            (Wrong::UnreadableIsWrittenOver, _) if is_insert && reading.found() == Found::Unreadable => {
                self.force(id, change).await
            }
            (Wrong::RecordOverMarker, _) if is_insert && reading.found() == Found::Moved => {
                self.force(id, change).await
            }
            (Wrong::SwapInserts, Change::Replace(_, next)) if reading.entry.is_none() => {
                self.inner.write(id, Change::Insert(next)).await
            }
            (Wrong::SwapLooksThenWrites, Change::Replace(..)) if is_met => {
                yield_now().await;
                self.force(id, change).await
            }
            (Wrong::SwapLosesWrites, Change::Replace(..)) if is_met && self.nth_write() % 10 == 9 => {
                Ok(Written::Done { now: reading.now })
            }
            (Wrong::RemovalOfNothingDone, Change::Remove(_)) if reading.record().is_none() => {
                Ok(Written::Done { now: reading.now })
            }
            _ => self.inner.write(id, change).await,
        }
    }

    /// The change, with the ignored part of its condition taken from the stored entry.
    fn careless<'a>(&self, change: Change<&'a Record>, reading: &Reading) -> Change<&'a Record> {
        let Some(stands) = reading.record() else { return change };
        let looser = |unchanged: Unchanged| match self.wrong {
            Wrong::IgnoresVersion => Unchanged { version: stands.version(), ..unchanged },
            Wrong::IgnoresToken => Unchanged { token: stands.token(), ..unchanged },
            Wrong::IgnoresState => Unchanged { state: stands.state_name(), ..unchanged },
            _ => unchanged,
        };
        match change {
            Change::Remove(_) if self.is(Wrong::RemovesRegardless) => Change::Remove(Unchanged::of(stands)),
            Change::RemoveMarker if self.is(Wrong::RecordGoesAsMarker) => {
                Change::Remove(Unchanged::of(stands))
            }
            Change::Replace(unchanged, next) => Change::Replace(looser(unchanged), next),
            Change::Remove(unchanged) => Change::Remove(looser(unchanged)),
            change => change,
        }
    }

    /// The record as stored by a store that is careless with outcomes.
    fn mangled(&self, record: &Record) -> Record {
        let mut next = record.clone();
        if self.is(Wrong::HalvesTokens) {
            next.set_token(Token::from_random(record.token().bits() & u128::from(u64::MAX)));
        }
        let State::Succeeded { outcome, expires_at } = record.state() else { return next };
        let body = match (&outcome.body, self.wrong) {
            (Body::Kept(body), Wrong::OutcomesAreText) => {
                Body::Kept(Bytes::from(String::from_utf8_lossy(body).into_owned()))
            }
            (Body::Kept(body), Wrong::EmptyOutcomesAreDropped) if body.is_empty() => Body::NotRetained,
            (body, _) => body.clone(),
        };
        next.set_state(State::Succeeded {
            outcome: Outcome { body, ..outcome.clone() },
            expires_at: *expires_at,
        });
        next
    }

    pub(super) async fn wrong_set(
        &self,
        name: &str,
        expect: Option<&[u8]>,
        next: Option<&[u8]>,
    ) -> Result<Setting, Error> {
        let settings = self.inner.settings().await?;
        let found = settings.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        let is_expected = found.as_deref() == expect;
        match self.wrong {
            Wrong::SettingWritesOver => self.inner.set(name, found.as_deref(), next).await,
            Wrong::SettingLooksThenWrites if is_expected => {
                yield_now().await;
                let settings = self.inner.settings().await?;
                let now = settings.iter().find(|(found, _)| found == name).map(|(_, value)| &**value);
                self.inner.set(name, now, next).await
            }
            Wrong::EmptySettingIsNone if found.as_ref().is_some_and(Bytes::is_empty) && expect.is_none() => {
                self.inner.set(name, Some(b""), next).await
            }
            _ => self.inner.set(name, expect, next).await,
        }
    }
}

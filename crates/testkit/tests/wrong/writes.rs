//! Writes that are wrong.

use super::{Store, Wrong};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::machine::{Expect, Found};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Entry, Record, State, Token};
use semel_core::store::{Error, Fresh, Reading, Setting, Store as _, Written};
use tokio::task::yield_now;

impl Store {
    /// Puts `fresh` there, whatever stands there.
    async fn force(&self, id: CommandId, fresh: Fresh<'_>) -> Result<Written, Error> {
        let reading = self.inner.get(id).await?;
        let bytes = match fresh {
            Fresh::Record(record) => codec::encode_record(record),
            Fresh::Moved => codec::encode(&Entry::Moved),
        };
        match (reading.found(), fresh) {
            (Found::Record(stands), Fresh::Record(next)) => {
                return self.inner.swap(id, Expect::unchanged(stands), next).await;
            }
            (Found::Nothing, _) => return self.inner.insert(id, fresh).await,
            _ => self.inner.overwrite(id, bytes)?,
        };
        Ok(Written::Done { now: reading.now })
    }

    pub(super) async fn wrong_insert(&self, id: CommandId, fresh: Fresh<'_>) -> Result<Written, Error> {
        let mangled;
        let fresh = match fresh {
            Fresh::Record(record) => {
                mangled = self.mangled(record);
                self.first_writes.lock().expect("no panic").entry(id).or_insert_with(|| mangled.clone());
                Fresh::Record(&mangled)
            }
            Fresh::Moved => Fresh::Moved,
        };
        let reading = self.inner.get(id).await?;
        match self.wrong {
            Wrong::InsertWritesOver => self.force(id, fresh).await,
            Wrong::InsertLooksThenWrites if reading.entry.is_none() => {
                yield_now().await;
                self.force(id, fresh).await
            }
            Wrong::InsertHiddenRetry => {
                drop(self.inner.insert(id, fresh).await?);
                self.inner.insert(id, fresh).await
            }
            Wrong::UnreadableIsWrittenOver if reading.found() == Found::Unreadable => {
                self.force(id, fresh).await
            }
            Wrong::RecordOverMarker if reading.found() == Found::Moved => self.force(id, fresh).await,
            _ => self.inner.insert(id, fresh).await,
        }
    }

    pub(super) async fn wrong_swap(
        &self,
        id: CommandId,
        expect: Expect,
        next: &Record,
    ) -> Result<Written, Error> {
        let reading = self.inner.get(id).await?;
        let next = self.mangled(next);
        let expect = self.careless(expect, &reading);
        match self.wrong {
            Wrong::SwapInserts if reading.entry.is_none() => {
                self.inner.insert(id, Fresh::Record(&next)).await
            }
            Wrong::SwapNeverInserts if expect == Expect::Absent => Ok(Written::Refused(reading)),
            Wrong::SwapLooksThenWrites if expect.met_by(reading.found()) => {
                yield_now().await;
                self.force(id, Fresh::Record(&next)).await
            }
            Wrong::SwapLosesWrites if expect.met_by(reading.found()) && self.nth_write() % 10 == 9 => {
                Ok(Written::Done { now: reading.now })
            }
            _ => self.inner.swap(id, expect, &next).await,
        }
    }

    pub(super) async fn wrong_remove(&self, id: CommandId, expect: Expect) -> Result<Written, Error> {
        let reading = self.inner.get(id).await?;
        let expect = match (self.wrong, reading.record()) {
            (Wrong::RemovesRegardless, Some(record)) => Expect::unchanged(record),
            (Wrong::RemovalOfNothingDone, None) => return Ok(Written::Done { now: reading.now }),
            _ => self.careless(expect, &reading),
        };
        self.inner.remove(id, expect).await
    }

    pub(super) async fn wrong_remove_marker(&self, id: CommandId) -> Result<Written, Error> {
        let reading = self.inner.get(id).await?;
        match reading.record() {
            Some(record) if self.is(Wrong::RecordGoesAsMarker) => {
                self.inner.remove(id, Expect::unchanged(record)).await
            }
            _ => self.inner.remove_marker(id).await,
        }
    }

    /// The condition, with what is ignored taken from what stands there.
    fn careless(&self, expect: Expect, reading: &Reading) -> Expect {
        let (Expect::Unchanged { version, token, state }, Some(stands)) = (expect, reading.record()) else {
            return expect;
        };
        match self.wrong {
            Wrong::IgnoresVersion => Expect::Unchanged { version: stands.version(), token, state },
            Wrong::IgnoresToken => Expect::Unchanged { version, token: stands.token(), state },
            Wrong::IgnoresState => Expect::Unchanged { version, token, state: stands.state_name() },
            _ => expect,
        }
    }

    /// The record as a store would keep it that is careless with outcomes.
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

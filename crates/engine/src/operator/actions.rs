//! Operator actions: look up, resolve, release, erase.
//!
//! The machine's verdicts, stored with who gave them and why. What the machine refuses is refused to operators too.

use crate::background::sweep::REDATED;
use crate::call::engine::Engine;
use crate::call::found_record::FoundRecord;
use crate::observe::{Event, Resolver};
use crate::secrets;
use semel_core::id::{KeyHash, OperationId};
use semel_core::key::Key;
use semel_core::machine::{self, Erasure, Refusal, Stamp, Verdict, Write, WriteResult};
use semel_core::outcome::Outcome;
use semel_core::record::{Record, State};
use semel_core::store::{self, Kind, RemainingCopies, Written};
use semel_core::time::Now;

use std::fmt;

/// How often an operator's write is recomputed after a conflict.
const ROUNDS_MAX: usize = 16;

/// The longest reason of an operator that a record's history stores completely.
pub const REASON_BYTES_MAX: usize = 256;

/// The result of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// The record as it is now.
    pub record: Record,
    /// Where copies of the erased data may remain.
    pub remnants: RemainingCopies,
}

/// Why an operator's action is not known to be stored.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperatorError {
    /// There is no such operation.
    NotFound,
    /// This node cannot read the record. It is unchanged.
    Unreadable,
    /// The machine refuses it, with the reason.
    Refused(Refusal),
    /// The store did not answer. An [ambiguous](store::Error::is_ambiguous) error means that the action may have been
    /// stored: look the record up.
    Store(store::Error),
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such operation"),
            Self::Unreadable => f.write_str("this node cannot read the record; it was not changed"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OperatorError {}

impl From<store::Error> for OperatorError {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    /// The record of an operation.
    pub async fn look_up(&self, operation_id: OperationId) -> Result<FoundRecord, OperatorError> {
        let (now, item) = self.node.store.find(operation_id).await?;
        let item = item.ok_or(OperatorError::NotFound)?;
        let record = item.record().cloned().ok_or(OperatorError::Unreadable)?;
        Ok(FoundRecord { id: item.id, record, now: self.node.clock.at(now) })
    }

    /// The engine's current time, and how far it is trusted.
    pub fn now(&self) -> Now {
        self.node.clock.at(self.node.clock.now())
    }

    /// The outcome of a record, unsealed: the replayed one, or the answer of the last attempt without effect. An
    /// outcome that cannot be unsealed counts as not retained.
    pub fn outcome(&self, looked: &FoundRecord) -> Option<Outcome> {
        let outcome = match looked.record.state() {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
            State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => None,
        };
        outcome.map(|outcome| self.node.sealing.open(looked.id, looked.record.operation_id(), outcome))
    }

    /// The hashes to find the records of `key`: one, and one more during a rotation of the hashing secret.
    pub fn key_hashes(&self, key: &Key) -> Result<Vec<KeyHash>, secrets::Error> {
        let view = self.node.secrets.view()?;
        let old = view.outgoing.as_ref().map(|outgoing| outgoing.old.secret.key_hash(key));
        Ok(std::iter::once(view.current.secret.key_hash(key)).chain(old).collect())
    }

    /// Resolves an unknown outcome, or an attempt whose lease has expired, by an operator's verdict. The record's
    /// history then contains `who`, the verdict, and `why`: at most [`REASON_BYTES_MAX`] bytes, longer text is
    /// truncated.
    ///
    /// The verdict is about whichever attempt the record belongs to now. If an operator looked at it before, use
    /// [`resolve_attempt`](Self::resolve_attempt).
    pub async fn resolve(
        &self,
        operation_id: OperationId,
        verdict: Verdict,
        who: &str,
        why: &str,
    ) -> Result<Record, OperatorError> {
        let looked = self.look_up(operation_id).await?;
        let fence = looked.record.fence();
        self.settle(looked, fence, verdict, who, why).await
    }

    /// Like [`resolve`](Self::resolve), but only for the attempt with this [fence](Record::fence). Refused with
    /// [`Refusal::Superseded`] if another attempt has started since: a verdict on one attempt says nothing about the
    /// next.
    pub async fn resolve_attempt(
        &self,
        operation_id: OperationId,
        fence: u64,
        verdict: Verdict,
        who: &str,
        why: &str,
    ) -> Result<Record, OperatorError> {
        let looked = self.look_up(operation_id).await?;
        self.settle(looked, fence, verdict, who, why).await
    }

    async fn settle(
        &self,
        looked: FoundRecord,
        fence: u64,
        verdict: Verdict,
        who: &str,
        why: &str,
    ) -> Result<Record, OperatorError> {
        let operation_id = looked.record.operation_id();
        let why = format!("resolved as {}: {why}", verdict.name());
        let verdict = self.node.sealing.seal_verdict(looked.id, verdict);
        let settle = |record: &Record, stamp: Stamp<'_>| {
            machine::expect_fence(record, fence)?;
            machine::resolve(record, verdict.clone(), stamp)
        };
        let record = self.by_hand(looked, who, &why, settle).await?;
        let (operation, state, by) = (record.operation(), record.state_name(), Resolver::Operator);
        self.node.observe(&Event::Reconciled { operation_id, operation, state, by });
        Ok(record)
    }

    /// Releases a key whose attempts had no effect: the next request with it is the next attempt, whatever its payload.
    /// The record's history then contains `who` and `why`, as with [`resolve`](Self::resolve).
    pub async fn release(
        &self,
        operation_id: OperationId,
        who: &str,
        why: &str,
    ) -> Result<Record, OperatorError> {
        let looked = self.look_up(operation_id).await?;
        self.by_hand(looked, who, &format!("released: {why}"), machine::release).await
    }

    /// Erases a record's stored response, or the whole record except a tombstone, and lets the store remove the bytes
    /// as far as it can. It never allows a run that was not allowed before. The record's history then contains `who`,
    /// what was erased, and `why`.
    ///
    /// This node stops answering from it at once; other nodes of the store follow within a minute. Archives and backups
    /// are not changed.
    ///
    /// A tombstone is refused, because it has nothing left to erase. But the store then removes bytes too: an earlier
    /// erasure may have been interrupted before it could.
    pub async fn erase(
        &self,
        operation_id: OperationId,
        erasure: Erasure,
        who: &str,
        why: &str,
    ) -> Result<Erased, OperatorError> {
        let looked = self.look_up(operation_id).await?;
        let id = looked.id;
        let what = match erasure {
            Erasure::Response => "response",
            Erasure::Record => "record",
        };
        let why = format!("erased the {what}: {why}");
        let transition = |record: &Record, stamp: Stamp<'_>| machine::erase(record, erasure, stamp);
        let is_tombstone = matches!(looked.record.state(), State::Expired { .. });
        let record = match self.by_hand(looked, who, &why, transition).await {
            Ok(record) => record,
            Err(refused) => {
                if is_tombstone {
                    drop(self.scrub_store().await);
                }
                return Err(refused);
            }
        };
        self.node.cache.forget(id);
        // The record is erased already: a remaining copy is part of the answer, not a failure.
        let remnants = self.scrub_store().await;
        Ok(Erased { record, remnants })
    }

    async fn scrub_store(&self) -> RemainingCopies {
        match self.node.clock.within(self.node.settings.store_timeout, self.node.store.raw.scrub()).await {
            Some(Ok(remnants)) => remnants,
            Some(Err(error)) => RemainingCopies::MayRemain(format!("in the store's files: {error}")),
            None => RemainingCopies::MayRemain("in the store's files, which it is still cleaning".to_owned()),
        }
    }

    async fn by_hand(
        &self,
        mut looked: FoundRecord,
        who: &str,
        why: &str,
        transition: impl Fn(&Record, Stamp<'_>) -> Result<Write, Refusal>,
    ) -> Result<Record, OperatorError> {
        // Writes without an answer, and the first such error.
        let (mut tried, mut lost): (Vec<Write>, Option<store::Error>) = (Vec::new(), None);
        for _ in 0..ROUNDS_MAX {
            let stamp = Stamp::new(looked.now, who, why);
            // Correct dates in the future first, so that the end of the quiet period is known.
            let redated = machine::redate(&looked.record, Stamp { why: REDATED, ..stamp });
            let (write, is_done) = match redated {
                Ok(write) => (write, false),
                Err(_) => (transition(&looked.record, stamp).map_err(OperatorError::Refused)?, true),
            };
            let reading = match self.node.store.write(looked.id, &write).await {
                Ok(Written::Done { .. }) if is_done => return Ok(write.next),
                Ok(Written::Done { .. }) => self.node.store.get(looked.id).await?,
                Ok(Written::Refused(reading)) => reading,
                Err(error) if error.is_ambiguous() => {
                    if is_done {
                        tried.push(write);
                        lost.get_or_insert(error);
                    }
                    self.node.store.get(looked.id).await?
                }
                Err(error) => return Err(error.into()),
            };
            let result = |write: &Write| machine::write_result(write, reading.found());
            let was_applied = tried.iter().any(|write| result(write) == WriteResult::Applied);
            if let Some(error) =
                lost.take_if(|_| tried.iter().any(|write| result(write) == WriteResult::Unclear))
                && !was_applied
            {
                // It may have been stored and replaced since: what is there now may be another attempt.
                return Err(error.into());
            }
            looked.now = self.node.clock.at(reading.now);
            looked.record = match reading.entry {
                None => return Err(OperatorError::NotFound),
                Some(_) => reading.record().cloned().ok_or(OperatorError::Unreadable)?,
            };
            if was_applied {
                return Ok(looked.record);
            }
        }
        let context = "resolving a record that somebody else keeps changing";
        Err(store::Error::new(Kind::Unavailable, context).into())
    }
}

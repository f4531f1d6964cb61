//! What an operator does by hand: look, settle, release, erase.
//!
//! What lives here: the machine's verdicts, stored with who gave them and why. What must never: a way around the machine;
//! what it refuses is refused to operators too.

use crate::engine::Engine;
use crate::secrets;
use semel_core::id::{CommandId, KeyHash, OperationId};
use semel_core::key::Key;
use semel_core::machine::{self, Erasure, Refusal, Stamp, Verdict, Write};
use semel_core::outcome::Outcome;
use semel_core::record::{Record, State};
use semel_core::store::{self, Kind, Remnants, Written};
use semel_core::time::Now;
use std::fmt;

/// How often an operator's write is computed anew from what the store shows.
const ROUNDS_MAX: usize = 16;

/// Why a record is brought back to the present.
pub(crate) const REDATED: &str = "a wrong clock had dated it ahead";

/// A record that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The id that it stands under.
    pub id: CommandId,
    /// The record.
    pub record: Record,
    /// The time that the engine goes by, and what may be concluded from it.
    pub now: Now,
}

/// What an operator erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// The record as it is now.
    pub record: Record,
    /// Where copies of what was erased may remain.
    pub remnants: Remnants,
}

/// Why an operator's word changed nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotDone {
    /// There is no such operation.
    NotFound,
    /// It stands there and cannot be read by this node. It is left as it is.
    Unreadable,
    /// The machine does not allow it, and says why.
    Refused(Refusal),
    /// The store did not answer.
    Store(store::Error),
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such operation"),
            Self::Unreadable => f.write_str("the record cannot be read by this node, and was left as it is"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotDone {}

impl From<store::Error> for NotDone {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    /// The record of an operation.
    pub async fn look_up(&self, operation_id: OperationId) -> Result<Looked, NotDone> {
        let (now, item) = self.node.find(operation_id).await?;
        let item = item.ok_or(NotDone::NotFound)?;
        let record = item.record().cloned().ok_or(NotDone::Unreadable)?;
        Ok(Looked { id: item.id, record, now: self.node.at(now) })
    }

    /// The time that the engine goes by, and what may be concluded from it.
    pub fn now(&self) -> Now {
        self.node.at(self.node.now())
    }

    /// The outcome that is kept with a record, opened where it was sealed: what is replayed, or what the last attempt that took
    /// no effect was answered. Where it cannot be opened, it is one that was not retained.
    pub fn outcome(&self, looked: &Looked) -> Option<Outcome> {
        let outcome = match looked.record.state() {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
            State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => None,
        };
        outcome.map(|outcome| self.node.opened(looked.id, looked.record.operation_id(), outcome))
    }

    /// What the records of `key` are found by: one hash, and while the hashing secret is being replaced, one more.
    pub fn key_hashes(&self, key: &Key) -> Result<Vec<KeyHash>, secrets::Error> {
        let view = self.node.secrets.view()?;
        let old = view.outgoing.as_ref().map(|outgoing| outgoing.old.secret.key_hash(key));
        Ok(std::iter::once(view.current.secret.key_hash(key)).chain(old).collect())
    }

    /// Settles an unknown outcome, or an attempt whose lease is dead, by an operator's word. `who` and `why` stand in
    /// the record's history.
    pub async fn resolve(
        &self,
        operation_id: OperationId,
        verdict: Verdict,
        who: &str,
        why: &str,
    ) -> Result<Record, NotDone> {
        let looked = self.look_up(operation_id).await?;
        let verdict = self.node.sealed_verdict(looked.id, verdict);
        self.by_hand(looked, who, why, |record, stamp| machine::resolve(record, verdict.clone(), stamp)).await
    }

    /// Lets go of a key under which nothing took effect: the next request with it is the next attempt, whatever its
    /// payload.
    pub async fn release(&self, operation_id: OperationId, who: &str, why: &str) -> Result<Record, NotDone> {
        let looked = self.look_up(operation_id).await?;
        self.by_hand(looked, who, why, machine::release).await
    }

    /// Erases a record's stored response, or the whole record up to a tombstone, and has the store remove the bytes as far as it can.
    /// Nothing can run afterwards that could not have run before. The record's history then has `who`, what was erased, and `why`.
    ///
    /// This node answers from it no more; other nodes on the store follow within a minute. Archives and backups keep what they have.
    pub async fn erase(
        &self,
        operation_id: OperationId,
        erasure: Erasure,
        who: &str,
        why: &str,
    ) -> Result<Erased, NotDone> {
        let looked = self.look_up(operation_id).await?;
        let id = looked.id;
        let what = match erasure {
            Erasure::Response => "response",
            Erasure::Record => "record",
        };
        let why = format!("erased the {what}: {why}");
        let transition = |record: &Record, stamp: Stamp<'_>| machine::erase(record, erasure, stamp);
        let record = self.by_hand(looked, who, &why, transition).await?;
        self.node.cache.forget(id);
        // It is erased by now: that a copy may remain is part of the answer and no failure.
        let scrubbed = self.node.within(self.node.settings.store_timeout, self.node.store.scrub()).await;
        let remnants = match scrubbed {
            Some(Ok(remnants)) => remnants,
            Some(Err(error)) => Remnants::MayRemain(format!("in the store's files: {error}")),
            None => Remnants::MayRemain("in the store's files, which it is still cleaning".to_owned()),
        };
        Ok(Erased { record, remnants })
    }

    async fn by_hand(
        &self,
        mut looked: Looked,
        who: &str,
        why: &str,
        transition: impl Fn(&Record, Stamp<'_>) -> Result<Write, Refusal>,
    ) -> Result<Record, NotDone> {
        let mut tried: Vec<Write> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let stamp = Stamp::new(looked.now, who, why);
            // What a wrong clock dated ahead is brought back first, so that it can be said when its quiet period ends.
            let redated = machine::redate(&looked.record, Stamp { why: REDATED, ..stamp });
            let (write, is_done) = match redated {
                Ok(write) => (write, false),
                Err(_) => (transition(&looked.record, stamp).map_err(NotDone::Refused)?, true),
            };
            let reading = match self.node.write(looked.id, &write).await {
                Ok(Written::Done { .. }) if is_done => return Ok(write.next),
                Ok(Written::Done { .. }) => self.node.get(looked.id).await?,
                Ok(Written::Refused(reading)) => reading,
                Err(error) if error.is_ambiguous() => {
                    if is_done {
                        tried.push(write);
                    }
                    self.node.get(looked.id).await?
                }
                Err(error) => return Err(error.into()),
            };
            let landed = tried.iter().any(|write| machine::landed(write, reading.found()));
            looked.now = self.node.at(reading.now);
            looked.record = match reading.entry {
                None => return Err(NotDone::NotFound),
                Some(_) => reading.record().cloned().ok_or(NotDone::Unreadable)?,
            };
            if landed {
                return Ok(looked.record);
            }
        }
        let context = "settling a record that somebody else keeps changing";
        Err(store::Error::new(Kind::Unavailable, context).into())
    }
}

//! One write on its way to the server.

use super::doubts::Sending;
use super::fault::Fault;
use super::queue::InFlight;
use crate::columns::Row;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Error, Kind, Reading, Written};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::sync::oneshot;
use uuid::Uuid;

/// The token of a marker, which has none.
pub(super) const NO_TOKEN: Uuid = Uuid::nil();

/// The result of a write.
#[derive(Debug)]
pub(super) enum Answer {
    Written(Written),
    /// Refused by an entry that is too long to be returned with the refusal: it has to be read.
    RefusedByLargeEntry,
    /// Refused by an entry that may still be lost: it has to be read and confirmed.
    RefusedInDoubt,
    /// Not sent, because earlier writes have no answer. Reads may still be answered.
    Unsent(Fault),
}

/// An encoded conditional write, with the caller that waits for it.
pub(super) struct Job {
    pub(super) id: CommandId,
    pub(super) operation_id: OperationId,
    pub(super) change: Change<Row>,
    /// The first bytes of the entry's SHA-256, by which the server notices manual changes of an entry.
    pub(super) digest: Option<[u8; 8]>,
    /// How often it conflicted with another transaction.
    pub(super) repeats: u32,
    /// Since when its row is known to be locked by another session, by the uptime.
    pub(super) locked_since: Option<Duration>,
    pub(super) sending: Sending,
    reply: oneshot::Sender<Result<Answer, Error>>,
    /// Delays other writes to the same ID until this one is answered.
    pub(super) in_flight: Option<InFlight>,
}

impl Job {
    pub(super) fn new(
        id: CommandId,
        change: Change<Row>,
    ) -> (Self, oneshot::Receiver<Result<Answer, Error>>) {
        let (reply, answer) = oneshot::channel();
        // A marker's entry is created here, so that every insert has a row.
        let change = match change {
            Change::InsertMarker => Change::Insert(Row::marker()),
            change => change,
        };
        let digest = change.record().map(|row| digest(&row.entry));
        let operation_id = OperationId::of(&id);
        (
            Self {
                id,
                operation_id,
                change,
                digest,
                repeats: 0,
                locked_since: None,
                sending: Sending::default(),
                reply,
                in_flight: None,
            },
            answer,
        )
    }

    /// The caller may be gone; the write remains valid.
    pub(super) fn answer(self, answer: Result<Answer, Error>) {
        // The next write to this ID may begin before the caller sees this answer.
        drop(self.in_flight);
        drop(self.reply.send(answer));
    }

    /// Whether the caller still waits. Otherwise, a write that has not been sent is dropped.
    pub(super) fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    pub(super) fn bytes(&self) -> usize {
        self.change.record().map_or(0, |row| row.entry.len())
    }

    /// The number of the change in the server's function.
    pub(super) fn kind(&self) -> i16 {
        match self.change {
            Change::Insert(_) | Change::InsertMarker => 1,
            Change::Replace(..) => 2,
            Change::Remove(_) => 3,
            Change::RemoveMarker => 4,
        }
    }

    /// The condition on the existing row.
    pub(super) fn expected(&self) -> Option<&Unchanged> {
        match &self.change {
            Change::Replace(unchanged, _) | Change::Remove(unchanged) => Some(unchanged),
            Change::Insert(_) | Change::InsertMarker | Change::RemoveMarker => None,
        }
    }

    /// The token that the server returns if this write was applied.
    pub(super) fn token_when_done(&self) -> Uuid {
        let next = self.change.record().map(|row| row.unchanged.as_ref().map_or(NO_TOKEN, token));
        next.or_else(|| self.expected().map(token)).unwrap_or(NO_TOKEN)
    }

    /// The meaning of a refusal.
    pub(super) fn refused(&self, reading: Reading) -> Result<Answer, Error> {
        if reading.entry.is_none() && matches!(self.change, Change::Insert(_)) {
            // Removed and inserted again by others between the tries.
            let cause = "others keep inserting and removing this command";
            return Err(Error::new(Kind::Unavailable, "inserting into PostgreSQL").because(cause));
        }
        Ok(Answer::Written(Written::Refused(reading)))
    }
}

pub(super) fn token(unchanged: &Unchanged) -> Uuid {
    Uuid::from_u128(unchanged.token.bits())
}

pub(super) fn digest(entry: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(entry)[..8]);
    first
}

//! Conditional writes.

use crate::fault::unexpected;
use crate::layout::{self, MARKER};
use crate::resp::Value;
use crate::scripts;
use crate::servers::Effect;
use crate::shared::{Shared, Stored, reading};
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Error, Kind, Reading, Written};

pub(crate) const ENTRY_BYTES_MAX: u64 = 64 << 20;
const WRITING: &str = "writing a record to Redis";
/// Longer values are neither read by the script nor returned with a refusal: many at once would fill the
/// memory.
const RETURNED_BYTES_MAX: &[u8] = b"16384";
/// A write as the script takes it.
pub(crate) struct PlannedWrite {
    id: CommandId,
    operation_id: OperationId,
    expected: Vec<u8>,
    /// None for a removal.
    value: Vec<u8>,
    leaves: u8,
    joins: u8,
    /// Whether callers may wait for the result.
    pub(crate) is_awaited: bool,
}

impl PlannedWrite {
    pub(crate) fn of(id: CommandId, change: &Change<&Record>) -> Result<Self, Error> {
        let operation_id = OperationId::of(&id);
        let value = match change {
            Change::Insert(record) | Change::Replace(_, record) => encoded(id, record)?,
            Change::InsertMarker => layout::marker(id),
            Change::Remove(_) | Change::RemoveMarker => Vec::new(),
        };
        let (leaves, joins, expected) = match change {
            Change::Insert(record) => {
                let state = record.state_name().number();
                (state, state, Vec::new())
            }
            Change::InsertMarker => (MARKER, MARKER, Vec::new()),
            Change::Replace(unchanged, record) => (
                unchanged.state.number(),
                record.state_name().number(),
                layout::guard_of(unchanged, id).to_vec(),
            ),
            Change::Remove(unchanged) => {
                let state = unchanged.state.number();
                (state, state, layout::guard_of(unchanged, id).to_vec())
            }
            Change::RemoveMarker => (MARKER, MARKER, layout::marker_guard(id).to_vec()),
        };
        let is_running =
            |record: &Record| matches!(record.state_name(), StateName::Claimed | StateName::Processing);
        Ok(Self {
            id,
            operation_id,
            expected,
            value,
            leaves,
            joins,
            is_awaited: change.record().is_none_or(|record| !is_running(record)),
        })
    }
}

/// Refuses a record that belongs under another ID, or is too large.
fn encoded(id: CommandId, record: &Record) -> Result<Vec<u8>, Error> {
    // The index relies on this. Otherwise, a record could be found under one ID and not under the other.
    if record.operation_id() != OperationId::of(&id) {
        let cause = "its operation id is not the one that follows from its command id";
        return Err(Error::new(Kind::Unfit, WRITING).because(cause));
    }
    let (value, entry_bytes) = layout::value(id, record);
    check_size(WRITING, entry_bytes)?;
    Ok(value)
}

/// Refuses a record that is larger than the store can hold.
pub(crate) fn check_size(context: &str, bytes: usize) -> Result<(), Error> {
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= ENTRY_BYTES_MAX) {
        return Ok(());
    }
    let cause = format!("{bytes} bytes, and {ENTRY_BYTES_MAX} is the most");
    Err(Error::new(Kind::TooLarge, context).because(cause))
}

impl Shared {
    /// Applies a write if the expected value is there.
    pub(crate) async fn write(&self, planned: &PlannedWrite) -> Result<Written, Error> {
        let mut proof = String::new();
        for _ in 0..2 {
            let answer = self.try_write(planned, &proof).await?;
            let status = answer.array().first().and_then(|status| status.text()).unwrap_or_default();
            match (status, answer.array()) {
                ("done", [_, seconds, micros]) => {
                    return Ok(Written::Done { now: self.time(seconds, micros) });
                }
                ("refused", [_, seconds, micros, found]) => {
                    let stored = found.bytes().map(Stored::of);
                    return planned.refused(reading(self.time(seconds, micros), planned.id, stored));
                }
                ("large", _) => return planned.refused(self.get(planned.id).await?),
                // The value is as expected, but too long for the script to check whether it is intact.
                ("unproven", _) => {
                    let (now, stored) = self.stored(planned.operation_id).await?;
                    match stored.as_ref().and_then(Stored::integrity_proof) {
                        Some(found) => proof = found,
                        None => return planned.refused(reading(now, planned.id, stored)),
                    }
                }
                _ => return Err(unexpected(&answer)),
            }
        }
        let cause = "the record is written faster than it can be read";
        Err(Error::new(Kind::Unavailable, WRITING).because(cause))
    }

    /// `proof` is the digest and the length of a long value that was intact.
    async fn try_write(&self, planned: &PlannedWrite, proof: &str) -> Result<Value, Error> {
        let bucket = self.layout.bucket(planned.operation_id);
        let keys = [
            self.layout.record(planned.operation_id),
            self.layout.due(bucket),
            self.layout.list(bucket, planned.leaves),
            self.layout.list(bucket, planned.joins),
            self.layout.callers(bucket),
            self.layout.proof(bucket),
            self.layout.marker(bucket),
        ];
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let arguments: [&[u8]; 7] = [
            &planned.expected,
            planned.operation_id.as_bytes(),
            &planned.value,
            proof.as_bytes(),
            RETURNED_BYTES_MAX,
            self.proof(),
            self.identity.as_bytes(),
        ];
        let (part, question) = ((&self.writes, bucket), (&keys[..], &arguments[..]));
        self.run_in_part(part, &scripts::WRITE, Effect::Writes, question, WRITING).await
    }
}

impl PlannedWrite {
    /// An intact entry that is as expected cannot have refused the write.
    fn refused(&self, reading: Reading) -> Result<Written, Error> {
        if self.expected.is_empty() && reading.entry.is_none() {
            let cause = "what refused the write was gone when it was read";
            return Err(Error::new(Kind::Unavailable, WRITING).because(cause));
        }
        Ok(Written::Refused(reading))
    }
}

//! Encoding and decoding of a record's history.

use super::read::Reader;
use super::{Error, write};
use crate::history::{Entry, History};
use crate::record::StateName;

/// Attempt, state, time and the lengths of two empty texts.
const ENTRY_BYTES_MIN: usize = 5;

pub(super) fn size_hint(history: &History) -> usize {
    history.entries.iter().map(|entry| 12 + entry.who.len() + entry.why.len()).sum()
}

pub(super) fn write(history: &History, out: &mut Vec<u8>) {
    write::varint(out, history.dropped.into());
    write::length(out, history.entries.len());
    for entry in &history.entries {
        write::varint(out, entry.attempt.into());
        out.push(entry.to.number());
        write::time(out, entry.at);
        write::bytes(out, entry.who.as_bytes());
        write::bytes(out, entry.why.as_bytes());
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<History, Error> {
    let dropped = reader.number()?;
    let count = reader.count(ENTRY_BYTES_MIN)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let attempt = reader.number()?;
        let at = reader.at();
        let to = StateName::from_number(reader.byte()?)
            .ok_or(Error::Damaged { at, what: "unknown state in the history" })?;
        let at = reader.time()?;
        let who = reader.text()?.into();
        let why = reader.text()?.into();
        entries.push(Entry { attempt, to, at, who, why });
    }
    Ok(History { dropped, entries })
}

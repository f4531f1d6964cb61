//! The encoding of entries in a store.
//!
//! One compact, canonical form of a record and of the moved marker, with a checksum, and the compatibility rules
//! between older and newer nodes. `docs/decisions/codec.md` describes the layout. Decoding is strict: bytes are either
//! exactly what a node would have written, or unreadable. An unreadable entry is answered as unknown, never treated as
//! absent and never overwritten.
//!
//! ```
//! use semel_core::codec;
//! use semel_core::machine::Found;
//! use semel_core::record::Entry;
//!
//! let mut stored = codec::encode(&Entry::Moved);
//! assert_eq!(codec::decode(&stored.clone().into()), Ok(Entry::Moved));
//!
//! stored[1] ^= 1;
//! let damaged = codec::decode(&stored.into());
//! assert_eq!(codec::found(&damaged), Found::Unreadable);
//! ```

mod error;
mod extension;
mod history;
mod labels;
mod outcome;
mod policy;
mod read;
mod record;
mod state;
mod write;

#[cfg(test)]
mod tests;

pub use error::{Error, Newer};

use crate::machine::Found;
use crate::outcome::Outcome;
use crate::record::{Entry, Record};
use bytes::Bytes;
use read::Reader;

/// The format that this build writes, and the newest one that it reads.
pub const FORMAT: u8 = 1;

const KIND_RECORD: u8 = 0;
const KIND_MOVED: u8 = 1;
/// A record under the ID of a later secret than the store's first, with its generation.
const KIND_LATER_RECORD: u8 = 2;

/// Encodes an entry. Equal entries have equal bytes on every node.
pub fn encode(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::Record(record) => encode_record(record),
        Entry::Moved => {
            let mut out = Vec::with_capacity(6);
            encode_into(entry, &mut out);
            out
        }
    }
}

/// Encodes `record` without building an [`Entry`] first.
pub fn encode_record(record: &Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(record::size_hint(record));
    frame_record(record, &mut out);
    out
}

fn frame_record(record: &Record, out: &mut Vec<u8>) {
    let kind = if record.generation == 0 { KIND_RECORD } else { KIND_LATER_RECORD };
    frame(out, kind, |out| record::write(record, out));
}

/// Appends the bytes of an entry to `out`, for a store that reuses its buffer.
pub fn encode_into(entry: &Entry, out: &mut Vec<u8>) {
    match entry {
        Entry::Record(record) => frame_record(record, out),
        Entry::Moved => frame(out, KIND_MOVED, |_| {}),
    }
}

/// The frame of every format: its number in the first byte, and a checksum in the last four bytes.
fn frame(out: &mut Vec<u8>, kind: u8, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[FORMAT, kind]);
    content(out);
    let sum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Decodes an entry. Bodies, headers and extensions are slices of `bytes`, not copies.
///
/// Accepts exactly what [`encode`] writes: encoding the result gives the same bytes, including ignorable extensions
/// of a newer node. Never panics, and never allocates for a length or count that exceeds the remaining bytes.
pub fn decode(bytes: &Bytes) -> Result<Entry, Error> {
    let Some((content, sum)) = bytes.split_last_chunk() else {
        return Err(Error::Damaged { at: bytes.len(), what: "cut short" });
    };
    // Check this before the format: damaged bytes only look newer.
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return Err(Error::Damaged { at: content.len(), what: "the checksum does not match" });
    }
    let mut reader = Reader::new(bytes, content.len());
    match reader.byte()? {
        FORMAT => {}
        0 => return Err(Error::Damaged { at: 0, what: "format 0 does not exist" }),
        newer => return Err(Error::Newer(Newer::Format(newer))),
    }
    match reader.byte()? {
        kind @ (KIND_RECORD | KIND_LATER_RECORD) => {
            let record = record::read(&mut reader, kind == KIND_LATER_RECORD)?;
            Ok(Entry::Record(Box::new(record)))
        }
        KIND_MOVED if reader.left() == 0 => Ok(Entry::Moved),
        KIND_MOVED => Err(reader.damaged("unexpected bytes after the marker")),
        _ => Err(Error::Damaged { at: 1, what: "unknown kind of entry" }),
    }
}

/// Encodes an outcome alone, for sealing. Without a checksum, because the seal detects changes.
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let mut out = Vec::with_capacity(outcome::size_hint(outcome));
    outcome::write(outcome, &mut out);
    out
}

/// Decodes an outcome, as strictly as [`decode`] does: exactly what [`encode_outcome`] wrote.
pub fn decode_outcome(bytes: &Bytes) -> Result<Outcome, Error> {
    let mut reader = Reader::new(bytes, bytes.len());
    let outcome = outcome::read(&mut reader)?;
    if reader.left() == 0 { Ok(outcome) } else { Err(reader.damaged("unexpected bytes after the outcome")) }
}

/// The state machine's input for a decoded entry; an error is [`Found::Unreadable`].
pub fn found(decoded: &Result<Entry, Error>) -> Found<'_> {
    match decoded {
        Ok(entry) => Found::from(Some(entry)),
        Err(_) => Found::Unreadable,
    }
}

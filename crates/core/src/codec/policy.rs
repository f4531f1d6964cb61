//! Encoding and decoding of a policy, its durations and its selection.

use super::read::Reader;
use super::{Error, write};
use crate::fingerprint::Selection;
use crate::policy::{AfterExpiry, Class, Policy, PolicySettings};
use std::time::Duration;

const NANOS_PER_MILLI: u32 = 1_000_000;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

pub(super) fn size_hint(policy: &Policy) -> usize {
    let selection = &policy.selection;
    let lists = [selection.headers(), selection.include(), selection.exclude()];
    lists.iter().copied().flatten().map(|text| 2 + text.len()).sum()
}

/// Writes the fields of a policy that are not in the record's head.
pub(super) fn write(policy: &Policy, out: &mut Vec<u8>) {
    for duration in [
        policy.lease,
        policy.work_deadline,
        policy.skew,
        policy.ttl,
        policy.denied_ttl,
        policy.tombstone,
        policy.dedup_window,
    ] {
        write_duration(duration, out);
    }
    if let Some(attempts_max) = policy.attempts_max {
        write::varint(out, attempts_max.into());
    }
    out.push(policy.history_entries_max);
    write_selection(&policy.selection, out);
}

/// The fields of a policy in the record's head.
pub(super) struct Head {
    pub(super) class: Class,
    pub(super) after_expiry: AfterExpiry,
    pub(super) has_attempts_max: bool,
}

pub(super) fn read(head: &Head, reader: &mut Reader<'_>) -> Result<Policy, Error> {
    Ok(Policy::as_stored(PolicySettings {
        class: head.class,
        after_expiry: head.after_expiry,
        lease: read_duration(reader)?,
        work_deadline: read_duration(reader)?,
        skew: read_duration(reader)?,
        ttl: read_duration(reader)?,
        denied_ttl: read_duration(reader)?,
        tombstone: read_duration(reader)?,
        dedup_window: read_duration(reader)?,
        attempts_max: if head.has_attempts_max { Some(reader.number()?) } else { None },
        history_entries_max: reader.byte()?,
        selection: read_selection(reader)?,
    }))
}

/// Twice the milliseconds, if they are exact; otherwise twice the nanoseconds within the second, plus one, and then
/// the seconds. Nothing is rounded: a write is recognised by reading back exactly what was written.
fn write_duration(duration: Duration, out: &mut Vec<u8>) {
    if let Some(millis) = whole_millis(duration) {
        write::varint(out, millis << 1);
    } else {
        write::varint(out, (u64::from(duration.subsec_nanos()) << 1) | 1);
        write::varint(out, duration.as_secs());
    }
}

fn read_duration(reader: &mut Reader<'_>) -> Result<Duration, Error> {
    let at = reader.at();
    let first = reader.varint()?;
    if first & 1 == 0 {
        return Ok(Duration::from_millis(first >> 1));
    }
    let seconds = reader.varint()?;
    match u32::try_from(first >> 1) {
        Ok(nanos) if nanos < NANOS_PER_SECOND => {
            let duration = Duration::new(seconds, nanos);
            if whole_millis(duration).is_some() {
                return Err(Error::Damaged { at, what: "a duration is not in its shortest form" });
            }
            Ok(duration)
        }
        _ => Err(Error::Damaged { at, what: "a duration has more than a billion nanoseconds in a second" }),
    }
}

/// The milliseconds of a duration, if they are exact and leave one bit free.
fn whole_millis(duration: Duration) -> Option<u64> {
    let millis = u64::try_from(duration.as_millis()).ok()?;
    let is_whole = duration.subsec_nanos().is_multiple_of(NANOS_PER_MILLI);
    (is_whole && millis <= u64::MAX >> 1).then_some(millis)
}

fn write_selection(selection: &Selection, out: &mut Vec<u8>) {
    out.push(selection.version());
    for list in [selection.headers(), selection.include(), selection.exclude()] {
        write::length(out, list.len());
        for text in list {
            write::bytes(out, text.as_bytes());
        }
    }
}

fn read_selection(reader: &mut Reader<'_>) -> Result<Selection, Error> {
    let at = reader.at();
    let version = reader.byte()?;
    let lists = [read_list(reader)?, read_list(reader)?, read_list(reader)?];
    let is_bare = lists.iter().all(Vec::is_empty);
    let [headers, include, exclude] = lists;
    let selection = Selection::from_parts(version, headers, include, exclude)
        .map_err(|_| Error::Damaged { at, what: "invalid fingerprint selection" })?;
    // A selection normalises its parts, so no node wrote parts in another order.
    if !is_bare {
        let mut tidy = Vec::new();
        write_selection(&selection, &mut tidy);
        if tidy[..] != reader.since(at) {
            return Err(Error::Damaged { at, what: "the fingerprint selection is not in canonical order" });
        }
    }
    Ok(selection)
}

fn read_list(reader: &mut Reader<'_>) -> Result<Vec<String>, Error> {
    let count = reader.count(1)?;
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(reader.text()?.to_owned());
    }
    Ok(list)
}

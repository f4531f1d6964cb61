//! Encoding and decoding of a record, field by field.

use super::read::Reader;
use super::{Error, extension, history, labels, policy, state, write};
use crate::fingerprint::Fingerprint;
use crate::id::{CallerHash, KeyHash, OperationId};
use crate::labels::Labels;
use crate::policy::{AfterExpiry, Class, PolicySettings};
use crate::record::{Record, StateName, Token};
use bytes::Bytes;
use std::sync::Arc;

const STATE_BITS: u8 = 0b0000_0111;
const EARLIER_DOUBT: u8 = 0b0000_1000;
const CLASS_BITS: u8 = 0b0011_0000;
const CLASS_SHIFT: u32 = 4;
const RUN_AS_NEW: u8 = 0b0100_0000;
const ATTEMPTS_LIMITED: u8 = 0b1000_0000;

/// No write counter gets this far. It leaves room to increment, also in a store's signed column.
const VERSION_MAX: u64 = u64::MAX >> 1;

/// An estimate of the encoded size, rather too high than too low.
pub(super) fn size_hint(record: &Record) -> usize {
    // The fields of fixed size, and numbers of typical length.
    let usual = 224;
    usual
        + record.operation.len()
        + policy::size_hint(&record.policy)
        + state::size_hint(&record.state)
        + history::size_hint(&record.history)
        + labels::size_hint(&record.labels)
        + record.extensions.len()
}

pub(super) fn write(record: &Record, out: &mut Vec<u8>) {
    // Token and version come first, so that a store can compare both as one prefix.
    out.extend_from_slice(&record.token.bits().to_be_bytes());
    write::varint(out, record.version);
    out.extend_from_slice(record.operation_id.as_bytes());
    out.extend_from_slice(record.key_hash.as_bytes());
    out.extend_from_slice(record.caller_hash.as_bytes());
    out.extend_from_slice(record.fingerprint.as_bytes());
    out.push(head(record));
    write::bytes(out, record.operation.as_bytes());
    write::varint(out, record.attempt.into());
    write::varint(out, record.fence);
    write::time(out, record.created_at);
    write::time(out, record.updated_at);
    write::time(out, record.owner_wrote_at);
    policy::write(&record.policy, out);
    state::write(&record.state, out);
    history::write(&record.history, out);
    if record.generation != 0 {
        write::varint(out, record.generation.into());
    }
    labels::write(&record.labels, out);
    out.extend_from_slice(&record.extensions);
}

/// `later`: its ID was made by a later secret than the store's first.
pub(super) fn read(reader: &mut Reader<'_>, later: bool) -> Result<Record, Error> {
    let token = Token::from_random(u128::from_be_bytes(reader.array()?));
    let version = read_version(reader)?;
    let operation_id = OperationId::from_bytes(reader.array()?);
    let key_hash = KeyHash::from_bytes(reader.array()?);
    let caller_hash = CallerHash::from_bytes(reader.array()?);
    let fingerprint = Fingerprint::from_bytes(reader.array()?);
    let at = reader.at();
    let head = reader.byte()?;
    let state_name = StateName::from_number(head & STATE_BITS)
        .ok_or(Error::Damaged { at, what: "unknown state of the record" })?;
    let terms = terms(head).ok_or(Error::Damaged { at, what: "unknown guarantee class" })?;
    let mut record = Record {
        operation_id,
        key_hash,
        caller_hash,
        fingerprint,
        version,
        token,
        earlier_doubt: head & EARLIER_DOUBT != 0,
        // From here on, fields are in the order of the bytes.
        operation: reader.text()?.into(),
        attempt: reader.number()?,
        fence: reader.varint()?,
        created_at: reader.time()?,
        updated_at: reader.time()?,
        owner_wrote_at: reader.time()?,
        policy: Arc::new(policy::read(&terms, reader)?),
        state: state::read(state_name, reader)?,
        history: history::read(reader)?,
        generation: if later { read_generation(reader)? } else { 0 },
        labels: Labels::default(),
        extensions: Bytes::new(),
    };
    (record.labels, record.extensions) = extension::read(reader)?;
    Ok(record)
}

fn read_generation(reader: &mut Reader<'_>) -> Result<u32, Error> {
    let at = reader.at();
    match reader.number()? {
        0 => Err(Error::Damaged { at, what: "generation 0 in a record of a later secret" }),
        generation => Ok(generation),
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<u64, Error> {
    let at = reader.at();
    match reader.varint()? {
        version @ 1..=VERSION_MAX => Ok(version),
        _ => Err(Error::Damaged { at, what: "impossible version" }),
    }
}

/// The state, and the fields of the record and its policy that need only a bit or two.
fn head(record: &Record) -> u8 {
    let PolicySettings { class, after_expiry, attempts_max, .. } = **record.policy;
    let class = match class {
        Class::Local => 0,
        Class::Downstream => 1,
        Class::External => 2,
    };
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    record.state_name().number()
        | flag(record.earlier_doubt, EARLIER_DOUBT)
        | class << CLASS_SHIFT
        | flag(after_expiry == AfterExpiry::RunAsNew, RUN_AS_NEW)
        | flag(attempts_max.is_some(), ATTEMPTS_LIMITED)
}

fn terms(head: u8) -> Option<policy::Head> {
    let class = match (head & CLASS_BITS) >> CLASS_SHIFT {
        0 => Class::Local,
        1 => Class::Downstream,
        2 => Class::External,
        _ => return None,
    };
    let after_expiry = if head & RUN_AS_NEW == 0 { AfterExpiry::Refuse } else { AfterExpiry::RunAsNew };
    Some(policy::Head { class, after_expiry, has_attempts_max: head & ATTEMPTS_LIMITED != 0 })
}

//! Tests of the codec, also on records that no transition produces.

mod arbitrary;
mod forward;
mod lossless;
mod strict;

use super::{decode, encode_record};
use crate::fingerprint::Fingerprint;
use crate::history::{self, History};
use crate::id::{CallerHash, KeyHash, OperationId};
use crate::labels::Labels;
use crate::policy::{Class, Policy, PolicySettings};
use crate::record::{Entry, Record, State, StateName, Token};
use crate::time::Time;
use bytes::Bytes;
use std::time::Duration;

/// A small record: every number takes one byte, every duration is one millisecond.
fn small(state: State) -> Record {
    let ms = Duration::from_millis(1);
    let policy = Policy::as_stored(PolicySettings {
        lease: ms,
        work_deadline: ms,
        skew: ms,
        ttl: ms,
        denied_ttl: ms,
        tombstone: ms,
        dedup_window: ms,
        ..Policy::new(Class::External).into()
    });
    let at = Time::from_millis(5);
    let entry =
        history::Entry { attempt: 1, to: StateName::Claimed, at, who: "me".into(), why: "because".into() };
    Record {
        operation_id: OperationId::from_bytes([1; 16]),
        generation: 0,
        key_hash: KeyHash::from_bytes([2; 32]),
        caller_hash: CallerHash::from_bytes([3; 32]),
        operation: "op".into(),
        policy: policy.into(),
        fingerprint: Fingerprint::from_bytes([4; 32]),
        version: 9,
        token: Token::from_random(7),
        attempt: 1,
        fence: 2,
        created_at: Time::from_millis(3),
        updated_at: Time::from_millis(4),
        owner_wrote_at: Time::from_millis(5),
        earlier_doubt: false,
        state,
        history: History { dropped: 0, entries: vec![entry] },
        labels: Labels::default(),
        extensions: Bytes::new(),
    }
}

fn claimed() -> Record {
    small(State::Claimed { lease_until: Time::from_millis(6) })
}

/// The bytes of a record without their checksum.
fn content(record: &Record) -> Vec<u8> {
    let mut bytes = encode_record(record);
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// The content with a matching checksum, so that only the content can be wrong.
fn sealed(mut content: Vec<u8>) -> Bytes {
    let sum = crc32fast::hash(&content);
    content.extend_from_slice(&sum.to_le_bytes());
    content.into()
}

fn record(bytes: &Bytes) -> Record {
    match decode(bytes) {
        Ok(Entry::Record(record)) => *record,
        other => panic!("not a record: {other:?}"),
    }
}

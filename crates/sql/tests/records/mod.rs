//! Records to write, for the tests of every database.
#![allow(dead_code, reason = "the tests of one database do not need all of it")]

use semel_core::classify::Ending;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, Stamp, Ticket};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::store::Written;
use semel_core::time::Time;

static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
pub(crate) const NOW: u64 = 1_800_000_000_000;

pub(crate) fn id(number: u64) -> CommandId {
    let mut bytes = [0x5e; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    CommandId::from_bytes(bytes)
}

pub(crate) fn caller(number: u64) -> CallerHash {
    let mut bytes = [0xca; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    CallerHash::from_bytes(bytes)
}

pub(crate) fn stamp(millis: u64) -> Stamp<'static> {
    Stamp::new(Time::from_millis(millis), "worker", "")
}

pub(crate) fn command(number: u64) -> Command<'static> {
    let mut key = [0xee; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    Command {
        id: id(number),
        operation_id: OperationId::of(&id(number)),
        key_hash: KeyHash::from_bytes(key),
        caller_hash: caller(number % 3),
        operation: if number.is_multiple_of(2) { "POST /charges" } else { "POST /refunds" }.into(),
        policy: Policy::new(Class::External).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
        generation: 0,
    }
}

/// The record of a command's first attempt, claimed at `millis` with `token`.
pub(crate) fn claim_at(number: u64, token: u128, millis: u64) -> Record {
    claim(&command(number), token, millis)
}

pub(crate) fn claim(command: &Command<'_>, token: u128, millis: u64) -> Record {
    let ticket = Ticket { token: Token::from_random(token), begin: Begin::Processing };
    match machine::decide(Found::Nothing, command, ticket, stamp(millis)) {
        Decision::Run(write) => write.next,
        other => panic!("a command never seen is run: {other:?}"),
    }
}

pub(crate) fn claimed(number: u64) -> Record {
    claim_at(number, u128::from(number) + 1, NOW)
}

pub(crate) fn renewed(record: &Record) -> Record {
    machine::renew(record, record.token(), Time::from_millis(NOW + 1)).expect("its owner may").next
}

pub(crate) fn finished(record: &Record, body: impl Into<bytes::Bytes>) -> Record {
    let ending = Ending::Succeeded(Outcome::http(201, [("location", "/charges/7")], body));
    machine::finish(record, record.token(), ending, stamp(NOW + 2)).expect("its owner may").next
}

pub(crate) fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done { .. })
}

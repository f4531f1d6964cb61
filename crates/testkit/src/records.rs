//! Records to write in a store's own tests: commands by number, and what the machine makes of them.

use semel_core::classify::Ending;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::store::Written;
use semel_core::time::Time;

static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);

/// When the records here are claimed, in milliseconds.
pub const NOW: u64 = 1_800_000_000_000;

/// The ID of the command with this number.
pub fn id(number: u64) -> CommandId {
    let mut bytes = [0x5e; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    CommandId::from_bytes(bytes)
}

/// The caller with this number.
pub fn caller(number: u64) -> CallerHash {
    let mut bytes = [0xca; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    CallerHash::from_bytes(bytes)
}

/// The stamp of a worker at `millis`.
pub fn stamp(millis: u64) -> Stamp<'static> {
    Stamp::new(Time::from_millis(millis), "worker", "")
}

/// The command with this number, of one of three callers and one of two operations.
pub fn command(number: u64) -> Command<'static> {
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

/// The record of the first attempt of the command with this number, claimed at `millis` with `token`.
pub fn claim_at(number: u64, token: u128, millis: u64) -> Record {
    claim(&command(number), token, millis)
}

/// The record of this command's first attempt, claimed at `millis` with `token`.
pub fn claim(command: &Command<'_>, token: u128, millis: u64) -> Record {
    let new_attempt = NewAttempt { token: Token::from_random(token), begin: Begin::Processing };
    match machine::decide(Found::Nothing, command, new_attempt, stamp(millis)) {
        Decision::Run(write) => write.next,
        other => panic!("a command never seen is run: {other:?}"),
    }
}

/// The same, claimed at [`NOW`] with a token of its own.
pub fn claimed(number: u64) -> Record {
    claim_at(number, u128::from(number) + 1, NOW)
}

/// The record after its owner has renewed its lease.
pub fn renewed(record: &Record) -> Record {
    machine::renew(record, record.token(), Time::from_millis(NOW + 1)).expect("its owner may").next
}

/// The record after its owner has finished it with a response that has this body.
pub fn finished(record: &Record, body: impl Into<bytes::Bytes>) -> Record {
    let ending = Ending::Succeeded(Outcome::http(201, [("location", "/charges/7")], body));
    machine::finish(record, record.token(), ending, stamp(NOW + 2)).expect("its owner may").next
}

/// Whether the write was done.
pub fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done { .. })
}

//! Claim and finish in a loop, as a store does under load. Every run is identical.

use crate::sample::{self, NEW_ATTEMPT, NOW};
use semel_core::classify::Ending;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Decision, Found, Write};
use semel_core::outcome::Outcome;
use semel_core::time::Time;

/// How many callers the commands come from.
pub const CALLERS: u64 = 1000;
/// The size of the response of each command.
pub const BODY_BYTES: usize = 256;

/// The id of the `number`th command: spread evenly, as hashes are.
pub fn id(number: u64) -> CommandId {
    CommandId::from_bytes(spread(number, 1))
}

fn spread(number: u64, salt: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut state = number.wrapping_mul(4).wrapping_add(salt << 56);
    for chunk in bytes.chunks_exact_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_be_bytes());
    }
    bytes
}

/// The claim of the `number`th command.
///
/// # Panics
/// If a new key is not run, which would be a bug.
pub fn claim(number: u64) -> Write {
    claim_at(number, NOW)
}

/// The claim of the `number`th command at a given time.
///
/// # Panics
/// As above.
pub fn claim_at(number: u64, now: Time) -> Write {
    let id = id(number);
    let command = machine::Command {
        id,
        operation_id: OperationId::of(&id),
        key_hash: KeyHash::from_bytes(spread(number, 2)),
        caller_hash: CallerHash::from_bytes(spread(number % CALLERS, 3)),
        ..sample::command()
    };
    match machine::decide(Found::Nothing, &command, NEW_ATTEMPT, sample::stamp(now)) {
        Decision::Run(write) => *write,
        other => panic!("{other:?}"),
    }
}

/// The finish of a claim.
///
/// # Panics
/// If an owner may not finish its own attempt, which would be a bug.
pub fn finish(claim: &Write) -> Write {
    finish_at(claim, NOW)
}

/// The outcome of every command.
pub fn outcome() -> Outcome {
    let headers = [("content-type", "application/json"), ("location", "/v1/payments/7")];
    Outcome::http(201, headers, vec![b'x'; BODY_BYTES])
}

/// The finish of a claim at a given time.
///
/// # Panics
/// As above.
pub fn finish_at(claim: &Write, now: Time) -> Write {
    match machine::finish(&claim.next, NEW_ATTEMPT.token, Ending::Succeeded(outcome()), sample::stamp(now)) {
        Ok(write) => write,
        Err(refusal) => panic!("{refusal}"),
    }
}

//! The measured records: those of a payment.

use semel_core::classify::Ending;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::time::Time;

/// The time of everything.
pub const NOW: Time = Time::from_millis(1_800_000_000_000);
/// The owner of the attempt.
pub const NEW_ATTEMPT: NewAttempt = NewAttempt { token: Token::from_random(7), begin: Begin::Processing };
static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);

/// A payment.
pub fn command() -> Command<'static> {
    Command {
        id: CommandId::from_bytes([0; 32]),
        operation_id: OperationId::from_bytes([1; 16]),
        key_hash: KeyHash::from_bytes([2; 32]),
        caller_hash: CallerHash::from_bytes([3; 32]),
        operation: "POST /v1/payments".into(),
        policy: Policy::new(Class::Downstream).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
        generation: 0,
    }
}

/// A gateway at the time `now`.
pub fn stamp(now: Time) -> Stamp<'static> {
    Stamp::new(now, "gateway-7f9c", "")
}

/// The payment's record while it runs: one history entry.
///
/// # Panics
/// If a new key is not run, which would be a bug.
pub fn processing() -> Record {
    match machine::decide(Found::Nothing, &command(), NEW_ATTEMPT, stamp(NOW)) {
        Decision::Run(write) => write.next,
        other => panic!("{other:?}"),
    }
}

/// The payment's finished record: 1 KiB of body, six headers, two history entries.
///
/// # Panics
/// If an owner may not finish its own attempt, which would be a bug.
pub fn succeeded() -> Record {
    let headers = [
        ("content-type", "application/json"),
        ("content-length", "1024"),
        ("location", "/v1/payments/0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35"),
        ("etag", "\"33a64df551425fcc55e4d42a148795d9f25f89d4\""),
        ("cache-control", "no-store"),
        ("x-request-cost", "17"),
    ];
    let ending = Ending::Succeeded(Outcome::http(201, headers, vec![b'x'; 1024]));
    match machine::finish(&processing(), NEW_ATTEMPT.token, ending, stamp(NOW)) {
        Ok(write) => write.next,
        Err(refusal) => panic!("{refusal}"),
    }
}

//! The commands, records and moments of the suite.
//!
//! Helpers for real commands and transitions. The machine makes every record.

use semel_core::classify::Ending;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::key::Key;
use semel_core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp, Write};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, StateName, Token};
use semel_core::scope::{Identity, Operation, Scope, Secret};
use semel_core::store::{Change, Reading, Store, Written};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// The start of each promise, far from both ends of time.
pub(crate) const START: Time = Time::from_millis(1_800_000_000_000);

/// How far a store's own clock may advance during a promise. Every duration of the suite's policy is longer.
pub(crate) const DRIFT: Duration = Duration::from_mins(20);

/// The default payload of commands.
static SAME: Fingerprint = Fingerprint::from_bytes([1; 32]);
pub(crate) const DIFFERENT: Fingerprint = Fingerprint::from_bytes([2; 32]);

/// A [`Command`] that can be sent to another thread: its payload is its fingerprint.
#[derive(Debug, Clone)]
pub(crate) struct TestCommand {
    pub(crate) id: CommandId,
    pub(crate) operation_id: OperationId,
    pub(crate) key_hash: KeyHash,
    pub(crate) caller_hash: CallerHash,
    pub(crate) operation: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) fingerprint: Fingerprint,
}

impl TestCommand {
    pub(crate) fn command(&self) -> Command<'_> {
        Command {
            id: self.id,
            operation_id: self.operation_id,
            key_hash: self.key_hash,
            caller_hash: self.caller_hash,
            operation: Arc::clone(&self.operation),
            policy: Arc::clone(&self.policy),
            fingerprint: self.fingerprint,
            payload: &self.fingerprint,
            generation: 0,
        }
    }
}

/// Durations so long that a clock that advances during a promise changes nothing.
pub(crate) fn policy() -> Policy {
    Policy::new(Class::External)
        .with(|policy| {
            policy.lease = HOUR;
            policy.work_deadline = HOUR;
            policy.ttl = 48 * HOUR;
            policy.denied_ttl = 4 * HOUR;
            policy.tombstone = 240 * HOUR;
            policy.dedup_window = 48 * HOUR;
        })
        .expect("valid")
}

/// The `n`-th command of the suite.
pub(crate) fn command(n: u64) -> TestCommand {
    command_under(n, policy())
}

pub(crate) fn command_under(n: u64, policy: Policy) -> TestCommand {
    let scope = Scope::new(Identity::api_key("a caller"), Operation::named("charge"));
    command_in(&scope, &format!("key-{n:020}"), policy)
}

pub(crate) fn command_in(scope: &Scope, key: &str, policy: Policy) -> TestCommand {
    let secret = Secret::from_bytes(b"of the contract suite, and no secret").expect("long enough");
    let key = Key::from_source(key).expect("a valid key");
    let command =
        Command::new(&secret, scope, &key, Arc::new(policy), &SAME).expect("a fingerprint is its own");
    let Command { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint, .. } = command;
    TestCommand { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint }
}

/// The token of the `n`-th owner: it differs from its neighbours in the first and last bytes, and is never zero.
pub(crate) const fn token(n: u64) -> Token {
    let number = n + 1;
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Token::from_random(((mixed as u128) << 64) | number as u128)
}

pub(crate) fn stamp(now: Time) -> Stamp<'static> {
    Stamp::new(now, "the contract suite", "")
}

/// The write of a request with this token that finds `found`.
pub(crate) fn attempt(found: Found<'_>, command: &TestCommand, token: Token, now: Time) -> Write {
    attempt_from(found, command, NewAttempt { token, begin: Begin::Processing }, now)
}

pub(crate) fn attempt_from(
    found: Found<'_>,
    command: &TestCommand,
    new_attempt: NewAttempt,
    now: Time,
) -> Write {
    match machine::decide(found, &command.command(), new_attempt, stamp(now)) {
        Decision::Run(write) => *write,
        other => panic!("expected an attempt, got {other:?}"),
    }
}

/// The first attempt, `PROCESSING`.
pub(crate) fn first(command: &TestCommand, token: Token, now: Time) -> Record {
    attempt(Found::Nothing, command, token, now).next
}

/// The first attempt, `CLAIMED`.
pub(crate) fn reserved(command: &TestCommand, token: Token, now: Time) -> Record {
    attempt_from(Found::Nothing, command, NewAttempt { token, begin: Begin::Claimed }, now).next
}

pub(crate) fn paid() -> Ending {
    Ending::Succeeded(Outcome::http(201, [("location", "/charges/7")], "{\"id\":7}"))
}

pub(crate) fn finish(record: &Record, ending: Ending, now: Time) -> Write {
    machine::finish(record, record.token(), ending, stamp(now)).expect("the owner may finish")
}

pub(crate) fn renew(record: &Record, now: Time) -> Write {
    machine::renew(record, record.token(), now).expect("the owner may renew")
}

/// The writes that lead to a record in `state`, starting with an insert.
pub(crate) fn writes_to(state: StateName, command: &TestCommand, token: Token, now: Time) -> Vec<Write> {
    let claim = |begin| attempt_from(Found::Nothing, command, NewAttempt { token, begin }, now);
    let ended = |ending| {
        let first = claim(Begin::Processing);
        let end = finish(&first.next, ending, now);
        vec![first, end]
    };
    let outcome = Outcome::http(422, [("a", "1"), ("a", "2")], "no");
    match state {
        StateName::Claimed => vec![claim(Begin::Claimed)],
        StateName::Processing => vec![claim(Begin::Processing)],
        StateName::Succeeded => ended(paid()),
        StateName::FailedReplayable => ended(Ending::FailedReplayable(outcome)),
        StateName::FailedNotReplayable => ended(Ending::NotApplied(Some(outcome))),
        StateName::Unknown => ended(Ending::InDoubt),
        StateName::Expired => {
            let mut writes = ended(paid());
            let done = &writes[1].next;
            let over = done.expires_at().expect("an outcome expires");
            writes.push(machine::expire(done, stamp(over)).expect("past its time"));
            writes
        }
    }
}

/// Brings a record of `command` into `state`, and returns it as stored.
pub(crate) async fn bring(
    store: &dyn Store,
    state: StateName,
    command: &TestCommand,
    owner: Token,
    now: Time,
) -> Record {
    let mut writes = writes_to(state, command, owner, now);
    insert(store, command, &writes[0].next).await;
    for write in &writes[1..] {
        swap(store, command, write).await;
    }
    writes.pop().expect("at least a claim").next
}

/// Inserts a record where there is no entry.
pub(crate) async fn insert(store: &dyn Store, command: &TestCommand, record: &Record) {
    let written = store.write(command.id, Change::Insert(record)).await.expect("an answer");
    assert!(is_done(&written), "there is no entry, yet the insert was refused: {written:?}");
}

/// Swaps a record that matches the write's condition.
pub(crate) async fn swap(store: &dyn Store, command: &TestCommand, write: &Write) {
    let written = store.write(command.id, Change::from(write)).await.expect("an answer");
    assert!(is_done(&written), "the record is unchanged, yet the swap was refused: {written:?}");
}

pub(crate) async fn read(store: &dyn Store, command: &TestCommand) -> Reading {
    store.get(command.id).await.expect("an answer")
}

pub(crate) const fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done { .. })
}

/// Asserts that a write was refused with the stored record in its answer, and that the record is unchanged.
pub(crate) async fn refused(store: &dyn Store, command: &TestCommand, written: Written, stored: &Record) {
    let Written::Refused(shown) = written else { panic!("a write was applied against its condition") };
    assert_eq!(shown.record(), Some(stored), "a refusal shows the stored entry");
    assert_stored(store, command, stored).await;
}

pub(crate) async fn assert_stored(store: &dyn Store, command: &TestCommand, record: &Record) {
    assert_eq!(read(store, command).await.record(), Some(record), "the stored entry");
}

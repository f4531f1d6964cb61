//! Files to play with, records to put there, and a clock to turn.

use semel_core::classify::Ending;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, Stamp, Ticket, Unchanged};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::store::{Change, Clock, Store as _, Written};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};
use semel_test_support::ScratchDir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
pub(crate) const NOW: u64 = 1_800_000_000_000;

/// A store's files in a directory of their own.
pub(crate) struct Scratch(ScratchDir);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self(ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name))
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("semel.db")
    }

    /// The write-ahead log beside the file.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("semel.db-wal")
    }

    pub(crate) fn open(&self) -> Store {
        open(&self.file())
    }

    /// A connection of one's own to the same file, as an operator or another tool would have.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).expect("the file opens")
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, Options::default()).expect("the store opens")
}

/// A clock that stands still until it is set.
pub(crate) struct Hand(AtomicU64);

impl Hand {
    pub(crate) fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis)))
    }

    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::SeqCst))
    }
}

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

pub(crate) async fn insert(store: &Store, number: u64, record: &Record) -> Written {
    store.write(id(number), Change::Insert(record)).await.expect("an answer")
}

pub(crate) async fn swap(store: &Store, number: u64, old: &Record, next: &Record) -> Written {
    store.write(id(number), Change::Replace(Unchanged::of(old), next)).await.expect("an answer")
}

pub(crate) fn is_done(written: &Written) -> bool {
    matches!(written, Written::Done { .. })
}

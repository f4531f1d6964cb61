//! Temporary files, and a manual clock.

pub(crate) use semel_testkit::records::*;

use semel_core::machine::Unchanged;
use semel_core::record::Record;
use semel_core::store::{Change, Clock, Store as _, Written};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};
use semel_test_support::ScratchDir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store's files in a separate directory.
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

    /// A separate connection to the same file, as an operator or another tool would have.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).expect("the file opens")
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, Options::default()).expect("the store opens")
}

/// A clock that changes only when it is set.
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis)))
    }

    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) async fn insert(store: &Store, number: u64, record: &Record) -> Written {
    store.write(id(number), Change::Insert(record)).await.expect("an answer")
}

pub(crate) async fn swap(store: &Store, number: u64, old: &Record, next: &Record) -> Written {
    store.write(id(number), Change::Replace(Unchanged::of(old), next)).await.expect("an answer")
}

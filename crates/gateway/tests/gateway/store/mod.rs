//! The store of a test, and macros that run a test on each kind of store.
//!
//! What these tests promise does not depend on the store. Promises of one kind of server are in `on_postgres` and
//! `on_redis`; a test that chooses no store runs on a file.

mod file;
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use semel::core::store::Store;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreKind {
    File,
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
}

/// A store for one test only.
pub(crate) enum TestStore {
    File(file::TestStore),
    Postgres(postgres::TestStore),
    #[cfg(feature = "redis")]
    Redis(redis::TestStore),
}

impl TestStore {
    /// `file` is a path beside the other files of the test.
    pub(crate) fn new(kind: StoreKind, file: &Path) -> Self {
        match kind {
            StoreKind::File => Self::File(file::TestStore::new(file)),
            StoreKind::Postgres => Self::Postgres(postgres::TestStore::new()),
            #[cfg(feature = "redis")]
            StoreKind::Redis => Self::Redis(redis::TestStore::new(file)),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(store) => store.url(),
            Self::Postgres(store) => store.url(),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.url(),
        }
    }

    /// Opens it in this process.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::File(store) => store.open().await,
            Self::Postgres(store) => store.open().await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.open().await,
        }
    }

    /// Blocks all writes to it until the lock is released.
    pub(crate) async fn lock(&self) -> Lock {
        match self {
            Self::File(store) => Lock::File(store.lock()),
            Self::Postgres(store) => Lock::Postgres(store.lock().await),
            #[cfg(feature = "redis")]
            Self::Redis(store) => Lock::Redis(store.lock()),
        }
    }

    /// Sends an operator's command to its Redis server.
    #[cfg(feature = "redis")]
    pub(crate) fn ask(&self, command: &str) {
        let Self::Redis(store) = self else { panic!("{command} is for a Redis server") };
        store.ask(command);
    }
}

pub(crate) enum Lock {
    File(file::Lock),
    Postgres(postgres::Lock),
    #[cfg(feature = "redis")]
    Redis(redis::Lock),
}

impl Lock {
    pub(crate) async fn release(self) {
        match self {
            Self::File(lock) => lock.release(),
            Self::Postgres(lock) => lock.release().await,
            #[cfg(feature = "redis")]
            Self::Redis(lock) => lock.release(),
        }
    }
}

/// Each of these promises, on each kind of store.
macro_rules! on_every_store {
    ($($promise:ident),* $(,)?) => {
        mod on_file {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise($crate::store::StoreKind::File).await;
            })*
        }
        $crate::store::on_every_server!($($promise),*);
    };
}

/// Each of these promises, on each kind of store that has a server.
macro_rules! on_every_server {
    ($($promise:ident),* $(,)?) => {
        mod on_postgres {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise($crate::store::StoreKind::Postgres).await;
            })*
        }
        #[cfg(feature = "redis")]
        mod on_redis {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise($crate::store::StoreKind::Redis).await;
            })*
        }
    };
}

pub(crate) use {on_every_server, on_every_store};

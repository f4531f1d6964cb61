//! Small patterns in the caller's own transaction, each usable alone and inside a local command.
//!
//! | you have | use |
//! |---|---|
//! | messages from a broker that delivers some of them twice | [`Inbox`] |
//! | a service behind the gateway, and a database | [`FenceGuard`] |
//! | rows with a natural key, a version or a state | [`NaturalTable`] |
//! | clients that send a new key with each retry | [`BusinessReferences`] |
//! | a number that must not count anything twice | [`Counter`], [`EventCounter`], [`BucketCounter`] |
//!
//! They work on the caller's `sqlx` connection: `PgConnection` (feature `postgres`) or `SqliteConnection`
//! (feature `sqlite`), inside a transaction that was opened with `sqlx` (`pool.begin()`,
//! `connection.begin()`, the work of `postgres::transact`, or `sqlite::own::begin`). Their writes are
//! committed or rolled back together with the caller's own changes.
//!
//! The work of `sqlite::transact` has a `rusqlite` connection instead. For that, and for the application's
//! own transactions with `rusqlite`, there are calls whose names end in `_blocking`, such as
//! [`Inbox::once_blocking`] and [`FenceGuard::run_blocking`]. Batches, compaction and purging use separate
//! transactions, and need a `sqlx` connection.
//!
//! Their tables are part of the store's schema: opening the store creates them, and so does `semel schema
//! apply`. On PostgreSQL the role of the connection needs `USAGE` on that schema, `EXECUTE` on `now_ms`, and
//! `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the tables it uses.
//!
//! **What must never be here**: a commit of the caller's transaction, or SQL of one database outside its own
//! file in `dialect`.

#[cfg(feature = "sqlite")]
mod blocking;
mod connection;
mod counter;
mod dialect;
mod error;
mod fence;
mod inbox;
mod natural;
mod reference;
mod savepoint_name;
mod tables;
mod transaction;
mod value;

pub use connection::{PatternConnection, PatternRow, WorkFuture};
pub use counter::{BucketCounter, Counted, Counter, EventCounter};
pub use error::PatternError;
pub use fence::{FenceGuard, FencePass, FenceRefusal, Fenced, Guarded};
pub use inbox::{
    BatchResult, FirstFailed, Inbox, InboxAnswer, InboxCounts, InboxEvent, InboxObserver, InboxResult,
    Message, MessageId,
};
pub use natural::{CompareAndSet, InsertOrGet, NaturalTable, Transition, TransitionResult, Version};
pub use reference::{Binding, BusinessReferences};
pub use tables::Tables;
pub use value::Value;

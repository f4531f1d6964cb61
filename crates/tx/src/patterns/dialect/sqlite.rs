//! SQLite.
//!
//! There is one writer at a time. With the file's write lock, there is nothing to wait for; the connection's
//! `busy_timeout` limits the wait for the lock.

use super::{Dialect, FormerBounds};
use crate::caller_tx::poll_once;
use crate::patterns::connection::{PatternRow, WorkFuture};
use crate::patterns::error::Fault;
use crate::patterns::savepoint_name::SavepointName;
use crate::patterns::tables::Tables;
use crate::patterns::value::{Bind, Column};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _, SqlSafeStr as _, Sqlite};
use sqlx_core::transaction::TransactionManager as _;
use std::future::ready;
use std::time::Duration;

type Transactions = <Sqlite as sqlx::Database>::TransactionManager;

/// What is run in place of a transaction that SQLite has ended: with a violated foreign key that is checked
/// at the commit, there will be none.
pub(in crate::patterns) const NO_COMMIT: &str = "CREATE TEMP TABLE semel_ended (id INTEGER PRIMARY KEY, \
     waits_for INTEGER NOT NULL REFERENCES semel_ended (id) DEFERRABLE INITIALLY DEFERRED); \
     INSERT INTO temp.semel_ended VALUES (1, 2)";
/// For a connection without foreign keys. It stays.
pub(in crate::patterns) const NO_WRITES: &str = "PRAGMA query_only = ON";

impl Dialect for SqliteConnection {
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const LOCKED: &'static str = "";
    const CHECKS_DEFERRED: bool = false;
    const HAS_TYPES: bool = false;

    fn table(_: &Tables, name: &str) -> String {
        format!("semel_{name}")
    }

    fn now(_: &Tables) -> String {
        "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)".to_owned()
    }

    fn rowset(binds: &mut Vec<Bind>, columns: Vec<Column>) -> String {
        let (width, mut rows) = (columns.len(), Vec::<Vec<Bind>>::new());
        for column in columns {
            let values: Vec<Bind> = match column {
                Column::Texts(texts) => texts.into_iter().map(Bind::Text).collect(),
                Column::Blobs(blobs) => blobs.into_iter().map(Bind::Bytes).collect(),
            };
            rows.resize_with(rows.len().max(values.len()), || Vec::with_capacity(width));
            rows.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
        }
        let mut lines = Vec::with_capacity(rows.len());
        for row in rows {
            let first = binds.len() + 1;
            let placeholders: Vec<String> = (first..first + row.len()).map(|at| format!("${at}")).collect();
            binds.extend(row);
            lines.push(format!("({})", placeholders.join(", ")));
        }
        format!("VALUES {}", lines.join(", "))
    }

    fn run(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        Box::pin(async move { bound(sql, binds).execute(self).await.map(|done| done.rows_affected()) })
    }

    fn rows(
        &mut self,
        sql: String,
        binds: Vec<Bind>,
    ) -> WorkFuture<'_, Result<Vec<PatternRow<Self>>, sqlx::Error>> {
        Box::pin(async move { bound(sql, binds).fetch_all(self).await })
    }

    fn insert_waiting(
        &mut self,
        insert: String,
        binds: Vec<Bind>,
        _: Duration,
    ) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        self.run(insert, binds)
    }

    fn bound_waits(
        &mut self,
        _: Duration,
        _: usize,
    ) -> WorkFuture<'_, Result<Option<FormerBounds>, sqlx::Error>> {
        Box::pin(async { Ok(None) })
    }

    fn restore_waits(&mut self, _: Option<FormerBounds>) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async { Ok(()) })
    }

    /// The durability of a commit is a setting of the connection.
    fn run_durably(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        self.run(sql, binds)
    }

    /// SQLite has no statement for it.
    fn check_deferred(&mut self, _: i64) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(ready(Ok(())))
    }

    fn depth(&mut self) -> WorkFuture<'_, Result<usize, sqlx::Error>> {
        Box::pin(async move {
            // The worker may still have queued rollbacks to run.
            self.ping().await?;
            Ok(Transactions::get_transaction_depth(self))
        })
    }

    /// Without a transaction, SAVEPOINT would begin one, and its release would commit it.
    fn begin_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>> {
        let sql = format!("SAVEPOINT {name}");
        Box::pin(async move {
            if !is_in_transaction(self).await? {
                return Ok(false);
            }
            exec(self, sql).await.map(|()| true)
        })
    }

    /// SQLite has no statement that looks for the savepoint itself. Releasing or undoing it does.
    fn has_savepoint(&mut self, _: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>> {
        Box::pin(is_in_transaction(self))
    }

    fn release_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(exec(self, format!("RELEASE {name}")))
    }

    fn undo_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(exec(self, format!("ROLLBACK TO {name}; RELEASE {name}")))
    }

    /// The connection's thread runs what it is sent, in order. Of a statement whose caller is gone it runs
    /// only the first part, so these are two.
    fn leave_savepoint(&mut self, name: &SavepointName, _: usize) {
        for sql in [format!("ROLLBACK TO {name}"), format!("RELEASE {name}")] {
            poll_once(exec(self, sql));
        }
    }

    /// Nothing is left of earlier calls, because the thread has undone them: without this savepoint, it refuses.
    fn leave_unanswered(&mut self, name: &SavepointName, depth: usize) {
        self.leave_savepoint(name, depth);
    }

    fn restore_after(&mut self, _: &sqlx::Error, _: &SavepointName) -> WorkFuture<'_, bool> {
        Box::pin(async move { matches!(is_in_transaction(self).await, Ok(true)) })
    }

    /// Opens another transaction, which cannot be committed. Once it is rolled back, the connection can be used
    /// again.
    fn abandon(&mut self, depth: usize) -> WorkFuture<'_, ()> {
        // If it fails, the worker is gone, and nothing more can be written.
        Box::pin(async move { drop(replace_ended(self, depth).await) })
    }

    /// Refused while a transaction is open.
    fn before_rollback(&mut self) -> WorkFuture<'_, ()> {
        Box::pin(async move { drop(exec(self, "BEGIN".to_owned()).await) })
    }

    /// The connection's thread rolls a BEGIN without an answer back by itself.
    fn leave_transaction(&mut self) {
        Transactions::start_rollback(self);
    }

    fn fault(error: &sqlx::Error) -> Fault {
        let sqlx::Error::Database(error) = error else { return Fault::Unknown };
        let code: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        fault_of(code, error.message())
    }

    fn text(row: &PatternRow<Self>, at: usize) -> Result<Option<String>, sqlx::Error> {
        row.try_get(at)
    }

    fn bytes(row: &PatternRow<Self>, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        row.try_get(at)
    }

    fn integer(row: &PatternRow<Self>, at: usize) -> Result<Option<i64>, sqlx::Error> {
        row.try_get(at)
    }

    fn boolean(row: &PatternRow<Self>, at: usize) -> Result<Option<bool>, sqlx::Error> {
        row.try_get::<Option<i64>, _>(at).map(|value| value.map(|value| value != 0))
    }
}

/// Runs statements without keeping them prepared.
async fn exec(connection: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
}

/// SQLite ends a transaction by itself on some errors, which sqlx does not notice: later writes are committed
/// at once. Inside a transaction, BEGIN is refused.
async fn is_in_transaction(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    match exec(connection, "BEGIN".to_owned()).await {
        Ok(()) => Ok(false),
        Err(sqlx::Error::Database(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn replace_ended(connection: &mut SqliteConnection, depth: usize) -> Result<(), sqlx::Error> {
    // Refused if nothing is open.
    drop(exec(connection, "ROLLBACK".to_owned()).await);
    let has_keys =
        sqlx::query("PRAGMA foreign_keys").fetch_one(&mut *connection).await?.try_get::<i64, _>(0)?;
    if has_keys == 0 {
        exec(connection, NO_WRITES.to_owned()).await?;
    }
    let levels = Transactions::get_transaction_depth(connection);
    if levels == 0 {
        Transactions::begin(connection, Some("BEGIN".into_sql_str())).await?;
    } else {
        exec(connection, "BEGIN".to_owned()).await?;
    }
    if exec(connection, NO_COMMIT.to_owned()).await.is_err() {
        exec(connection, NO_WRITES.to_owned()).await?;
    }
    // The nested transactions that sqlx believes in, so that their ends succeed.
    for level in 1..levels {
        exec(connection, format!("SAVEPOINT _sqlx_savepoint_{level}")).await?;
    }
    while Transactions::get_transaction_depth(connection) > depth {
        Transactions::rollback(connection).await?;
    }
    while Transactions::get_transaction_depth(connection) < depth {
        Transactions::begin(connection, None).await?;
    }
    Ok(())
}

/// The meaning of an extended result code of SQLite, with its message.
pub(in crate::patterns) fn fault_of(code: i32, message: &str) -> Fault {
    match (code & 0xff, code) {
        // A reader cannot become the writer, because another connection has written since.
        (_, 517) => Fault::Conflict,
        (5 | 6, _) => Fault::Busy,
        (1, _) if ["no such table", "no such column"].iter().any(|start| message.starts_with(start)) => {
            Fault::MissingTables
        }
        // A disk that fails, or is full, in the middle of a commit.
        (7 | 10 | 13, _) => Fault::Unknown,
        _ => Fault::Refused,
    }
}

fn bound<'q>(sql: String, binds: Vec<Bind>) -> Query<'q, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(sql));
    binds.into_iter().fold(query, |query, bind| match bind {
        Bind::Boolean(value) => query.bind(value),
        Bind::Integer(number) => query.bind(number),
        Bind::Real(number) => query.bind(number),
        Bind::Text(text) => query.bind(text),
        Bind::Bytes(bytes) => query.bind(bytes),
        // Lists are rows here.
        #[cfg(feature = "postgres")]
        Bind::Texts(_) | Bind::Blobs(_) => query,
    })
}

//! SQLite.
//!
//! There is one writer at a time. With the file's write lock, there is nothing to wait for; the connection's
//! `busy_timeout` limits the wait for the lock.

use super::{Dialect, FormerBounds};
use crate::patterns::connection::{PatternRow, WorkFuture};
use crate::patterns::error::Fault;
use crate::patterns::tables::Tables;
use crate::patterns::value::{Bind, Column};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Row as _, Sqlite};
use std::time::Duration;

impl Dialect for SqliteConnection {
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const LOCKED: &'static str = "";
    const ENDS_TRANSACTIONS: bool = true;
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
    fn check_deferred(&mut self) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async { Ok(()) })
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

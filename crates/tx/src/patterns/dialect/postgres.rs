//! PostgreSQL.

use super::{Dialect, FormerBounds};
use crate::caller_tx::poll_once;
use crate::patterns::connection::{PatternRow, WorkFuture};
use crate::patterns::error::Fault;
use crate::patterns::savepoint_name::SavepointName;
use crate::patterns::tables::{Tables, quoted};
use crate::patterns::value::{Bind, Column};
use semel_sql::postgres::transaction::ServerError;
use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Postgres, Row as _, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;
use std::future::ready;
use std::time::Duration;

type Transactions = <Postgres as sqlx::Database>::TransactionManager;

/// The message of a commit after a call that was dropped before its end.
const DROPPED: &str = "a call of a Semel pattern was dropped before its end: roll the transaction back";
/// As the role that has logged in: another one that the session has taken may not end it.
const END_SESSION: &str =
    "SET ROLE NONE; SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())";

/// An acknowledged commit must be durable: raised if a role or database has less, and never lowered.
const DURABILITY: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') \
     THEN pg_catalog.set_config('synchronous_commit', 'on', true) END";

impl Dialect for PgConnection {
    const BEGIN: &'static str = "BEGIN";
    const LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    const CHECKS_DEFERRED: bool = true;
    const HAS_TYPES: bool = true;

    fn table(tables: &Tables, name: &str) -> String {
        format!("{}.{name}", quoted(tables.schema()))
    }

    fn now(tables: &Tables) -> String {
        format!("{}.now_ms()", quoted(tables.schema()))
    }

    fn rowset(binds: &mut Vec<Bind>, columns: Vec<Column>) -> String {
        let (mut arrays, mut names) = (Vec::new(), Vec::new());
        for column in columns {
            let (bind, kind) = match column {
                Column::Texts(texts) => (Bind::Texts(texts), "text[]"),
                Column::Blobs(blobs) => (Bind::Blobs(blobs), "bytea[]"),
            };
            binds.push(bind);
            arrays.push(format!("${}::{kind}", binds.len()));
            names.push(format!("column{}", names.len() + 1));
        }
        let (arrays, names) = (arrays.join(", "), names.join(", "));
        format!("SELECT {names} FROM unnest({arrays}) AS listed ({names})")
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
        mut binds: Vec<Bind>,
        wait: Duration,
    ) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        Box::pin(async move {
            let former = bounded(self, wait, 1).await?;
            binds.extend([Bind::Text(former.lock), Bind::Text(former.statement)]);
            let (statement, lock) = (binds.len(), binds.len() - 1);
            // The former limits are restored with the result of the insert, so that the planner cannot
            // restore them earlier.
            let back = |setting: &str, former: usize| {
                format!(
                    "pg_catalog.set_config('{setting}', CASE WHEN number IS NOT NULL THEN ${former} END, true)"
                )
            };
            let sql = format!(
                "WITH inserted AS ({insert} RETURNING 1), counted AS MATERIALIZED (SELECT count(*) AS number FROM inserted) \
                 SELECT number, {}, {} FROM counted",
                back("lock_timeout", lock),
                back("statement_timeout", statement)
            );
            let number: i64 = bound(sql, binds).fetch_one(self).await?.try_get(0)?;
            Ok(number.unsigned_abs())
        })
    }

    fn bound_waits(
        &mut self,
        wait: Duration,
        rows: usize,
    ) -> WorkFuture<'_, Result<Option<FormerBounds>, sqlx::Error>> {
        Box::pin(async move { bounded(self, wait, rows).await.map(Some) })
    }

    fn restore_waits(&mut self, former: Option<FormerBounds>) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let Some(former) = former else { return Ok(()) };
            let sql = "SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', $2, true)";
            let binds = vec![Bind::Text(former.lock), Bind::Text(former.statement)];
            bound(sql.to_owned(), binds).execute(self).await.map(drop)
        })
    }

    fn run_durably(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        let sql = format!("WITH changed AS ({sql} RETURNING 1) SELECT count(*), {DURABILITY} FROM changed");
        Box::pin(async move {
            let number: i64 = bound(sql, binds).fetch_one(self).await?.try_get(0)?;
            Ok(number.unsigned_abs())
        })
    }

    /// In a savepoint that is always rolled back: there is no other way to restore what was deferred before,
    /// by its table or by the work itself.
    fn check_deferred(&mut self, open: i64) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let checking = "SAVEPOINT semel_check; SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO SAVEPOINT semel_check; \
                            RELEASE SAVEPOINT semel_check";
            exec(self, checking.to_owned()).await?;
            let dropped = "SELECT count(*) FROM pg_catalog.pg_cursors WHERE name LIKE 'semel\\_pattern\\_%'";
            let number: i64 = bound(dropped.to_owned(), Vec::new()).fetch_one(self).await?.try_get(0)?;
            if number == open { Ok(()) } else { Err(sqlx::Error::Protocol(DROPPED.to_owned())) }
        })
    }

    fn depth(&mut self) -> WorkFuture<'_, Result<usize, sqlx::Error>> {
        Box::pin(ready(Ok(Transactions::get_transaction_depth(self))))
    }

    /// With a cursor that the commit would have to read to its end, which fails. So the transaction cannot be
    /// committed until the savepoint is released or undone: not by the work, and not after a dropped call.
    fn begin_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>> {
        let sql = format!(
            "SAVEPOINT {name}; DECLARE {name} NO SCROLL CURSOR WITH HOLD FOR \
             SELECT CAST(pg_catalog.concat('{DROPPED}, process ', pg_catalog.pg_backend_pid()) AS integer)"
        );
        Box::pin(async move { is_found(exec(self, sql).await) })
    }

    fn has_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>> {
        let sql = format!("MOVE 0 IN {name}");
        Box::pin(async move { is_found(exec(self, sql).await) })
    }

    fn release_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        let sql = format!("CLOSE {name}; RELEASE SAVEPOINT {name}");
        Box::pin(exec(self, sql))
    }

    fn undo_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(exec(self, undo(name)))
    }

    /// Undone if nothing is being sent. Otherwise sqlx would wait for that first, and the cursor prevents the
    /// commit.
    fn leave_savepoint(&mut self, name: &SavepointName, depth: usize) {
        if !end_if_rolled_back(self, depth) {
            poll_once(exec(self, undo(name)));
        }
    }

    /// The cursor prevents the commit, unless the savepoint was ended: then the call is done, or undone. To undo a
    /// savepoint that is not there would abort the transaction, and sqlx reports its commit as a success.
    fn leave_unanswered(&mut self, _: &SavepointName, depth: usize) {
        end_if_rolled_back(self, depth);
    }

    /// Every error has aborted it, and most do not show whether the savepoint is there.
    fn restore_after(&mut self, error: &sqlx::Error, name: &SavepointName) -> WorkFuture<'_, bool> {
        let sqlx::Error::Database(error) = error else { return Box::pin(ready(false)) };
        let undo = undo(name);
        match error.code().as_deref() {
            // It was aborted before, by an error that its owner has ignored.
            Some("25P02") => Box::pin(ready(true)),
            // The savepoint is there, because only the cursor was refused: a dropped call has left one of that name.
            Some("42P03") => Box::pin(async move { exec(self, undo).await.is_ok() }),
            _ => Box::pin(ready(false)),
        }
    }

    /// Ends the session: every later statement fails. So does the commit, because sqlx believes in an open
    /// transaction.
    fn abandon(&mut self, _: usize) -> WorkFuture<'_, ()> {
        Box::pin(async move {
            drop(exec(self, "ROLLBACK".to_owned()).await);
            if Transactions::get_transaction_depth(self) == 0 {
                drop(Transactions::begin(self, None).await);
            }
            drop(exec(self, END_SESSION.to_owned()).await);
            drop(self.ping().await);
        })
    }

    /// The server keeps a failed transaction open until it is rolled back.
    fn before_rollback(&mut self) -> WorkFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn leave_transaction(&mut self) {
        if Transactions::get_transaction_depth(self) == 0 {
            // Queued behind a BEGIN that sqlx does not count yet.
            return poll_once(Transactions::begin(self, Some("ROLLBACK".into_sql_str())));
        }
        Transactions::start_rollback(self);
    }

    fn fault(error: &sqlx::Error) -> Fault {
        let sqlx::Error::Database(error) = error else { return Fault::Unknown };
        let Some(error) = error.try_downcast_ref::<PgDatabaseError>() else { return Fault::Unknown };
        let is_error = matches!(error.severity(), PgSeverity::Error);
        match error.code() {
            _ if ServerError::of(is_error, error.code()) == ServerError::Ambiguous => Fault::Unknown,
            // 57014: each wait was short enough, but not all of them together.
            "55P03" | "57014" => Fault::Busy,
            "40001" | "40P01" => Fault::Conflict,
            "42P01" | "3F000" | "42703" | "42883" => Fault::MissingTables,
            _ => Fault::Refused,
        }
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
        row.try_get(at)
    }
}

/// Runs statements in one message, without preparing them.
async fn exec(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
}

/// Ends the session if sqlx has rolled everything back: later statements would be committed at once.
fn end_if_rolled_back(connection: &mut PgConnection, depth: usize) -> bool {
    let is_over = depth > 0 && Transactions::get_transaction_depth(connection) == 0;
    if is_over {
        poll_once(Transactions::begin(connection, Some(END_SESSION.into_sql_str())));
    }
    is_over
}

fn undo(name: &SavepointName) -> String {
    format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
}

/// `false`: there is no transaction, or it is another one.
fn is_found(done: Result<(), sqlx::Error>) -> Result<bool, sqlx::Error> {
    match done {
        Ok(()) => Ok(true),
        Err(sqlx::Error::Database(error))
            if matches!(&*error.code().unwrap_or_default(), "25P01" | "34000" | "3B001") =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// How long a statement may take besides waiting, on a busy server: a constant, and more for each of its
/// rows.
const STATEMENT: Duration = Duration::from_millis(500);
const ROW: Duration = Duration::from_millis(1);

/// Limits each wait for a lock, and all waits of a statement together: a duplicate could otherwise wait that
/// long for each of several holders that fail one after another.
async fn bounded(
    connection: &mut PgConnection,
    wait: Duration,
    rows: usize,
) -> Result<FormerBounds, sqlx::Error> {
    let sql = format!(
        "WITH former AS MATERIALIZED (SELECT pg_catalog.current_setting('lock_timeout') AS lock, \
         pg_catalog.current_setting('statement_timeout') AS statement) SELECT former.lock, former.statement, {DURABILITY}, \
         pg_catalog.set_config('lock_timeout', CASE WHEN former.lock IS NOT NULL THEN $1 END, true), \
         pg_catalog.set_config('statement_timeout', CASE WHEN former.statement IS NOT NULL THEN $2 END, true) FROM former"
    );
    let statement_time =
        STATEMENT.saturating_add(ROW.saturating_mul(u32::try_from(rows).unwrap_or(u32::MAX)));
    let binds =
        vec![Bind::Text(milliseconds(wait)), Bind::Text(milliseconds(wait.saturating_add(statement_time)))];
    let row = bound(sql, binds).fetch_one(connection).await?;
    Ok(FormerBounds { lock: row.try_get(0)?, statement: row.try_get(1)? })
}

/// Zero would mean without a limit.
fn milliseconds(wait: Duration) -> String {
    wait.as_millis().clamp(1, 2_147_483_647).to_string()
}

fn bound<'q>(sql: String, binds: Vec<Bind>) -> Query<'q, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(sql));
    binds.into_iter().fold(query, |query, bind| match bind {
        Bind::Boolean(value) => query.bind(value),
        Bind::Integer(number) => query.bind(number),
        Bind::Real(number) => query.bind(number),
        Bind::Text(text) => query.bind(text),
        Bind::Bytes(bytes) => query.bind(bytes),
        Bind::Texts(texts) => query.bind(texts),
        Bind::Blobs(blobs) => query.bind(blobs),
    })
}

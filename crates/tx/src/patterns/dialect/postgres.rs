//! PostgreSQL.

use super::{Dialect, FormerBounds};
use crate::patterns::connection::{PatternRow, WorkFuture};
use crate::patterns::error::Fault;
use crate::patterns::tables::{Tables, quoted};
use crate::patterns::value::{Bind, Column};
use semel_sql::postgres::transaction::ServerError;
use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Postgres, Row as _};
use std::time::Duration;

/// An acknowledged commit must be durable: raised if a role or database has less, and never lowered.
const DURABILITY: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') \
     THEN pg_catalog.set_config('synchronous_commit', 'on', true) END";

impl Dialect for PgConnection {
    const BEGIN: &'static str = "BEGIN";
    const LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    const ENDS_TRANSACTIONS: bool = false;
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
    fn check_deferred(&mut self) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let mut savepoint = self.begin().await?;
            let checked =
                bound("SET CONSTRAINTS ALL IMMEDIATE".to_owned(), Vec::new()).execute(&mut *savepoint).await;
            savepoint.rollback().await?;
            checked.map(drop)
        })
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

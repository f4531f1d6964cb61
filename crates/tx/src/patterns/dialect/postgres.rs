//! PostgreSQL.

use super::Dialect;
use crate::patterns::connection::{PatternRow, WorkFuture};
use crate::patterns::error::Fault;
use crate::patterns::tables::{Tables, quoted};
use crate::patterns::value::{Bind, Column};
use semel_sql::postgres::transaction::ServerError;
use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row as _};
use std::time::Duration;

/// A commit that is acknowledged has to be durable: raised where a role or database has less, and never lowered.
const DURABILITY: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') \
     THEN pg_catalog.set_config('synchronous_commit', 'on', true) END";

impl Dialect for PgConnection {
    const BEGIN: &'static str = "BEGIN";
    const LOCKED: &'static str = "FOR UPDATE SKIP LOCKED";
    const ENDS_TRANSACTIONS: bool = false;
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

    /// One statement sets the bound, inserts, and brings the former bound back: each step takes the result of the one before.
    fn insert_waiting(
        &mut self,
        insert: String,
        mut binds: Vec<Bind>,
        wait: Duration,
    ) -> WorkFuture<'_, Result<u64, sqlx::Error>> {
        binds.push(Bind::Text(milliseconds(wait)));
        let wait = binds.len();
        let sql = format!(
            "WITH settings AS MATERIALIZED (SELECT pg_catalog.current_setting('lock_timeout') AS former, {DURABILITY} AS durability, \
             pg_catalog.set_config('lock_timeout', ${wait}, true) AS wait), inserted AS ({insert} RETURNING 1) \
             SELECT counted.number, pg_catalog.set_config('lock_timeout', CASE WHEN counted.number IS NOT NULL THEN settings.former END, true) \
             FROM settings CROSS JOIN LATERAL (SELECT count(*) AS number FROM inserted WHERE settings.wait IS NOT NULL) AS counted"
        );
        Box::pin(async move {
            let number: i64 = bound(sql, binds).fetch_one(self).await?.try_get(0)?;
            Ok(number.unsigned_abs())
        })
    }

    fn bound_waits(&mut self, wait: Duration) -> WorkFuture<'_, Result<Option<String>, sqlx::Error>> {
        let sql = format!(
            "WITH former AS MATERIALIZED (SELECT pg_catalog.current_setting('lock_timeout') AS wait) SELECT former.wait, {DURABILITY}, \
             pg_catalog.set_config('lock_timeout', CASE WHEN former.wait IS NOT NULL THEN $1 END, true) FROM former"
        );
        Box::pin(async move {
            let row = bound(sql, vec![Bind::Text(milliseconds(wait))]).fetch_one(self).await?;
            row.try_get::<String, _>(0).map(Some)
        })
    }

    fn restore_waits(&mut self, former: Option<String>) -> WorkFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let Some(former) = former else { return Ok(()) };
            let sql = "SELECT pg_catalog.set_config('lock_timeout', $1, true)".to_owned();
            bound(sql, vec![Bind::Text(former)]).execute(self).await.map(drop)
        })
    }

    fn fault(error: &sqlx::Error) -> Fault {
        let sqlx::Error::Database(error) = error else { return Fault::Unknown };
        let Some(error) = error.try_downcast_ref::<PgDatabaseError>() else { return Fault::Unknown };
        let is_error = matches!(error.severity(), PgSeverity::Error);
        match error.code() {
            _ if ServerError::of(is_error, error.code()) == ServerError::Ambiguous => Fault::Unknown,
            "55P03" => Fault::Busy,
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

/// Nothing would mean for ever.
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

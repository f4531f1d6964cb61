//! The write of a local command, which alone decides whether the transaction commits.

use super::database::Checked;
use super::look::Seen;
use crate::caller_tx::WriteFailure;
use crate::error::Error;
use semel::local::LocalWrites;
use semel_core::id::CommandId;
use semel_core::machine::{Expect, Unchanged, Write};
use semel_sql::postgres::transaction::{RecordColumns, ServerError, expected, operation_uuid};
use sqlx::postgres::{PgArguments, PgDatabaseError, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};
use std::sync::Arc;

impl From<sqlx::Error> for WriteFailure {
    fn from(error: sqlx::Error) -> Self {
        match server_error(&error) {
            Some(ServerError::Exists | ServerError::InTheWay) => Self::Conflict,
            _ => Self::Failed(failed(error)),
        }
    }
}

/// A record's row, and the expected entry. Encoded before anything is written: it may be too large.
pub struct RecordWrite {
    columns: RecordColumns,
    expect: Expect,
}

impl RecordWrite {
    pub(super) fn of(id: CommandId, write: &Write) -> Result<Self, semel_core::store::Error> {
        Ok(Self { columns: RecordColumns::of(id, &write.next)?, expect: write.expect })
    }
}

/// Writes everything that the command's transaction stores.
pub(super) async fn write(
    connection: &mut PgConnection,
    checked: &Checked,
    seen: &Seen,
    writes: &LocalWrites,
    record: RecordWrite,
) -> Result<(), WriteFailure> {
    if let Some(marker) = &writes.marker {
        if let Some(unchanged) = &marker.removes {
            remove(connection, checked, seen, marker.id, unchanged).await?;
        }
        let marker =
            inserting(checked, seen, RecordColumns::marker(marker.id)).execute(&mut *connection).await?;
        one_row(connection, seen, marker.rows_affected()).await?;
    }
    write_record(connection, checked, seen, record).await
}

/// Writes one record, if the expected entry is still there.
pub(super) async fn write_record(
    connection: &mut PgConnection,
    checked: &Checked,
    seen: &Seen,
    RecordWrite { columns, expect }: RecordWrite,
) -> Result<(), WriteFailure> {
    let query = match &expect {
        Expect::Absent => inserting(checked, seen, columns),
        Expect::Unchanged(unchanged) => {
            let (version, token, state) = expected(unchanged);
            bound(&checked.statements.replace, seen, columns).bind(version).bind(token).bind(state)
        }
    };
    let done = query.execute(&mut *connection).await?;
    one_row(connection, seen, done.rows_affected()).await
}

async fn remove(
    connection: &mut PgConnection,
    checked: &Checked,
    seen: &Seen,
    id: CommandId,
    unchanged: &Unchanged,
) -> Result<(), WriteFailure> {
    let (version, token, state) = expected(unchanged);
    let removed = sqlx::query(AssertSqlSafe(Arc::clone(&checked.statements.remove)))
        .bind(operation_uuid(&id))
        .bind(id.as_bytes().to_vec())
        .bind(version)
        .bind(token)
        .bind(state)
        .bind(seen.mark)
        .execute(&mut *connection)
        .await?;
    one_row(connection, seen, removed.rows_affected()).await
}

fn inserting<'q>(checked: &Checked, seen: &Seen, columns: RecordColumns) -> Query<'q, Postgres, PgArguments> {
    bound(&checked.statements.insert, seen, columns)
}

fn bound<'q>(sql: &Arc<str>, seen: &Seen, columns: RecordColumns) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
        .bind(columns.operation_id)
        .bind(columns.command_id)
        .bind(columns.version)
        .bind(columns.token)
        .bind(columns.state)
        .bind(columns.due_at)
        .bind(columns.updated_at)
        .bind(columns.caller)
        .bind(columns.key)
        .bind(columns.digest)
        .bind(columns.operation)
        .bind(columns.entry)
        .bind(seen.mark)
}

/// Any number of rows but one means that this command's write failed.
async fn one_row(connection: &mut PgConnection, seen: &Seen, rows: u64) -> Result<(), WriteFailure> {
    if rows == 1 {
        return Ok(());
    }
    let mark = "SELECT (EXTRACT(epoch FROM pg_catalog.transaction_timestamp()) * 1000000)::bigint";
    let mark: i64 = sqlx::query(mark).fetch_one(connection).await?.try_get(0)?;
    Err(if mark == seen.mark { WriteFailure::Conflict } else { WriteFailure::Left })
}

/// The error of one of this crate's statements, which also shows whether one of the application's failed
/// before.
pub(super) fn failed(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(cause) if cause.code().as_deref() == Some("25P02") => Error::StatementFailed,
        _ => Error::Database(error),
    }
}

/// The server's report about the transaction; `None` if the error is not the server's.
pub(super) fn server_error(error: &sqlx::Error) -> Option<ServerError> {
    let sqlx::Error::Database(error) = error else { return None };
    let error = error.try_downcast_ref::<PgDatabaseError>()?;
    let is_error = matches!(error.severity(), PgSeverity::Error);
    Some(ServerError::of(is_error, error.code()))
}

//! Reads and writes the store's rows on the application's own connection.

use crate::error::Error;
use semel::local::{DatabaseTimeouts, LocalLook, LocalWrites};
use semel_core::id::CommandId;
use semel_core::machine::{Expect, Write};
use semel_core::store::{self, Clock as _, Reading};
use semel_core::time::Time;
use semel_sql::SystemClock;
use semel_sql::sqlite::transaction::{self as sql, RecordColumns};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Row as _, Sqlite, SqliteConnection};

/// The bytes that were read under each ID.
pub(super) type Entries = Vec<(CommandId, Option<Vec<u8>>)>;

/// Reads the entries of the IDs, under the file's write lock.
pub(super) async fn look(
    connection: &mut SqliteConnection,
    (arbiter_id, moved_to_id): (CommandId, Option<CommandId>),
    timeouts: &DatabaseTimeouts,
) -> Result<(LocalLook, Entries), Error> {
    let asked = timeouts.uptime();
    let now = SystemClock.now();
    let mut seen = Entries::new();
    let arbiter = read(connection, arbiter_id, now, &mut seen).await?;
    let moved_to = match moved_to_id {
        Some(id) => Some(read(connection, id, now, &mut seen).await?),
        None => None,
    };
    Ok((LocalLook { has_lock: true, arbiter, moved_to, asked }, seen))
}

async fn read(
    connection: &mut SqliteConnection,
    id: CommandId,
    now: Time,
    seen: &mut Entries,
) -> Result<Reading, Error> {
    let row = sqlx::query(sql::LOOK).bind(sql::operation_id(&id)).fetch_optional(connection).await;
    let found = match row.map_err(Error::Database)? {
        Some(row) => {
            let columns = (row.try_get::<Vec<u8>, _>(0), row.try_get::<Vec<u8>, _>(1));
            Some((columns.0.map_err(Error::Database)?, columns.1.map_err(Error::Database)?))
        }
        None => None,
    };
    let reading = sql::reading(&id, now, found.as_ref().map(|(id, entry)| (&id[..], &entry[..])));
    seen.push((id, found.map(|(_, entry)| entry)));
    reading.map_err(Error::Store)
}

/// SQLite's extended code.
pub(super) fn code(error: &(dyn sqlx::error::DatabaseError + 'static)) -> i32 {
    error.code().and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Writes everything that the command's transaction stores.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    writes: &LocalWrites,
    record: RecordWrite,
    seen: &Entries,
) -> Result<(), Error> {
    if let Some(marker) = &writes.marker {
        if marker.removes.is_some() {
            let removing = sqlx::query(sql::REMOVE)
                .bind(sql::operation_id(&marker.id))
                .bind(marker.id.as_bytes().to_vec())
                .bind(entry(seen, marker.id)?);
            one_row(removing.execute(&mut *connection).await)?;
        }
        insert(connection, RecordColumns::marker(marker.id)).await?;
    }
    write_record(connection, record, seen).await
}

/// Writes one record, if the expected entry is still there.
pub(super) async fn write_record(
    connection: &mut SqliteConnection,
    RecordWrite { id, columns, expect }: RecordWrite,
    seen: &Entries,
) -> Result<(), Error> {
    match expect {
        Expect::Absent => insert(connection, columns).await,
        Expect::Unchanged(unchanged) => {
            let state = columns.state;
            let replacing = bound(sql::REPLACE, columns).bind(entry(seen, id)?);
            one_row(replacing.execute(&mut *connection).await)?;
            count(connection, sql::state(unchanged.state), -1).await?;
            count(connection, state, 1).await
        }
    }
}

/// A record's row, and the expected entry. Encoded before anything is written: it may be too large.
pub struct RecordWrite {
    id: CommandId,
    columns: RecordColumns,
    expect: Expect,
}

impl RecordWrite {
    pub(super) fn of(id: CommandId, write: &Write) -> Result<Self, store::Error> {
        Ok(Self { id, columns: RecordColumns::of(id, &write.next)?, expect: write.expect })
    }
}

async fn insert(connection: &mut SqliteConnection, columns: RecordColumns) -> Result<(), Error> {
    let (state, caller) = (columns.state, columns.caller);
    one_row(bound(sql::INSERT, columns).execute(&mut *connection).await)?;
    count(connection, state, 1).await?;
    if let Some(caller) = caller {
        one_row(sqlx::query(sql::COUNT_CALLER).bind(caller).execute(connection).await)?;
    }
    Ok(())
}

async fn count(connection: &mut SqliteConnection, state: i64, delta: i64) -> Result<(), Error> {
    one_row(sqlx::query(sql::COUNT_STATE).bind(state).bind(delta).execute(connection).await)
}

fn bound(
    statement: &'static str,
    columns: RecordColumns,
) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(statement)
        .bind(columns.operation_id)
        .bind(columns.command_id)
        .bind(columns.state)
        .bind(columns.due_at)
        .bind(columns.updated_at)
        .bind(columns.caller)
        .bind(columns.key)
        .bind(columns.operation)
        .bind(columns.entry)
}

/// The bytes that were read under an ID.
fn entry(seen: &Entries, id: CommandId) -> Result<Vec<u8>, Error> {
    let entry = seen.iter().find(|(seen, _)| *seen == id).and_then(|(_, entry)| entry.clone());
    entry.ok_or(Error::StaleSnapshot)
}

/// Any number of rows but one means that this command's write failed.
fn one_row(done: Result<sqlx::sqlite::SqliteQueryResult, sqlx::Error>) -> Result<(), Error> {
    match done {
        Ok(done) if done.rows_affected() == 1 => Ok(()),
        Ok(_) => Err(Error::StaleSnapshot),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Err(Error::StaleSnapshot),
        Err(error) => Err(Error::Database(error)),
    }
}

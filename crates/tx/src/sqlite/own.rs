//! Local commands on a connection of the application's own to the store's file.
//!
//! The connection is `sqlx`'s. [`begin`] opens a transaction on it with `BEGIN IMMEDIATE`: that takes the file's only write lock, and what is
//! looked up then stays as it is until the commit.
//!
//! **What it costs.** From `BEGIN IMMEDIATE` to the commit nobody else writes to the file: neither the store's own thread (whose callers
//! wait, and are told after 0.7 s that the store is unavailable) nor another connection (`SQLITE_BUSY` after its `busy_timeout`). Every commit
//! waits for the disk by itself, where [`transact`](super::transact) shares that wait among all who write. Use it for work that cannot
//! be a synchronous closure, and keep it short.
//!
//! Unlike the store, it does not check at each commit that the file is still the one that others find under its name.

use crate::error::Error;
use semel::local::{
    Entered, Local, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalLook, LocalWrites,
    Unwritable, Waiting, without_body,
};
use semel::{Answer, Engine, Intent, StoreId};
use semel_core::id::CommandId;
use semel_core::machine::{Expect, Found, Write};
use semel_core::outcome::Outcome;
use semel_core::store::{self, Clock as _, Kind, Reading};
use semel_sql::SystemClock;
use semel_sql::sqlite::transaction::{self as sql, RecordColumns};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Connection as _, Row as _, Sqlite, SqliteConnection, Transaction};
use std::fmt;
use std::time::Duration;

/// How often a command is looked for while the hashing secret is being replaced.
const LOOKS_MAX: u32 = 4;

/// What came of beginning a command.
#[derive(Debug)]
pub enum Begun<'c> {
    /// The command is this transaction's to run.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. No transaction is open.
    Answered(Answer),
}

/// A transaction that is to end with a local command's record.
///
/// Dropped, it is rolled back, and an alarm is raised: somebody forgot to end it.
#[must_use = "dropped, the transaction is rolled back"]
pub struct Mine<'c> {
    transaction: Option<Transaction<'c, Sqlite>>,
    state: Option<Box<(LocalCommand, LocalAttempt)>>,
    seen: Entries,
    local: Local,
}

/// A transaction that holds a local command's record, ready to be committed.
#[must_use = "nothing is durable before the commit"]
pub struct Recorded<'c> {
    transaction: Transaction<'c, Sqlite>,
    command: LocalCommand,
    attempt: LocalAttempt,
    writes: LocalWrites,
}

/// The bytes that were read under each id.
type Entries = Vec<(CommandId, Option<Vec<u8>>)>;

/// Begins a transaction on `connection` for what `intent` asks for. It ends with [`Mine::succeed`] or [`Mine::refuse`].
///
/// Does not wait for twins: where one runs, the answer is that it is in progress. For the file's write lock it waits as long as the connection's
/// `busy_timeout` says.
///
/// The connection must be to the store's file, with no transaction open, and `synchronous` at `FULL` (`sqlx`'s default) or more.
pub async fn begin<'c>(
    engine: &Engine,
    connection: &'c mut SqliteConnection,
    intent: Intent,
) -> Result<Begun<'c>, Error> {
    check(engine, connection).await?;
    let mut command = match engine.enter_local(intent, Waiting::Never).await? {
        Entered::Answered(answer) => return Ok(Begun::Answered(answer)),
        Entered::Mine(command) => command,
    };
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
    for _ in 0..LOOKS_MAX {
        let (looked, seen) = look(&mut transaction, &command).await?;
        let answer = match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                let local = attempt.local();
                let (transaction, state) = (Some(transaction), Some(Box::new((command, attempt))));
                return Ok(Begun::Mine(Mine { transaction, state, seen, local }));
            }
            LocalJudgement::Answered(answer) => answer,
            LocalJudgement::Wait => command.in_progress(),
            LocalJudgement::Again => continue,
        };
        transaction.rollback().await.map_err(Error::Database)?;
        return Ok(Begun::Answered(answer));
    }
    Err(Error::StaleSnapshot)
}

/// Refuses a connection that could not keep the promise.
async fn check(engine: &Engine, connection: &mut SqliteConnection) -> Result<(), Error> {
    const BEGINNING: &str = "beginning a transaction on an SQLite file";
    let unfit = |cause: String| Error::Store(store::Error::new(Kind::Unfit, BEGINNING).because(cause));
    let engines = engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
    let other = |pool| Error::OtherStore { engine: engines, pool };
    let setting = sqlx::query(sql::SETTING).bind(StoreId::SETTING).fetch_optional(&mut *connection).await;
    let row = match setting {
        Ok(row) => row,
        // No such table.
        Err(sqlx::Error::Database(error)) if code(&*error) == 1 => return Err(other(None)),
        Err(error) => return Err(Error::Database(error)),
    };
    // Only now: a transaction that was dropped is rolled back by the time of the next statement.
    if connection.is_in_transaction() {
        return Err(unfit(
            "a transaction is open already, whose end would decide instead of this one's".to_owned(),
        ));
    }
    let own = row.and_then(|row| StoreId::from_setting(row.try_get(0).ok()?));
    if own != Some(engines) {
        return Err(other(own));
    }
    let synchronous = sqlx::query("PRAGMA synchronous").fetch_one(&mut *connection).await;
    let synchronous: i64 = synchronous.and_then(|row| row.try_get(0)).map_err(Error::Database)?;
    if synchronous < sql::SYNCHRONOUS_MIN {
        let cause =
            format!("`PRAGMA synchronous` is {synchronous}, so that a commit can be lost; set it to FULL");
        return Err(unfit(cause));
    }
    Ok(())
}

/// Reads, under the file's write lock, what stands under the command's ids.
async fn look(
    connection: &mut SqliteConnection,
    command: &LocalCommand,
) -> Result<(LocalLook, Entries), Error> {
    let asked = command.patience().uptime();
    let now = SystemClock.now();
    let (arbiter_id, moved_to_id) = command.ids();
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
    now: semel_core::time::Time,
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
fn code(error: &(dyn sqlx::error::DatabaseError + 'static)) -> i32 {
    error.code().and_then(|code| code.parse().ok()).unwrap_or(0)
}

impl<'c> Mine<'c> {
    /// What is known of the command.
    pub fn local(&self) -> Local {
        self.local
    }

    /// The transaction's connection, for the command's own statements. Must not be committed or rolled back.
    pub fn connection(&mut self) -> &mut SqliteConnection {
        self.transaction.as_mut().expect("only its end takes it out")
    }

    /// The command took effect: writes its outcome into the transaction, which is still to be [committed](Recorded::commit).
    pub async fn succeed(mut self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let (transaction, command, attempt) = self.taken()?;
        record(transaction, command, attempt, &self.seen, LocalEnding::Succeeded(outcome)).await
    }

    /// The command is refused for good: undoes everything that the transaction has written, and writes the refusal, which is then
    /// to be [committed](Recorded::commit) alone.
    pub async fn refuse(mut self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let (mut transaction, mut command, attempt) = self.taken()?;
        command.rolled_back(attempt);
        // A new transaction, which others may have come before: look again.
        for statement in ["ROLLBACK", "BEGIN IMMEDIATE"] {
            sqlx::query(statement).execute(&mut *transaction).await.map_err(Error::Database)?;
        }
        let (looked, seen) = look(&mut transaction, &command).await?;
        match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                record(transaction, command, attempt, &seen, LocalEnding::Refused(outcome)).await
            }
            // Somebody else was faster.
            _ => Err(Error::StaleSnapshot),
        }
    }

    /// Gives the command up: rolls everything back, and nothing says that it ever ran.
    pub async fn abandon(mut self) -> Result<(), Error> {
        let (transaction, command, attempt) = self.taken()?;
        command.rolled_back(attempt);
        transaction.rollback().await.map_err(Error::Database)
    }

    fn taken(&mut self) -> Result<(Transaction<'c, Sqlite>, LocalCommand, LocalAttempt), Error> {
        match (self.transaction.take(), self.state.take()) {
            (Some(transaction), Some(state)) => {
                let (command, attempt) = *state;
                Ok((transaction, command, attempt))
            }
            _ => Err(Error::Store(store::Error::new(Kind::Unfit, "ending a transaction twice"))),
        }
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let (command, attempt) = *state;
            command.unfinished(&attempt, false);
            command.rolled_back(attempt);
        }
    }
}

/// Writes the ending into the transaction, or rolls it back.
async fn record<'c>(
    mut transaction: Transaction<'c, Sqlite>,
    command: LocalCommand,
    attempt: LocalAttempt,
    seen: &Entries,
    mut ending: LocalEnding,
) -> Result<Recorded<'c>, Error> {
    let error = loop {
        let writes = match command.end(&attempt, ending.clone()) {
            Ok(writes) => writes,
            Err(Unwritable::Stale) => break Error::StaleSnapshot,
            Err(Unwritable::Clock) => break Error::ClockNotTrusted,
            Err(Unwritable::Refused(refusal)) => {
                let error = store::Error::new(Kind::Unfit, "ending a local command");
                break Error::Store(error.because(refusal));
            }
        };
        match write(&mut transaction, &writes, seen).await {
            Ok(()) => return Ok(Recorded { transaction, command, attempt, writes }),
            Err(Error::Store(error)) if error.kind() == Kind::TooLarge => match without_body(ending) {
                Some(without) => ending = without,
                None => break Error::Store(error),
            },
            Err(error) => break error,
        }
    };
    command.rolled_back(attempt);
    // Best effort: dropped, it is rolled back as well.
    drop(transaction.rollback().await);
    Err(error)
}

/// Writes everything that the command's transaction stores.
async fn write(connection: &mut SqliteConnection, writes: &LocalWrites, seen: &Entries) -> Result<(), Error> {
    let RecordWrite { columns, expect } = RecordWrite::of(writes.id, &writes.write)?;
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
    match expect {
        Expect::Absent => insert(connection, columns).await,
        Expect::Unchanged(unchanged) => {
            let state = columns.state;
            let replacing = bound(sql::REPLACE, columns).bind(entry(seen, writes.id)?);
            one_row(replacing.execute(&mut *connection).await)?;
            count(connection, sql::state(unchanged.state), -1).await?;
            count(connection, state, 1).await
        }
    }
}

/// A record's row, and what must stand there. Made before anything is written: it may be too large.
struct RecordWrite {
    columns: RecordColumns,
    expect: Expect,
}

impl RecordWrite {
    fn of(id: CommandId, write: &Write) -> Result<Self, Error> {
        let columns = RecordColumns::of(id, &write.next).map_err(Error::Store)?;
        Ok(Self { columns, expect: write.expect })
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

/// The bytes that were read under an id.
fn entry(seen: &Entries, id: CommandId) -> Result<Vec<u8>, Error> {
    let entry = seen.iter().find(|(seen, _)| *seen == id).and_then(|(_, entry)| entry.clone());
    entry.ok_or(Error::StaleSnapshot)
}

/// Anything but exactly one row is no write of this command's.
fn one_row(done: Result<sqlx::sqlite::SqliteQueryResult, sqlx::Error>) -> Result<(), Error> {
    match done {
        Ok(done) if done.rows_affected() == 1 => Ok(()),
        Ok(_) => Err(Error::StaleSnapshot),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Err(Error::StaleSnapshot),
        Err(error) => Err(Error::Database(error)),
    }
}

impl Recorded<'_> {
    /// Commits, wakes those who wait for the command, and yields what its caller is told.
    ///
    /// A commit of which nobody knows what became is looked into: where the file has it, this is an answer like any other, otherwise
    /// [`Error::CommitInDoubt`].
    pub async fn commit(self) -> Result<Answer, Error> {
        let Self { transaction, command, attempt, writes } = self;
        let (patience, unanswered) = (command.patience(), command.committing(&writes));
        let within: Duration = patience.store_timeout();
        let cause = match patience.within(within, transaction.commit()).await {
            Some(Ok(())) => {
                unanswered.answered();
                return Ok(command.committed(attempt, writes));
            }
            Some(Err(sqlx::Error::Database(error))) if is_not_committed(code(&*error)) => {
                unanswered.answered();
                command.rolled_back(attempt);
                return Err(Error::Database(sqlx::Error::Database(error)));
            }
            Some(Err(error)) => error.into(),
            None => "the disk did not answer in time".into(),
        };
        let operation_id = attempt.local().operation_id;
        if let Ok(look) = command.look().await {
            let is_arbiter = writes.id == command.arbiter();
            let reading = if is_arbiter { Some(&look.arbiter) } else { look.moved_to.as_ref() };
            if writes.landed(reading.map_or(Found::Nothing, Reading::found)) {
                return Ok(command.committed(attempt, writes));
            }
        }
        command.commit_in_doubt(&attempt);
        Err(Error::CommitInDoubt { operation_id, source: cause })
    }
}

/// Whether an error of COMMIT proves that nothing was committed: a constraint, a lock that was not had, a full disk.
fn is_not_committed(code: i32) -> bool {
    const BUSY: i32 = 5;
    const FULL: i32 = 13;
    const CONSTRAINT: i32 = 19;
    matches!(code & 0xff, BUSY | FULL | CONSTRAINT)
}

impl fmt::Debug for Mine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mine").field("local", &self.local).finish_non_exhaustive()
    }
}

impl fmt::Debug for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("local", &self.attempt.local()).finish_non_exhaustive()
    }
}

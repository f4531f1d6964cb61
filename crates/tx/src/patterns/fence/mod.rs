//! A service behind the gateway that refuses overtaken attempts.

#[cfg(feature = "sqlite")]
mod blocking;

use super::connection::{PatternConnection, WorkFuture, remove_chunk};
use super::dialect::Dialect;
use super::error::{PatternError, failed, unsettled};
use super::tables::{Tables, text_of};
use super::transaction::Savepoint;
use super::value::Bind;
use crate::error::BoxError;
use semel_core::id::OperationId;
use std::time::Duration;

const TABLE: &str = "operation_fences";
/// How late an attempt can arrive: TTL (24 h), tombstone (30 days), and a work deadline of up to a day.
const RETENTION: Duration = Duration::from_hours(32 * 24);
/// How long an attempt waits for another one of the same operation.
const WAIT: Duration = Duration::from_secs(2);
/// How often an entry is tried again while its row changes.
const TRIES_MAX: u32 = 5;

/// Why an attempt is refused. Answer with the header `Idempotency-Outcome: unknown`: the attempt itself did
/// nothing, but another one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceRefusal {
    /// A newer attempt has begun.
    Stale {
        /// Its fence.
        newest: u64,
    },
    /// The fence is older than what the guard remembers, so it is unknown whether its operation is done.
    TooOld,
}

impl FenceRefusal {
    /// The header to answer with.
    pub const HEADER: (&'static str, &'static str) = ("Idempotency-Outcome", "unknown");
}

/// The result of [`FenceGuard::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused attempt must not be answered as done"]
pub enum Guarded {
    /// The work ran. Its effect and its result are in the transaction.
    Ran(Vec<u8>),
    /// The operation is done, by this attempt or another. Answer with its result.
    AlreadyDone(Vec<u8>),
    /// Nothing was run.
    Refused(FenceRefusal),
}

/// The result of [`FenceGuard::enter`].
#[derive(Debug)]
pub enum Fenced {
    /// The attempt may run. End it with [`FenceGuard::done`].
    Run(FencePass),
    /// The operation is done. Answer with its result.
    AlreadyDone(Vec<u8>),
    /// Nothing may be run.
    Refused(FenceRefusal),
}

/// The right of an attempt to run.
#[derive(Debug)]
#[must_use = "without `done`, a later attempt runs the operation again"]
pub struct FencePass {
    operation_id: OperationId,
    fence: i64,
}

/// The statements that let an attempt enter, and their binds.
struct EnterStatements {
    insert: String,
    find: String,
    now: String,
    /// For `insert`: the operation, the fence and the retention.
    entered: Vec<Bind>,
    /// For `find`: the operation.
    key_binds: Vec<Bind>,
}

/// The row of an operation that an attempt could not enter.
struct Held {
    is_done: bool,
    fence: i64,
    result: Vec<u8>,
}

impl Held {
    /// Why an attempt with that fence could not enter; `None` if it can now.
    fn objection(self, fence: i64) -> Option<Fenced> {
        if self.is_done {
            return Some(Fenced::AlreadyDone(self.result));
        }
        let newest = self.fence.unsigned_abs();
        (self.fence > fence).then_some(Fenced::Refused(FenceRefusal::Stale { newest }))
    }
}

/// Refuses overtaken attempts, and answers finished operations with their first result, in the service's own
/// transaction.
///
/// The gateway sends `Operation-Id` and `Idempotency-Fence` with every attempt. The ID is the same for all
/// attempts of one command; the fence increases. A paused worker can send its request long after the gateway
/// has given the attempt up and started another: the guard stops it where the effect happens.
///
/// The same in plain SQL, for services in any language, is in the guide's chapter on the fence guard.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, operation_id: &str, fence: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::{FenceGuard, Guarded};
///
/// // From the headers Operation-Id and Idempotency-Fence.
/// let (operation_id, fence) = (operation_id.parse()?, fence.parse()?);
/// let mut transaction = pool.begin().await?;
/// let guarded = FenceGuard::default()
///     .run(&mut *transaction, operation_id, fence, |tx| {
///         Box::pin(async move {
///             sqlx::query("INSERT INTO charges (amount) VALUES (500)").execute(tx).await?;
///             Ok(br#"{"charged":500}"#.to_vec())
///         })
///     })
///     .await?;
/// transaction.commit().await?;
/// match guarded {
///     Guarded::Ran(body) | Guarded::AlreadyDone(body) => println!("201 {}", String::from_utf8_lossy(&body)),
///     Guarded::Refused(_) => println!("409 with Idempotency-Outcome: unknown"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FenceGuard {
    tables: Tables,
    wait: Duration,
    retention: Duration,
}

impl Default for FenceGuard {
    fn default() -> Self {
        Self { tables: Tables::default(), wait: WAIT, retention: RETENTION }
    }
}

impl FenceGuard {
    /// The location of the tables.
    #[must_use]
    pub fn tables(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// How long an attempt waits for another one of the same operation, on PostgreSQL. Default: 2 s. On
    /// SQLite the connection's `busy_timeout` applies.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long operations are remembered: at least the gateway's TTL, tombstone and work deadline together.
    /// An attempt with an older fence is refused. Default: 32 days.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Runs an attempt in the caller's transaction, unless its operation is done or a newer attempt has
    /// begun.
    ///
    /// `work` returns the operation's result from now on, including refusals: its writes, the result and the
    /// fence are committed together. If it fails, all of it is undone, and the transaction is as it was
    /// before.
    pub async fn run<C, W>(
        &self,
        connection: &mut C,
        operation_id: OperationId,
        fence: u64,
        work: W,
    ) -> Result<Guarded, PatternError>
    where
        C: PatternConnection,
        W: for<'c> FnOnce(&'c mut C) -> WorkFuture<'c, Result<Vec<u8>, BoxError>> + Send,
    {
        let fence = checked(fence)?;
        let mut savepoint = Savepoint::begin(connection).await?;
        let guarded = match self.enter_in(&mut *savepoint, operation_id, fence).await {
            Ok(Fenced::Run(pass)) => match work(&mut savepoint).await {
                Ok(result) => match savepoint.verify().await {
                    Ok(()) => {
                        self.done_in(&mut *savepoint, pass, &result).await.map(|()| Guarded::Ran(result))
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(PatternError::Work(error)),
            },
            Ok(Fenced::AlreadyDone(result)) => Ok(Guarded::AlreadyDone(result)),
            Ok(Fenced::Refused(refusal)) => Ok(Guarded::Refused(refusal)),
            Err(error) => Err(error),
        };
        savepoint.close(guarded).await
    }

    /// Begins an attempt. From the commit on, older fences are refused.
    ///
    /// For work that needs two transactions: commit this one, do what takes long, then write the effect and
    /// call [`done`](Self::done) in another. If everything is in one transaction, [`run`](Self::run) does
    /// both. An error leaves the transaction as it was.
    pub async fn enter<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: OperationId,
        fence: u64,
    ) -> Result<Fenced, PatternError> {
        let fence = checked(fence)?;
        let mut savepoint = Savepoint::begin(connection).await?;
        let entered = self.enter_in(&mut *savepoint, operation_id, fence).await;
        savepoint.close(entered).await
    }

    async fn enter_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: OperationId,
        fence: i64,
    ) -> Result<Fenced, PatternError> {
        let statements = self.entering::<C>(&operation_id, fence);
        for _ in 0..TRIES_MAX {
            let (insert, binds) = (statements.insert.clone(), statements.entered.clone());
            if connection.insert_waiting(insert, binds, self.wait).await.map_err(failed::<C>)? == 1 {
                return Ok(Fenced::Run(FencePass { operation_id, fence }));
            }
            if let Some(fenced) = self.look(connection, &statements, fence).await? {
                return Ok(fenced);
            }
        }
        Err(unsettled())
    }

    /// The statements that let an attempt enter, and find why it cannot.
    fn entering<C: Dialect>(&self, operation_id: &OperationId, fence: i64) -> EnterStatements {
        let (fences, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let operation: Bind = text_of(operation_id).into();
        EnterStatements {
            insert: format!(
                "INSERT INTO {fences} AS held (operation_id, fence, is_done, updated_at) SELECT $1, $2, FALSE, {now} \
                 WHERE $2 >= {now} - $3 \
                 ON CONFLICT (operation_id) DO UPDATE SET fence = excluded.fence, updated_at = excluded.updated_at \
                 WHERE NOT held.is_done AND held.fence <= excluded.fence"
            ),
            find: format!("SELECT is_done, fence, result FROM {fences} WHERE operation_id = $1"),
            now: format!("SELECT {now}"),
            entered: vec![operation.clone(), fence.into(), self.retention_ms().into()],
            key_binds: vec![operation],
        }
    }

    /// Why an attempt could not enter; `None` if it can now.
    async fn look<C: PatternConnection>(
        &self,
        connection: &mut C,
        statements: &EnterStatements,
        fence: i64,
    ) -> Result<Option<Fenced>, PatternError> {
        let (find, key_binds) = (statements.find.clone(), statements.key_binds.clone());
        let rows = connection.rows(find, key_binds).await.map_err(failed::<C>)?;
        let read = |row| -> Result<Held, sqlx::Error> {
            Ok(Held {
                is_done: C::boolean(row, 0)? == Some(true),
                fence: C::integer(row, 1)?.unwrap_or_default(),
                result: C::bytes(row, 2)?.unwrap_or_default(),
            })
        };
        let held = rows.first().map(read).transpose().map_err(failed::<C>)?;
        if let Some(objection) = held.and_then(|held| held.objection(fence)) {
            return Ok(Some(objection));
        }
        let rows = connection.rows(statements.now.clone(), Vec::new()).await.map_err(failed::<C>)?;
        let now = rows.first().and_then(|row| C::integer(row, 0).ok().flatten()).unwrap_or(i64::MAX);
        Ok(self.refuse_old(fence, now))
    }

    /// Refuses a fence that is older than what the guard remembers.
    fn refuse_old(&self, fence: i64, now: i64) -> Option<Fenced> {
        let is_too_old = fence < now.saturating_sub(self.retention_ms());
        is_too_old.then_some(Fenced::Refused(FenceRefusal::TooOld))
    }

    /// Stores the operation's result. If another attempt was faster, this is [`PatternError::Overtaken`]:
    /// roll back.
    ///
    /// On PostgreSQL this transaction's commit waits for the disk, and for a synchronous standby, whatever
    /// the session's settings.
    pub async fn done<C: PatternConnection>(
        &self,
        connection: &mut C,
        pass: FencePass,
        result: &[u8],
    ) -> Result<(), PatternError> {
        let mut savepoint = Savepoint::begin(connection).await?;
        let done = self.done_in(&mut *savepoint, pass, result).await;
        savepoint.close(done).await
    }

    async fn done_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        pass: FencePass,
        result: &[u8],
    ) -> Result<(), PatternError> {
        let (sql, binds) = self.finishing::<C>(&pass, result);
        match connection.run_durably(sql, binds).await.map_err(failed::<C>)? {
            1 => Ok(()),
            _ => Err(PatternError::Overtaken),
        }
    }

    /// The statement that stores an operation's result, unless another attempt was faster.
    fn finishing<C: Dialect>(&self, pass: &FencePass, result: &[u8]) -> (String, Vec<Bind>) {
        let (fences, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let sql = format!(
            "UPDATE {fences} SET is_done = TRUE, result = $3, updated_at = {now} \
             WHERE operation_id = $1 AND fence = $2 AND NOT is_done"
        );
        (sql, vec![text_of(&pass.operation_id).into(), pass.fence.into(), result.into()])
    }

    /// Removes up to `chunk` operations that are older than the [retention](Self::retention), in a separate
    /// transaction, and returns their number. Fewer than `chunk` means that there are no more for now.
    pub async fn purge<C: PatternConnection>(
        &self,
        connection: &mut C,
        chunk: u32,
    ) -> Result<u64, PatternError> {
        let (fences, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        // By its fence as well: a removed operation is refused by its age from then on, even if two clocks
        // differ.
        let sql = format!(
            "DELETE FROM {fences} WHERE operation_id IN (SELECT operation_id FROM {fences} \
             WHERE updated_at < {now} - $1 AND fence < {now} - $1 ORDER BY updated_at LIMIT $2 {locked})",
            locked = C::LOCKED
        );
        remove_chunk(connection, sql, vec![Bind::from(self.retention_ms()), i64::from(chunk).into()]).await
    }

    fn retention_ms(&self) -> i64 {
        i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX / 2)
    }
}

fn checked(fence: u64) -> Result<i64, PatternError> {
    i64::try_from(fence).map_err(|_| PatternError::Invalid("the fence is too large".to_owned()))
}

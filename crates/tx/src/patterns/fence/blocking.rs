//! The fence guard on a `rusqlite` connection.

use super::{FenceGuard, FencePass, Fenced, Guarded, Held, TRIES_MAX, checked};
use crate::error::BoxError;
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::Connection;
use semel_core::id::OperationId;
use sqlx::SqliteConnection;

impl FenceGuard {
    /// [`run`](Self::run) on a `rusqlite` connection with an open transaction: in the application's own
    /// transaction, begun with `BEGIN IMMEDIATE`, or in the work of
    /// [`sqlite::transact`](crate::sqlite::transact).
    ///
    /// ```no_run
    /// # fn example(tx: &rusqlite::Connection, operation_id: &str, fence: &str) -> Result<(), semel_tx::BoxError> {
    /// # use semel_tx::sqlite::rusqlite;
    /// use semel_tx::patterns::{FenceGuard, Guarded};
    ///
    /// // From the headers Operation-Id and Idempotency-Fence.
    /// let (operation_id, fence) = (operation_id.parse()?, fence.parse()?);
    /// let guarded = FenceGuard::default().run_blocking(tx, operation_id, fence, |tx| {
    ///     tx.execute("INSERT INTO charges (amount) VALUES (500)", [])?;
    ///     Ok(br#"{"charged":500}"#.to_vec())
    /// })?;
    /// match guarded {
    ///     Guarded::Ran(body) | Guarded::AlreadyDone(body) => println!("201 {}", String::from_utf8_lossy(&body)),
    ///     Guarded::Refused(_) => println!("409 with Idempotency-Outcome: unknown"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_blocking(
        &self,
        connection: &Connection,
        operation_id: OperationId,
        fence: u64,
        work: impl FnOnce(&Connection) -> Result<Vec<u8>, BoxError>,
    ) -> Result<Guarded, PatternError> {
        let fence = checked(fence)?;
        let savepoint = Savepoint::begin(connection)?;
        let on = Statements(connection);
        let guarded = match self.enter_on(on, operation_id, fence) {
            Ok(Fenced::Run(pass)) => match work(connection) {
                Ok(result) => savepoint
                    .verify()
                    .and_then(|()| self.done_on(on, &pass, &result))
                    .map(|()| Guarded::Ran(result)),
                Err(error) => Err(PatternError::Work(error)),
            },
            Ok(Fenced::AlreadyDone(result)) => Ok(Guarded::AlreadyDone(result)),
            Ok(Fenced::Refused(refusal)) => Ok(Guarded::Refused(refusal)),
            Err(error) => Err(error),
        };
        savepoint.close(guarded)
    }

    /// [`enter`](Self::enter) on a `rusqlite` connection with an open transaction.
    pub fn enter_blocking(
        &self,
        connection: &Connection,
        operation_id: OperationId,
        fence: u64,
    ) -> Result<Fenced, PatternError> {
        let fence = checked(fence)?;
        let savepoint = Savepoint::begin(connection)?;
        let entered = self.enter_on(Statements(connection), operation_id, fence);
        savepoint.close(entered)
    }

    /// [`done`](Self::done) on a `rusqlite` connection with an open transaction.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is used up, as by `done`")]
    pub fn done_blocking(
        &self,
        connection: &Connection,
        pass: FencePass,
        result: &[u8],
    ) -> Result<(), PatternError> {
        let savepoint = Savepoint::begin(connection)?;
        let done = self.done_on(Statements(connection), &pass, result);
        savepoint.close(done)
    }

    fn enter_on(
        &self,
        on: Statements<'_>,
        operation_id: OperationId,
        fence: i64,
    ) -> Result<Fenced, PatternError> {
        let statements = self.entering::<SqliteConnection>(&operation_id, fence);
        for _ in 0..TRIES_MAX {
            if on.run(&statements.insert, &statements.entered)? == 1 {
                return Ok(Fenced::Run(FencePass { operation_id, fence }));
            }
            let held = on.row(&statements.find, &statements.key_binds, |row| {
                let result = row.get::<_, Option<_>>(2)?.unwrap_or_default();
                Ok(Held { is_done: row.get(0)?, fence: row.get(1)?, result })
            })?;
            if let Some(objection) = held.and_then(|held| held.objection(fence)) {
                return Ok(objection);
            }
            let now = on.first(&statements.now, &[])?.unwrap_or(i64::MAX);
            if let Some(refusal) = self.refuse_old(fence, now) {
                return Ok(refusal);
            }
        }
        Err(unsettled())
    }

    fn done_on(&self, on: Statements<'_>, pass: &FencePass, result: &[u8]) -> Result<(), PatternError> {
        let (sql, binds) = self.finishing::<SqliteConnection>(pass, result);
        match on.run(&sql, &binds)? {
            1 => Ok(()),
            _ => Err(PatternError::Overtaken),
        }
    }
}

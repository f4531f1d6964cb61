//! Many messages in one transaction.

use super::mark::{Found, MessageKey, compared, mismatch};
use super::{Inbox, InboxAnswer, InboxResult, Message};
use crate::error::BoxError;
use crate::patterns::connection::{PatternConnection, WorkFuture};
use crate::patterns::error::{Fault, PatternError, failed, fault_in};
use crate::patterns::transaction::{OwnTransaction, Savepoint};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thiserror::Error;

/// The largest batch: SQLite binds up to 32,766 values.
const MESSAGES_MAX: usize = 10_000;
/// How often a batch starts again after deadlocks and serialization failures.
const RESTARTS_MAX: u32 = 10;
/// The longest pause before that.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The result of one message of a batch, as that of [`Inbox::once`].
///
/// - A success may be acknowledged: the message has been processed, now or before.
/// - [`PatternError::Mismatch`]: another message with its ID has. Keep it and report it.
/// - Another error, usually [`PatternError::Work`]: it has no mark and no effect. Let the broker deliver it
///   again.
pub type BatchResult = Result<InboxResult<()>, PatternError>;

/// How many savepoints are open in the work of one message: that of the batch, and its own.
const SAVEPOINTS: i64 = 2;

/// How a batch is run. Each mode costs more than the one before, and is used only if that has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As if nothing could fail.
    Plain,
    /// With a savepoint for each message.
    Savepoints,
    /// Also with a check of deferred constraints before the next message.
    Checked,
}

/// The result of one run of a batch.
enum BatchRun {
    Committed(Vec<BatchResult>),
    /// A message failed, and without savepoints all were rolled back.
    Failed,
    /// The commit was refused: a deferred constraint.
    CommitRefused(PatternError),
    /// It conflicted with another transaction.
    Again(PatternError),
}

/// The messages that were marked before, and those that failed.
type MarksAndFailures = (BTreeMap<MessageKey, Vec<u8>>, BTreeMap<MessageKey, BoxError>);

impl Inbox {
    /// Processes a batch of messages, each once, in one separate transaction, and returns one result per
    /// message, in their order, after the commit. No transaction may be open on the connection.
    ///
    /// A failed message does not affect the others: its effect is undone, and its mark is removed before the
    /// commit. On SQLite two failures do affect them: a deferred foreign key that refuses the commit, and an
    /// error that rolls the whole transaction back (`RAISE(ROLLBACK)`). A duplicate in the same batch
    /// succeeds as a duplicate or fails with the first one.
    ///
    /// `work` may run several times for one message before its changes are committed, and must do nothing
    /// outside the transaction. The batch first runs without savepoints. If a message fails, everything is
    /// rolled back and runs again with a savepoint for each message. If PostgreSQL refuses the commit because
    /// of a deferred constraint, the batch runs once more, with a check of deferred constraints after each
    /// message. After a deadlock or a serialization failure the whole batch starts again.
    ///
    /// An error of the call itself means that nothing was processed, except for
    /// [`PatternError::CommitInDoubt`]: then run the same batch again on a new connection. About 500 messages
    /// are a good size.
    ///
    /// After the work of each message the database is asked whether the transaction is still the same. If the
    /// work has ended it, the whole batch fails with [`PatternError::TransactionEnded`].
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlite")]
    /// # async fn example(mut connection: sqlx::SqliteConnection, polled: Vec<(String, Vec<u8>)>) -> Result<(), Box<dyn std::error::Error>> {
    /// use semel_tx::patterns::{Inbox, Message, MessageId, PatternError};
    ///
    /// let messages: Vec<_> =
    ///     polled.into_iter().map(|(id, body)| Message::json("payments", MessageId::new(id)?, body)).collect::<Result<_, _>>()?;
    /// let results = Inbox::new("billing")
    ///     .batch(&mut connection, &messages, |tx, message| {
    ///         Box::pin(async move {
    ///             sqlx::query("INSERT INTO payments (id) VALUES ($1)").bind(message.id().as_str()).execute(tx).await?;
    ///             Ok(())
    ///         })
    ///     })
    ///     .await?;
    /// for (message, result) in messages.iter().zip(results) {
    ///     match result {
    ///         Ok(_) => println!("acknowledge {:?}", message.id()),
    ///         Err(PatternError::Mismatch(_)) => println!("{:?} goes to the dead letters", message.id()),
    ///         Err(error) => println!("{:?} is to come again: {error}", message.id()),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn batch<C, B, W>(
        &self,
        connection: &mut C,
        messages: &[Message<B>],
        work: W,
    ) -> Result<Vec<BatchResult>, PatternError>
    where
        C: PatternConnection,
        B: Sync,
        W: for<'c> Fn(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<(), BoxError>> + Send + Sync,
    {
        if messages.len() > MESSAGES_MAX {
            let reason =
                format!("a batch of {} messages; at most {MESSAGES_MAX} are allowed", messages.len());
            return Err(PatternError::Invalid(reason));
        }
        let (mut mode, mut restarts) = (Mode::Plain, 0);
        loop {
            match self.try_batch(connection, messages, &work, mode).await? {
                BatchRun::Committed(results) => {
                    for (message, result) in messages.iter().zip(&results) {
                        self.observer_slot.answered(&self.group, message, InboxAnswer::of(result));
                    }
                    return Ok(results);
                }
                BatchRun::Failed => mode = Mode::Savepoints,
                BatchRun::CommitRefused(_) if C::CHECKS_DEFERRED && mode != Mode::Checked => {
                    mode = Mode::Checked;
                }
                BatchRun::CommitRefused(error) => return Err(error),
                BatchRun::Again(error) if restarts == RESTARTS_MAX => return Err(error),
                BatchRun::Again(_) => {
                    restarts += 1;
                    let pause = Duration::from_millis(2).saturating_mul(1 << restarts);
                    tokio::time::sleep(pause.min(PAUSE_MAX)).await;
                }
            }
        }
    }

    /// One transaction. It is rolled back unless it is committed.
    async fn try_batch<C, B, W>(
        &self,
        connection: &mut C,
        messages: &[Message<B>],
        work: &W,
        mode: Mode,
    ) -> Result<BatchRun, PatternError>
    where
        C: PatternConnection,
        B: Sync,
        W: for<'c> Fn(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<(), BoxError>> + Send + Sync,
    {
        let mut transaction = match OwnTransaction::begin(connection).await {
            Ok(transaction) => transaction,
            Err(error) => return restart_or_fail(error),
        };
        let (found, failures) = match self.run_all(&mut *transaction, messages, work, mode).await {
            Ok(Some(ran)) => ran,
            Ok(None) => {
                transaction.roll_back().await?;
                return Ok(BatchRun::Failed);
            }
            Err(error) => {
                drop(transaction.roll_back().await);
                return restart_or_fail(error);
            }
        };
        match transaction.commit().await {
            Ok(()) => Ok(BatchRun::Committed(results(messages, &found, failures))),
            Err(error) => match C::fault(&error) {
                Fault::Unknown => Err(PatternError::CommitInDoubt(error.into())),
                Fault::Refused => Ok(BatchRun::CommitRefused(failed::<C>(error))),
                _ => restart_or_fail(failed::<C>(error)),
            },
        }
    }

    /// Everything between the beginning and the commit. `None` if a message failed without a savepoint.
    async fn run_all<C, B, W>(
        &self,
        connection: &mut C,
        messages: &[Message<B>],
        work: &W,
        mode: Mode,
    ) -> Result<Option<MarksAndFailures>, PatternError>
    where
        C: PatternConnection,
        B: Sync,
        W: for<'c> Fn(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<(), BoxError>> + Send + Sync,
    {
        let mut savepoint = Savepoint::begin(connection).await?;
        match self.run_marked(&mut savepoint, messages, work, mode).await {
            Ok(Some(ran)) => savepoint.close(Ok(ran)).await.map(Some),
            Err(PatternError::TransactionEnded) => Err(savepoint.ended().await),
            stopped => {
                savepoint.forget();
                stopped
            }
        }
    }

    /// Marks, runs, and removes the marks of failed messages. `None` if a message failed without a savepoint.
    async fn run_marked<C, B, W>(
        &self,
        savepoint: &mut Savepoint<'_, C>,
        messages: &[Message<B>],
        work: &W,
        mode: Mode,
    ) -> Result<Option<MarksAndFailures>, PatternError>
    where
        C: PatternConnection,
        B: Sync,
        W: for<'c> Fn(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<(), BoxError>> + Send + Sync,
    {
        // In the order of their IDs, so that two batches never deadlock. The first of several duplicates
        // counts.
        let mut keys = BTreeMap::new();
        for message in messages {
            keys.entry(message_key(message)).or_insert_with(|| message.fingerprint.as_bytes().to_vec());
        }
        if keys.is_empty() {
            return Ok(Some((BTreeMap::new(), BTreeMap::new())));
        }
        let mut new: BTreeSet<MessageKey> =
            self.mark_all(&mut **savepoint, &keys).await?.into_iter().collect();
        let old: Vec<MessageKey> = keys.into_keys().filter(|key| !new.contains(key)).collect();
        let olds = old.len();
        let found = self.marked(&mut **savepoint, old).await?;
        if found.len() < olds {
            // The mark that refused this one was purged since.
            return Err(PatternError::Conflict("a mark was removed the moment after it was met".into()));
        }
        let mut failures = BTreeMap::new();
        for message in messages {
            // Once for each ID.
            let key = message_key(message);
            if !new.remove(&key) {
                continue;
            }
            if let Err(error) = run_one(savepoint, message, work, mode).await? {
                if mode == Mode::Plain {
                    return Ok(None);
                }
                failures.insert(key, error);
            }
        }
        self.unmark(&mut **savepoint, failures.keys().cloned().collect()).await?;
        Ok(Some((found, failures)))
    }
}

/// The outer error ends the whole batch: a conflict with another transaction, a transaction that the work has
/// ended, or a broken connection.
async fn run_one<C, B, W>(
    batch: &mut Savepoint<'_, C>,
    message: &Message<B>,
    work: &W,
    mode: Mode,
) -> Result<Result<(), BoxError>, PatternError>
where
    C: PatternConnection,
    B: Sync,
    W: for<'c> Fn(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<(), BoxError>> + Send + Sync,
{
    let done = if mode == Mode::Plain {
        let worked = work(&mut **batch, message).await.map_err(PatternError::Work);
        match (worked, batch.verify().await) {
            (_, Err(PatternError::TransactionEnded)) => Err(PatternError::TransactionEnded),
            (Ok(()), verified) => verified,
            (Err(error), _) => Err(error),
        }
    } else {
        let mut savepoint = Savepoint::begin(&mut **batch).await?;
        let mut worked = work(&mut savepoint, message).await;
        if worked.is_ok() && mode == Mode::Checked {
            worked = savepoint.check_deferred(SAVEPOINTS).await.map_err(Into::into);
        }
        savepoint.close(worked.map_err(PatternError::Work)).await
    };
    match done {
        Ok(()) => Ok(Ok(())),
        Err(PatternError::Work(error)) if fault_in::<C>(&*error) == Some(Fault::Conflict) => {
            Err(PatternError::Conflict(error))
        }
        Err(PatternError::Work(error)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

fn restart_or_fail(error: PatternError) -> Result<BatchRun, PatternError> {
    match error {
        PatternError::Conflict(_) => Ok(BatchRun::Again(error)),
        error => Err(error),
    }
}

fn message_key<B>(message: &Message<B>) -> MessageKey {
    (message.topic.clone(), message.id.as_str().to_owned())
}

/// The work for the first message with the same ID failed. That message's result has the error itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct FirstFailed {
    /// The text of that error.
    pub reason: String,
}

/// One result per message. Duplicates share the result of the first.
fn results<B>(
    messages: &[Message<B>],
    found: &BTreeMap<MessageKey, Vec<u8>>,
    mut failures: BTreeMap<MessageKey, BoxError>,
) -> Vec<BatchResult> {
    let mut firsts: BTreeMap<MessageKey, Result<&Message<B>, FirstFailed>> = BTreeMap::new();
    let mut results = Vec::with_capacity(messages.len());
    for message in messages {
        let key = message_key(message);
        let result = if let Some(marked) = found.get(&key) {
            judged(compared(marked, message))
        } else if let Some(first) = firsts.get(&key) {
            match first {
                Ok(first) => judged(compared(first.fingerprint.as_bytes(), message)),
                Err(failed) => Err(PatternError::Work(Box::new(failed.clone()))),
            }
        } else if let Some(error) = failures.remove(&key) {
            firsts.insert(key, Err(FirstFailed { reason: error.to_string() }));
            Err(PatternError::Work(error))
        } else {
            firsts.insert(key, Ok(message));
            Ok(InboxResult::Processed(()))
        };
        results.push(result);
    }
    results
}

fn judged(found: Found) -> BatchResult {
    match found {
        Found::New => Ok(InboxResult::Processed(())),
        Found::Same => Ok(InboxResult::Duplicate),
        Found::Other => Err(mismatch()),
    }
}

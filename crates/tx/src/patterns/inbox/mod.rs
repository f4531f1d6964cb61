//! Messages that are delivered more than once, processed once.

mod batch;
#[cfg(feature = "sqlite")]
mod blocking;
mod mark;
mod message;
mod observe;

pub use batch::{BatchResult, FirstFailed};
pub use message::{Message, MessageId};
pub use observe::{InboxAnswer, InboxCounts, InboxEvent, InboxObserver};

use super::connection::{PatternConnection, WorkFuture, remove_chunk};
use super::error::PatternError;
use super::tables::Tables;
use super::transaction::Savepoint;
use super::value::Bind;
use crate::error::BoxError;
use mark::{Found, mismatch};
use observe::ObserverSlot;
use semel_core::store::INBOX_WINDOW;
use std::sync::Arc;
use std::time::Duration;

/// How long a duplicate waits for a message that is being processed elsewhere.
const WAIT: Duration = Duration::from_secs(2);

/// The result of a message that may be acknowledged after the commit. That an ID is used twice is an error:
/// [`PatternError::Mismatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxResult<T> {
    /// The work ran. Its effect and the mark are in the transaction.
    Processed(T),
    /// The message was already processed, and nothing was run.
    Duplicate,
}

/// Remembers which messages a consumer group has processed, in the transaction with their effect.
///
/// The mark and the effect are committed together, or neither is. Acknowledge a message to its broker after
/// the commit, never before: after a crash in between, the message is delivered again and the mark recognises
/// it.
///
/// Two messages are the same if group, topic and ID are. Marks are kept for [`window`](Self::window); a later
/// duplicate is processed again. Choose a window longer than the broker can delay a message, including
/// outages and dead-letter queues.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, body: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::{Inbox, Message, MessageId, PatternError};
///
/// let inbox = Inbox::new("billing");
/// let message = Message::json("payments", MessageId::new("evt-1001")?, body)?;
///
/// let mut transaction = pool.begin().await?;
/// let result = inbox
///     .once(&mut *transaction, &message, |tx, _| {
///         Box::pin(async move {
///             sqlx::query("UPDATE accounts SET balance = balance + 5 WHERE id = 7").execute(tx).await?;
///             Ok(())
///         })
///     })
///     .await;
/// match result {
///     Ok(_) => {
///         transaction.commit().await?;
///         // Acknowledge it now: it has been processed, by this call or before.
///     }
///     Err(PatternError::Mismatch(_)) => { /* another message has its ID: move it to the dead letters */ }
///     Err(error) => return Err(error.into()), // The broker delivers it again.
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    group: Arc<str>,
    tables: Tables,
    wait: Duration,
    window: Duration,
    observer_slot: ObserverSlot,
}

impl Inbox {
    /// The inbox of a consumer group.
    pub fn new(group: impl Into<Arc<str>>) -> Self {
        let (group, tables, observer_slot) = (group.into(), Tables::default(), ObserverSlot::default());
        Self { group, tables, wait: WAIT, window: INBOX_WINDOW, observer_slot }
    }

    /// The location of the tables.
    #[must_use]
    pub fn tables(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// How long a duplicate waits for a message that another transaction is processing, on PostgreSQL.
    /// Default: 2 s. On SQLite the connection's `busy_timeout` applies.
    ///
    /// The total wait of a call is limited, even if one holder after another fails: by this, half a second,
    /// and in a batch a millisecond per message.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long processed messages are remembered. Default: 7 days. Only [`purge`](Self::purge) removes them.
    #[must_use]
    pub fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Reports every answer and every purge to `observer`, such as [`InboxCounts`].
    #[must_use]
    pub fn observer(self, observer: impl InboxObserver) -> Self {
        Self { observer_slot: ObserverSlot(Some(Arc::new(observer))), ..self }
    }

    /// Processes a message once, in the caller's transaction.
    ///
    /// The changes of `work` and the mark are in the transaction together; nothing is durable before the
    /// caller commits. If `work` fails, both are undone, and the transaction is as it was before the call: a
    /// failed message leaves no mark.
    ///
    /// If a message with the same ID and another body was processed before, nothing is run, and the error is
    /// [`PatternError::Mismatch`]: an ID is used twice. Keep the message and report it.
    ///
    /// A duplicate of a message that another transaction is processing waits until that ends, and is then a
    /// duplicate, or processed here. After [`wait`](Self::wait) it gets [`PatternError::Busy`]: let the
    /// broker deliver it again.
    pub async fn once<C, B, T, W>(
        &self,
        connection: &mut C,
        message: &Message<B>,
        work: W,
    ) -> Result<InboxResult<T>, PatternError>
    where
        C: PatternConnection,
        B: Sync,
        T: Send,
        W: for<'c> FnOnce(&'c mut C, &'c Message<B>) -> WorkFuture<'c, Result<T, BoxError>> + Send,
    {
        let mut savepoint = Savepoint::begin(connection).await?;
        let processed = match self.mark(&mut *savepoint, message).await {
            Ok(Found::New) => match work(&mut savepoint, message).await {
                Ok(value) => Ok(InboxResult::Processed(value)),
                Err(error) => Err(PatternError::Work(error)),
            },
            Ok(Found::Same) => Ok(InboxResult::Duplicate),
            Ok(Found::Other) => Err(mismatch()),
            Err(error) => Err(error),
        };
        let processed = savepoint.close(processed).await;
        self.watch(message, &processed);
        processed
    }

    fn watch<B, T>(&self, message: &Message<B>, result: &Result<InboxResult<T>, PatternError>) {
        self.observer_slot.answered(&self.group, message, InboxAnswer::of(result));
    }

    /// Removes up to `chunk` messages that were processed longer ago than the [window](Self::window), in a
    /// separate transaction, and returns their number. Fewer than `chunk` means that there are no more for
    /// now. Safe to run on several nodes at once.
    pub async fn purge<C: PatternConnection>(
        &self,
        connection: &mut C,
        chunk: u32,
    ) -> Result<u64, PatternError> {
        let (marks, now) = (C::table(&self.tables, mark::TABLE), C::now(&self.tables));
        let sql = format!(
            "DELETE FROM {marks} WHERE (consumer_group, topic, message_id) IN (SELECT consumer_group, topic, message_id FROM {marks} \
             WHERE consumer_group = $1 AND processed_at < {now} - $2 ORDER BY processed_at LIMIT $3 {locked})",
            locked = C::LOCKED
        );
        let window = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX / 2);
        let binds = vec![Bind::from(&*self.group), window.into(), i64::from(chunk).into()];
        let removed = remove_chunk(connection, sql, binds).await?;
        self.observer_slot.purged(&self.group, removed);
        Ok(removed)
    }
}

//! Messages that are delivered more than once, processed once.

mod batch;
#[cfg(feature = "sqlite")]
mod blocking;
mod mark;
mod message;
mod observe;

pub use batch::BatchResult;
pub use message::{Message, MessageId};
pub use observe::{InboxAnswer, InboxCounts, InboxEvent, InboxObserver};

use super::connection::{PatternConnection, WorkFuture, close, remove_chunk, savepoint};
use super::error::PatternError;
use super::tables::Tables;
use super::value::Bind;
use crate::error::BoxError;
use mark::Found;
use observe::Watched;
use std::sync::Arc;
use std::time::Duration;

/// How long processed messages are remembered.
const WINDOW: Duration = Duration::from_hours(7 * 24);
/// How long a copy of a message that is being processed elsewhere waits for it.
const WAIT: Duration = Duration::from_secs(2);

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxResult<T> {
    /// The work ran. Its effect and the mark are in the transaction.
    Processed(T),
    /// The message was processed before, and nothing was run. Acknowledge it.
    Duplicate,
    /// A message with this id and another body was processed before, and nothing was run. Somebody uses an id twice: keep the message and
    /// report it.
    Mismatch,
}

/// Remembers which messages a consumer group has processed, in the transaction that holds their effect.
///
/// The mark and the effect are committed together, or neither is. Acknowledge a message to its broker after the commit, never before: a crash
/// between the two brings the message again, and the mark recognises it.
///
/// Two messages are the same where group, topic and id are. Marks are kept for [`window`](Self::window); a copy that arrives later is
/// processed again. Choose a window longer than the broker can hold a message back, outages and dead-letter queues included.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, body: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::{Inbox, InboxResult, Message, MessageId};
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
///     .await?;
/// transaction.commit().await?;
/// match result {
///     InboxResult::Processed(()) | InboxResult::Duplicate => { /* acknowledge */ }
///     InboxResult::Mismatch => { /* move it to the dead letters */ }
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
    watched: Watched,
}

impl Inbox {
    /// The inbox of a consumer group.
    pub fn new(group: impl Into<Arc<str>>) -> Self {
        let (group, tables, watched) = (group.into(), Tables::default(), Watched::default());
        Self { group, tables, wait: WAIT, window: WINDOW, watched }
    }

    /// Where the tables are.
    #[must_use]
    pub fn tables(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// How long a copy waits for a message that another transaction is processing, on PostgreSQL. Default: 2 s. On SQLite the
    /// connection's `busy_timeout` decides.
    ///
    /// All waits of a call together are bounded, also where one holder after the other fails: by this, half a second, and in a batch a millisecond
    /// for each message.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long processed messages are remembered. Default: 7 days. Only [`purge`](Self::purge) forgets.
    #[must_use]
    pub fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Reports every answer and every purge to `observer`, such as [`InboxCounts`].
    #[must_use]
    pub fn observer(self, observer: impl InboxObserver) -> Self {
        Self { watched: Watched(Some(Arc::new(observer))), ..self }
    }

    /// Processes a message once, in the caller's transaction.
    ///
    /// Whatever `work` writes and the mark are in the transaction together; nothing is durable before the caller commits. Where `work` fails,
    /// both are undone, and the transaction is what it was before the call: a failed message leaves no mark.
    ///
    /// A copy of a message that another transaction is processing waits for that one to end, and is then a duplicate, or processed here. After
    /// [`wait`](Self::wait) it gets [`PatternError::Busy`]: let the broker deliver it again.
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
        let mut savepoint = savepoint(connection).await?;
        let processed = match self.mark(&mut *savepoint, message).await {
            Ok(Found::New) => match work(&mut savepoint, message).await {
                Ok(value) => Ok(InboxResult::Processed(value)),
                Err(error) => Err(PatternError::Work(error)),
            },
            Ok(Found::Same) => Ok(InboxResult::Duplicate),
            Ok(Found::Other) => Ok(InboxResult::Mismatch),
            Err(error) => Err(error),
        };
        let processed = close::<C, _>(savepoint, processed).await;
        self.watch(message, &processed);
        processed
    }

    fn watch<B, T>(&self, message: &Message<B>, result: &Result<InboxResult<T>, PatternError>) {
        self.watched.answered(&self.group, message, InboxAnswer::of(result));
    }

    /// Forgets up to `chunk` messages that were processed longer ago than the [window](Self::window), in a transaction of its own, and answers
    /// with how many. Fewer than `chunk` means that there are no more for now. Safe to run on several nodes at once.
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
        self.watched.purged(&self.group, removed);
        Ok(removed)
    }
}

//! One connection to the server.

use super::pulse::Pulse;
use super::timeline::Origin;
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Row};

/// How many statements are sent at once on a connection: their answers may be as large as responses.
const CALLS_MAX: usize = 4;

pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One connection. Its driver runs in its own task: dropping a query cancels nothing on the network.
pub(super) struct Session {
    client: Client,
    pub(super) pulse: Arc<Pulse>,
    pub(super) calls: Arc<Semaphore>,
    /// How many warnings the server has sent: a commit may have been acknowledged before its standby had it.
    warnings: Arc<AtomicU64>,
    pub(super) origin: Option<Origin>,
    driver: AbortHandle,
    /// Its other end is dropped with the driver.
    ended: watch::Receiver<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    pub(super) fn drive<S, T>(
        client: Client,
        mut connection: Connection<S, T>,
        pulse: Arc<Pulse>,
        notified: Option<OnNotification>,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let warnings = Arc::<AtomicU64>::default();
        let warned = Arc::clone(&warnings);
        let (alive, ended) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _alive = alive;
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                match message {
                    AsyncMessage::Notification(notification) => {
                        if let Some(notified) = &notified {
                            notified(&notification);
                        }
                    }
                    AsyncMessage::Notice(notice) if is_warning(&notice) => {
                        warned.fetch_add(1, Ordering::AcqRel);
                    }
                    _ => {}
                }
            }
        });
        let (driver, calls) = (driver.abort_handle(), Arc::new(Semaphore::new(CALLS_MAX)));
        Self { client, pulse, calls, warnings, origin: None, driver, ended }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns when the connection ends.
    pub(super) async fn closed(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Runs one unprepared statement. The answer is complete: the server has committed, and is ready for the
    /// next.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query_typed(sql, parameters).await
    }

    /// Runs several statements without an answer.
    pub(super) async fn execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// How many warnings the server has sent. More after a statement than before it: the warning may belong
    /// to that statement.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }
}

/// A server's own language may name the severity in the text.
fn is_warning(notice: &DbError) -> bool {
    notice.parsed_severity().map_or(notice.severity() == "WARNING", |severity| severity == Severity::Warning)
}

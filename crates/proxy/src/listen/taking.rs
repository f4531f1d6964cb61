//! Detects HTTP/2 clients that stop reading. Each stream has a timer, because a client can keep one window shut while
//! the rest goes on. Time counts only while there is something to send.

use crate::wire::{Allowance, Rate};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::listen::taking";

tokio::task_local! {
    /// The current task's stream.
    static STREAM: Arc<SendProgress>;
}

/// How much of its response the client of one stream has read. Only the stream's own task uses it.
#[derive(Debug, Default)]
pub(super) struct SendProgress {
    bytes: AtomicUsize,
    offered: AtomicUsize,
}

impl SendProgress {
    /// The current task's, if the task is a stream.
    pub(super) fn here() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// More bytes are ready for the client.
    pub(super) fn offer(&self, bytes: usize) {
        self.offered.store(bytes, Ordering::Relaxed);
    }

    /// The client has read everything.
    pub(super) fn taken(&self) {
        let bytes = self.offered.swap(0, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether something waits for the client.
    fn is_offered(&self) -> bool {
        self.offered.load(Ordering::Relaxed) > 0
    }

    /// How many bytes it has read since the last call.
    fn take_bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}

/// Runs HTTP/2 streams as tasks, and drops those whose client reads too slowly. The library resets a stream that is
/// dropped before its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streams {
    pub(super) write_timeout: Duration,
    pub(super) rate: Rate,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let taking = Arc::new(SendProgress::default());
        let allowance = Allowance::writing(self.rate, self.write_timeout);
        tokio::spawn(STREAM.scope(Arc::clone(&taking), patiently(stream, taking, allowance)));
    }
}

async fn patiently<F: Future>(stream: F, taking: Arc<SendProgress>, mut allowance: Allowance) {
    let mut stream = pin!(stream);
    let wait = |context: &mut Context<'_>| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let bytes = taking.take_bytes();
        if bytes > 0 || !taking.is_offered() {
            allowance.moved(bytes, true);
        }
        if taking.is_offered() && allowance.poll_waiting(context, true).is_ready() {
            tracing::debug!(target: LOG, "a client reads its stream too slowly; the stream is closed");
            return Poll::Ready(());
        }
        Poll::Pending
    };
    poll_fn(wait).await;
}

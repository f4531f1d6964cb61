//! Detects HTTP/2 clients that stop reading. Each stream has a timer, because a client can keep one window shut while
//! the rest goes on. Time counts only while there is something to send.

use crate::wire::{Allowance, Rate};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

tokio::task_local! {
    /// The stream that this task is.
    static STREAM: Arc<SendProgress>;
}

/// How far the client of one stream has taken its response. Only the stream's own task looks at it.
#[derive(Debug, Default)]
pub(super) struct SendProgress {
    bytes: AtomicUsize,
    offered: AtomicUsize,
}

impl SendProgress {
    /// That of the stream which this task is, where it is one.
    pub(super) fn here() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// That many bytes are there for the client to take.
    pub(super) fn offer(&self, bytes: usize) {
        self.offered.store(bytes, Ordering::Relaxed);
    }

    /// The client took what was there.
    pub(super) fn taken(&self) {
        let bytes = self.offered.swap(0, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether something waits for the client.
    fn is_offered(&self) -> bool {
        self.offered.load(Ordering::Relaxed) > 0
    }

    /// How many bytes it took since this was asked the last time.
    fn take_bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}

/// Runs the streams of HTTP/2, each as a task, and drops those whose client takes too little. The library resets a
/// stream that was dropped before its end.
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
            tracing::debug!("a client reads its stream too slowly; the stream is closed");
            return Poll::Ready(());
        }
        Poll::Pending
    };
    poll_fn(wait).await;
}

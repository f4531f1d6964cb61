//! Whether a client of HTTP/2 takes what it is sent.
//!
//! What lives here: a timer for each stream, since a client can keep one window shut and everything else going. What must
//! never: time counted in which the service has nothing to send.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;

tokio::task_local! {
    /// The stream that this task is.
    static STREAM: Arc<Taking>;
}

/// How far the client of one stream has taken its response. Only the stream's own task looks at it.
#[derive(Debug, Default)]
pub(super) struct Taking {
    pieces: AtomicU64,
    is_offered: AtomicBool,
}

impl Taking {
    /// That of the stream which this task is, where it is one.
    pub(super) fn here() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Something is there for the client to take.
    pub(super) fn offer(&self) {
        self.pieces.fetch_add(1, Ordering::Relaxed);
        self.is_offered.store(true, Ordering::Relaxed);
    }

    /// The client took what was there.
    pub(super) fn taken(&self) {
        self.is_offered.store(false, Ordering::Relaxed);
    }

    /// Which piece waits for the client, if one does.
    fn offered(&self) -> Option<u64> {
        self.is_offered.load(Ordering::Relaxed).then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// Runs the streams of HTTP/2, each as a task, and drops those whose client takes nothing for too long. The library resets a
/// stream that was dropped before its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streams {
    pub(super) patience: Duration,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let taking = Arc::new(Taking::default());
        tokio::spawn(STREAM.scope(Arc::clone(&taking), patiently(stream, taking, self.patience)));
    }
}

async fn patiently<F: Future>(stream: F, taking: Arc<Taking>, patience: Duration) {
    let mut stream = pin!(stream);
    let mut waiting = None;
    let wait = |context: &mut Context<'_>| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(piece) = taking.offered() else {
            waiting = None;
            return Poll::Pending;
        };
        let (_, timer) = match waiting.take() {
            Some((before, timer)) if before == piece => waiting.insert((piece, timer)),
            _ => waiting.insert((piece, Box::pin(sleep(patience)))),
        };
        if timer.as_mut().poll(context).is_ready() {
            tracing::debug!("a stream's client takes nothing: the stream is given up");
            return Poll::Ready(());
        }
        Poll::Pending
    };
    poll_fn(wait).await;
}

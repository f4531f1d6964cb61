//! How long the gateway waits for a response. A slow sender does not extend the timeout of a protected request, and a
//! client that reads slowly does not use up the upstream's time.

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use semel::{Clock as _, SystemClock};
use semel_http::BoxError;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// How late a timer has to be for the process to count as suspended meanwhile. A busy machine can be that late too.
const LATE: Duration = Duration::from_millis(50);
/// How long a process that was suspended reads what arrived meanwhile.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The same if it was not: what has just arrived may be on its way from the connection's task.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// A request's timer. It stops while a streamed body is being uploaded.
pub(super) struct ResponseTimer {
    timeout: Duration,
    /// By the uptime.
    started_at: Duration,
    deadline: Pin<Box<Sleep>>,
    moved: Option<Arc<AtomicBool>>,
}

impl ResponseTimer {
    /// Starts when `request` is handed to a connection.
    pub(super) fn start(
        timeout: Duration,
        request: &mut Request<semel_http::Body>,
        is_protected: bool,
    ) -> Self {
        let (started_at, deadline) = (SystemClock.uptime(), Box::pin(tokio::time::sleep(timeout)));
        if is_protected || request.body().is_end_stream() {
            return Self { timeout, started_at, deadline, moved: None };
        }
        let moved = Arc::new(AtomicBool::new(false));
        let body = std::mem::replace(request.body_mut(), semel_http::Body::from(Bytes::new()));
        *request.body_mut() = semel_http::Body::live(Watched { body, moved: Arc::clone(&moved) });
        Self { timeout, started_at, deadline, moved: Some(moved) }
    }

    /// The result of `answer`, unless the timeout ends first.
    pub(super) async fn wait<T>(&mut self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Some(answer),
                () = &mut self.deadline => {
                    let has_moved = self.moved.as_ref().is_some_and(|moved| moved.swap(false, Ordering::Relaxed));
                    if !has_moved {
                        return None;
                    }
                    self.started_at = SystemClock.uptime();
                    self.deadline.set(tokio::time::sleep(self.timeout));
                }
            }
        }
    }

    /// The result of `answer`, if it had arrived when the timeout ended. The timer of a process that was suspended ends
    /// before the runtime has read the sockets.
    pub(super) async fn arrived<T>(&mut self, answer: impl Future<Output = T>) -> Option<T> {
        let waited = SystemClock.uptime().saturating_sub(self.started_at);
        let span = catch_up(waited, self.timeout);
        self.timeout = waited + span;
        tokio::time::timeout(span, answer).await.ok()
    }

    /// The remaining time, for the response's body.
    pub(super) fn remaining(self) -> Remaining {
        let waited = SystemClock.uptime().saturating_sub(self.started_at);
        let left = match self.timeout.saturating_sub(waited) {
            Duration::ZERO => catch_up(waited, self.timeout),
            left => left,
        };
        Remaining { left, timer: self.deadline, waiting_since: None, has_caught_up: false }
    }
}

/// How long to go on reading after `waited`, if the wait should have ended after `timeout`.
fn catch_up(waited: Duration, timeout: Duration) -> Duration {
    if waited.saturating_sub(timeout) < LATE { LAST_LOOK } else { CATCH_UP }
}

/// How long the rest of a response may take. It runs only while the reader wants more and the upstream has nothing: a
/// client that reads slowly uses up none of it.
pub(super) struct Remaining {
    left: Duration,
    timer: Pin<Box<Sleep>>,
    /// By the uptime.
    waiting_since: Option<Duration>,
    /// Once, so that a slow sender gains nothing.
    has_caught_up: bool,
}

impl Remaining {
    /// The upstream has nothing at the moment. Ready when the time is over.
    pub(super) fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(|| {
            self.timer.set(tokio::time::sleep(self.left));
            SystemClock.uptime()
        });
        ready!(self.timer.as_mut().poll(context));
        if std::mem::replace(&mut self.has_caught_up, true) {
            return Poll::Ready(());
        }
        // What had arrived by now is read, as in `ResponseTimer::arrived`.
        let waited = SystemClock.uptime().saturating_sub(since);
        let span = catch_up(waited, self.left);
        self.left = waited + span;
        self.timer.set(tokio::time::sleep(span));
        self.timer.as_mut().poll(context)
    }

    /// The upstream gave something.
    pub(super) fn pause(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(SystemClock.uptime().saturating_sub(since));
        }
    }
}

/// A body that reports when some of it was read.
struct Watched {
    body: semel_http::Body,
    moved: Arc<AtomicBool>,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.moved.store(true, Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

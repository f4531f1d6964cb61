//! How long a response is waited for.
//!
//! What lives here: the one timer of a request. What must never: a protected request that is waited for longer because it
//! is slow to send.

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use semel_http::BoxError;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// A request's timer. A body that is passed on as the client sends it holds it up: an upload may take its time.
pub(super) struct Patience {
    timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    moved: Option<Arc<AtomicBool>>,
}

impl Patience {
    /// From the moment that `request` is handed to a connection.
    pub(super) fn start(
        timeout: Duration,
        request: &mut Request<semel_http::Body>,
        is_protected: bool,
    ) -> Self {
        let deadline = Box::pin(tokio::time::sleep(timeout));
        if is_protected || request.body().is_end_stream() {
            return Self { timeout, deadline, moved: None };
        }
        let moved = Arc::new(AtomicBool::new(false));
        let body = std::mem::replace(request.body_mut(), semel_http::Body::from(Bytes::new()));
        *request.body_mut() = semel_http::Body::live(Watched { body, moved: Arc::clone(&moved) });
        Self { timeout, deadline, moved: Some(moved) }
    }

    /// What comes of `answer`, unless the time is over first.
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
                    self.deadline.set(tokio::time::sleep(self.timeout));
                }
            }
        }
    }

    /// What is left of it, for the response's body.
    pub(super) fn rest(self) -> Pin<Box<Sleep>> {
        self.deadline
    }
}

/// A body that tells when something of it was taken.
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

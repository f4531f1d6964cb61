//! A request's body as it comes from a client.
//!
//! What lives here: waiting for its next byte within a limit. What must never: time counted in which nobody asks for one; a
//! service that reads slowly is not its client's fault.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use semel_http::TooSlow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// A body that breaks off where its client sends nothing for too long.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    has_ended: bool,
    verdict: Arc<AtomicBool>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, limit: Duration) -> Self {
        Self { incoming, limit, timer: None, has_ended: false, verdict: Arc::default() }
    }

    /// Whether the client was too slow, told wherever the body is by now.
    pub(super) fn verdict(&self) -> impl Fn() -> bool + Send + use<> {
        let verdict = Arc::clone(&self.verdict);
        move || verdict.load(Ordering::Acquire)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = semel_http::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(context) {
            this.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = this.limit;
        ready!(this.timer.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context));
        this.has_ended = true;
        this.verdict.store(true, Ordering::Release);
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

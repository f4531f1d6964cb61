//! A request's body as it comes from a client.
//!
//! What lives here: waiting for its next byte within a limit, and what its client did wrong. What must never: time counted in
//! which nobody asks for a byte; a service that reads slowly is not its client's fault.

use crate::wire::Refusal;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use semel_http::{Malformed, TooSlow};
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// A body that breaks off where its client sends nothing for too long, or what no rule of HTTP allows.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    has_ended: bool,
    fault: Arc<OnceLock<Refusal>>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, limit: Duration) -> Self {
        Self { incoming, limit, timer: None, has_ended: false, fault: Arc::default() }
    }

    /// What the client did wrong, if anything, wherever the body is by now.
    pub(super) fn fault(&self) -> impl Fn() -> Option<Refusal> + Send + use<> {
        let fault = Arc::clone(&self.fault);
        move || fault.get().copied()
    }

    fn end(&mut self, fault: Refusal) {
        self.has_ended = true;
        self.fault.get_or_init(|| fault);
    }
}

/// What the scanner refused, where that is why a body cannot be read on.
fn refused(error: &(dyn Error + 'static)) -> Option<Refusal> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An error of I/O is not among the sources of itself.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return inner.downcast_ref().copied();
        }
        next = error.source();
    }
    None
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
            return Poll::Ready(frame.map(|frame| {
                frame.map_err(|error| {
                    let fault = refused(&error).unwrap_or(Refusal::CutShort);
                    this.end(fault);
                    Malformed(fault.sentence()).into()
                })
            }));
        }
        let limit = this.limit;
        ready!(this.timer.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context));
        this.end(Refusal::BodyTimeout);
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

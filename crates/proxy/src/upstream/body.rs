//! A response's body on its way to the client. A complete body, a broken one and a timed-out one are distinguished.

use super::error_kind::{Counting, UpstreamError};
use super::h2::{Lease, Sending};
use super::pool::PooledConnection;
use super::response_timer::Remaining;
use crate::listen;
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use semel_http::Failure;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::upstream::body";

/// A response's body. Its error is [`Failure::Broken`] if the upstream closed before the end, and
/// [`Failure::TimedOut`] if the end did not come in time. Only waiting for the upstream counts; no time passes while
/// nobody reads.
pub struct Body {
    kind: Kind,
    remaining: Option<Remaining>,
    counting: Option<Counting>,
    /// The slot of its request in the listener: the request runs until its response is complete.
    _slot: Option<listen::Slot>,
}

enum Kind {
    /// There is none, or it has ended, or it broke.
    Over,
    H1(Incoming, PooledConnection),
    H2(Box<Stream>),
}

/// A body over HTTP/2, and what must live as long as it does.
struct Stream {
    incoming: RecvStream,
    left: Option<u64>,
    is_data_over: bool,
    lease: Lease,
    _sending: Sending,
}

impl Body {
    pub(super) fn empty() -> Self {
        Self { kind: Kind::Over, remaining: None, counting: None, _slot: None }
    }

    pub(super) fn h1(incoming: Incoming, lent: PooledConnection, remaining: Option<Remaining>) -> Self {
        let mut body = Self { kind: Kind::H1(incoming, lent), remaining, ..Self::empty() };
        body.settle();
        body
    }

    pub(super) fn h2(
        incoming: RecvStream,
        left: Option<u64>,
        lease: Lease,
        sending: Sending,
        remaining: Option<Remaining>,
    ) -> Self {
        let stream = Stream { incoming, left, is_data_over: false, lease, _sending: sending };
        let mut body = Self { kind: Kind::H2(Box::new(stream)), remaining, ..Self::empty() };
        body.settle();
        body
    }

    /// Reports to `counting` if it does not reach its end.
    pub(super) fn counted(self, counting: Option<Counting>) -> Self {
        Self { counting, ..self }
    }

    /// Keeps its request counted as running.
    pub(super) fn within(self, slot: Option<listen::Slot>) -> Self {
        Self { _slot: slot, ..self }
    }

    /// Returns the connection when nothing more can come.
    fn settle(&mut self) {
        let is_over = match &self.kind {
            Kind::Over => false,
            Kind::H1(incoming, _) => incoming.is_end_stream(),
            Kind::H2(stream) => stream.incoming.is_end_stream(),
        };
        if is_over {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Kind::H1(_, lent) = std::mem::replace(&mut self.kind, Kind::Over) {
            lent.give_back();
        }
        self.remaining = None;
    }

    /// Nothing is there yet.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let Some(remaining) = &mut self.remaining else { return Poll::Pending };
        ready!(remaining.poll_waiting(context));
        if let Kind::H2(stream) = &self.kind {
            stream.lease.suspect();
        }
        self.fail(Failure::TimedOut, &"the response timeout ended")
    }

    fn fail(
        &mut self,
        failure: Failure,
        cause: &dyn fmt::Display,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        tracing::warn!(target: LOG, %cause, "the upstream's response was cut off");
        self.counting.iter().for_each(|Counting(count)| count(UpstreamError::of_body(failure)));
        self.kind = Kind::Over;
        self.remaining = None;
        Poll::Ready(Some(Err(failure)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let body = self.get_mut();
        let frame = match &mut body.kind {
            Kind::Over => return Poll::Ready(None),
            Kind::H1(incoming, _) => {
                let frame = Pin::new(incoming).poll_frame(context);
                frame.map(|frame| frame.map(|frame| frame.map_err(|error| error.to_string())))
            }
            Kind::H2(stream) => {
                let frame = stream.poll_frame(context);
                frame.map(|frame| frame.map(|frame| frame.map_err(|error| error.to_string())))
            }
        };
        let Poll::Ready(frame) = frame else { return body.poll_waiting(context) };
        if let Some(remaining) = &mut body.remaining {
            remaining.pause();
        }
        match frame {
            Some(Ok(frame)) => {
                body.settle();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(cause)) => body.fail(Failure::Broken, &cause),
            None => {
                body.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Over => SizeHint::with_exact(0),
            Kind::H1(incoming, _) => incoming.size_hint(),
            Kind::H2(stream) => stream.left.map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}

impl Stream {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ::h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.incoming.poll_data(context)) {
                Some(Ok(data)) => {
                    // As much window again; this fails only if the stream is over.
                    let _ = self.incoming.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // The upstream wants no more of the request; if the response is complete by its length, that is fine.
                Some(Err(error)) if self.left == Some(0) && error.reason() == Some(Reason::NO_ERROR) => {
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        match ready!(self.incoming.poll_trailers(context)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

/// How it is read, never its content.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Over => "Body(over)",
            Kind::H1(..) => "Body(HTTP/1)",
            Kind::H2(..) => "Body(HTTP/2)",
        })
    }
}

//! Bodies: read completely within a limit, or streamed.
//!
//! Bytes are never changed, and no body is kept beyond its limit.

mod clean;
mod read;
mod watched;

pub(crate) use clean::Clean;
pub(crate) use read::{Read, ReadResponse, UnstoredReason, read, read_response};
pub(crate) use watched::{End, Watch, Watched};

use crate::memory::{BodyMemory, BudgetExhausted, ResponseMemory, WaitingBytes};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Any error of a body or a service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of requests to the inner service and of responses to clients: complete bytes, or a stream.
pub struct Body(Kind);

enum Kind {
    Complete(CompleteBody),
    /// A complete response, counted until its client has read it.
    WaitingBytes(WaitingBytes, Option<HeaderMap>),
    Live(Live),
}

/// A streamed body.
struct Live {
    /// What has arrived already.
    received: WaitingBytes,
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// What to remove from its trailers.
    clean: Option<Clean>,
}

/// A complete body.
#[derive(Clone, Default)]
pub(crate) struct CompleteBody {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Its share of the memory.
    pub(crate) memory: Option<Arc<BodyMemory>>,
}

impl Body {
    /// A streamed body.
    pub fn live<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::resumed(Bytes::new().into(), body)
    }

    /// The same with cleaned trailers.
    pub(crate) fn cleaned(mut self, clean: Clean) -> Self {
        match &mut self.0 {
            Kind::Complete(complete) => complete.clean(clean),
            Kind::WaitingBytes(_, trailers) => clean_trailers(trailers, clean),
            Kind::Live(live) => live.clean = Some(clean),
        }
        self
    }

    pub(crate) fn complete(complete: CompleteBody) -> Self {
        Self(Kind::Complete(complete))
    }

    /// A complete response, counted in `memory`.
    pub(crate) fn held(
        CompleteBody { data, trailers, .. }: CompleteBody,
        mut memory: ResponseMemory,
    ) -> Self {
        memory.shrink_to(data.len());
        Self(Kind::WaitingBytes(WaitingBytes::counted([data], memory, true), trailers))
    }

    /// The same, counted in `memory` until its client has read it. A streamed body is not counted. Fails if there is
    /// no memory for it.
    pub(crate) fn held_in(self, mut memory: ResponseMemory) -> Result<Self, BudgetExhausted> {
        let Kind::Complete(complete) = self.0 else { return Ok(self) };
        memory.try_grow_to(complete.data.len())?;
        Ok(Self::held(complete, memory))
    }

    /// The bytes of a complete body.
    pub(crate) fn data(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Complete(complete) => Some(complete.data.clone()),
            Kind::WaitingBytes(held, _) => held.data(),
            Kind::Live(_) => None,
        }
    }

    fn resumed<B>(received: WaitingBytes, rest: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Live(Live { received, rest: rest.map_err(Into::into).boxed_unsync(), clean: None }))
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        Self::complete(CompleteBody { data, ..CompleteBody::default() })
    }
}

impl CompleteBody {
    /// Cleans its trailers.
    pub(crate) fn clean(&mut self, clean: Clean) {
        clean_trailers(&mut self.trailers, clean);
    }
}

fn clean_trailers(trailers: &mut Option<HeaderMap>, clean: Clean) {
    if let Some(trailers) = trailers {
        clean.strip(trailers);
    }
    trailers.take_if(|trailers| trailers.is_empty());
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = match &mut self.0 {
            Kind::Complete(CompleteBody { data, .. }) => (!data.is_empty()).then(|| Ok(std::mem::take(data))),
            Kind::WaitingBytes(held, _) => held.next_piece(),
            Kind::Live(Live { received, .. }) => received.next_piece(),
        };
        if let Some(piece) = piece {
            return Poll::Ready(Some(piece.map(Frame::data).map_err(Into::into)));
        }
        let trailers = match &mut self.0 {
            Kind::Live(Live { rest, clean, .. }) => {
                let frame = ready!(Pin::new(rest).poll_frame(context));
                return Poll::Ready(match (frame, clean) {
                    (Some(Ok(frame)), Some(clean)) => clean.frame(frame).map(Ok),
                    (frame, _) => frame,
                });
            }
            Kind::Complete(CompleteBody { trailers, .. }) | Kind::WaitingBytes(_, trailers) => trailers,
        };
        Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Complete(CompleteBody { data, trailers, .. }) => data.is_empty() && trailers.is_none(),
            Kind::WaitingBytes(held, trailers) => held.is_empty() && trailers.is_none(),
            Kind::Live(Live { received, rest, .. }) => received.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Complete(CompleteBody { data, trailers, .. }) => {
                complete_hint(data.len(), trailers.is_some())
            }
            Kind::WaitingBytes(held, trailers) => complete_hint(held.len(), trailers.is_some()),
            Kind::Live(Live { received, rest, .. }) => {
                let (rest, received) = (rest.size_hint(), received.len() as u64);
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(received));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(received));
                }
                hint
            }
        }
    }
}

fn complete_hint(bytes: usize, has_trailers: bool) -> SizeHint {
    if !has_trailers {
        return SizeHint::with_exact(bytes as u64);
    }
    // With a length, HTTP/1 would end the message before its trailers.
    let mut hint = SizeHint::new();
    hint.set_lower(bytes as u64);
    hint
}

/// Shows the length, never the content.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Complete(complete) => write!(f, "Body({} bytes)", complete.data.len()),
            Kind::WaitingBytes(held, _) => write!(f, "Body({} bytes)", held.len()),
            Kind::Live(_) => f.write_str("Body(live)"),
        }
    }
}

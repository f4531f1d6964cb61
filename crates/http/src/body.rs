//! Bodies: read completely within a limit, or streamed.
//!
//! Bytes are never changed, and no body is kept beyond its limit.

use crate::clean::Clean;
use crate::response_room::{self, ResponseMemory};
use crate::room::{BodyMemory, NoRoom};
use crate::waiting_bytes::WaitingBytes;
use bytes::{Bytes, BytesMut};
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

/// The result of reading a body.
pub(crate) enum Read {
    Complete(CompleteBody),
    /// It is longer than allowed.
    Over,
    /// It failed, did not end in time, or got no memory.
    Broken(BoxError),
}

/// The result of reading a response.
pub(crate) enum ReadResponse {
    /// Complete, with memory for a second copy, which is stored.
    Complete(CompleteBody, ResponseMemory),
    /// It is too long to store, or got no memory. The body is complete, except for trailers that only Semel may send.
    Over(Body, Why),
    /// It failed.
    Broken(BoxError),
}

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is too long to store, or may be endless.
    TooLong,
    /// There was no memory for it.
    NoRoom,
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
    pub(crate) fn held_in(self, mut memory: ResponseMemory) -> Result<Self, NoRoom> {
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

/// Reads `body` completely, unless it is longer than `max` bytes, or does not fit in `memory`.
pub(crate) async fn read<B>(body: B, max: usize, mut memory: Option<BodyMemory>) -> Read
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut received = Received::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        let frame = match &memory {
            None => body.frame().await,
            Some(memory) => tokio::select! {
                biased;
                () = memory.revoked() => return Read::Broken(NoRoom.into()),
                frame = body.frame() => frame,
            },
        };
        let Some(frame) = frame.map(|frame| frame.map_err(Into::into)) else { break };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Read::Broken(error),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                if let Some(memory) = &mut memory
                    && let Err(no_room) = memory.grow_to(received.len() + data.len()).await
                {
                    return Read::Broken(no_room.into());
                }
                received.push(data, 0);
                if received.len() > max {
                    return Read::Over;
                }
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        // If its length is known, do not wait for its end.
        if body.is_end_stream() {
            break;
        }
    }
    if let Some(Err(no_room)) = memory.as_ref().map(BodyMemory::stay) {
        return Read::Broken(no_room.into());
    }
    Read::Complete(CompleteBody { data: received.into_bytes(), trailers, memory: memory.map(Arc::new) })
}

/// Reads the `body` of a response completely, unless it is longer than `max` bytes, or there is no memory for it.
pub(crate) async fn read_response<B>(body: B, max: usize, mut memory: ResponseMemory) -> ReadResponse
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    // If its length is known, reserve memory for all of it in one step: a partial reservation would block memory
    // while it waits.
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let announced = announced.filter(|bytes| *bytes <= max).unwrap_or_default();
    let (mut received, mut capacity, mut patience) = (Received::default(), 0, memory.patience());
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await.map(|frame| frame.map_err(Into::into)) {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return ReadResponse::Broken(error),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                let total = received.len() + data.len();
                if total > capacity {
                    let is_last = body.is_end_stream();
                    capacity = if is_last { total } else { announced.max((2 * total).min(max)).max(total) };
                }
                let why = if total > max {
                    Some(Why::TooLong)
                } else if memory.grow_to(room_for(capacity), &mut patience).await.is_err() {
                    Some(Why::NoRoom)
                } else {
                    None
                };
                if let Some(why) = why {
                    memory.shrink_to(received.len());
                    let held = WaitingBytes::counted([received.into_bytes(), data], memory, false);
                    return ReadResponse::Over(Body::resumed(held, body).cleaned(Clean::All), why);
                }
                received.push(data, capacity);
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        if body.is_end_stream() {
            break;
        }
    }
    ReadResponse::Complete(CompleteBody { data: received.into_bytes(), trailers, memory: None }, memory)
}

/// The memory for a response of this length: twice its length, because of the stored copy, beyond what every request
/// has.
fn room_for(bytes: usize) -> usize {
    if bytes <= response_room::FIRST_BYTES { bytes } else { bytes.saturating_mul(2) }
}

impl CompleteBody {
    /// Cleans its trailers.
    pub(crate) fn clean(&mut self, clean: Clean) {
        clean_trailers(&mut self.trailers, clean);
    }
}

fn clean_trailers(trailers: &mut Option<HeaderMap>, clean: Clean) {
    if let Some(trailers) = trailers {
        clean.from(trailers);
    }
    trailers.take_if(|trailers| trailers.is_empty());
}

/// The bytes so far. A body of one piece is not copied.
#[derive(Default)]
struct Received {
    first: Bytes,
    joined: BytesMut,
}

impl Received {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// `capacity`: the expected length, if known.
    fn push(&mut self, data: Bytes, capacity: usize) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        self.joined.reserve(capacity.saturating_sub(self.joined.len()).max(data.len()));
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
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

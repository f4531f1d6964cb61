//! Bodies: read completely within a limit, or streamed.
//!
//! Contents: the body type of this crate. Bytes are never changed, and no body is kept beyond its limit.

use crate::clean::Clean;
use crate::response_room::{self, ResponsePlace};
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
    Whole(Whole),
    /// A complete response, counted until its client has read it.
    WaitingBytes(WaitingBytes, Option<HeaderMap>),
    Live(Live),
}

/// A streamed body.
struct Live {
    /// What has arrived already.
    came: WaitingBytes,
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// What to remove from its trailers.
    clean: Option<Clean>,
}

/// A complete body.
#[derive(Clone, Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Its share of the memory.
    pub(crate) place: Option<Arc<BodyMemory>>,
}

/// The result of reading a body.
pub(crate) enum Read {
    Whole(Whole),
    /// It is longer than allowed.
    Over,
    /// It failed, did not end in time, or got no memory.
    Broken(BoxError),
}

/// The result of reading a response.
pub(crate) enum ReadResponse {
    /// Complete, with memory for a second copy, which is stored.
    Whole(Whole, ResponsePlace),
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
            Kind::Whole(whole) => whole.clean(clean),
            Kind::WaitingBytes(_, trailers) => clean_trailers(trailers, clean),
            Kind::Live(live) => live.clean = Some(clean),
        }
        self
    }

    pub(crate) fn whole(whole: Whole) -> Self {
        Self(Kind::Whole(whole))
    }

    /// A complete response, counted in `place`.
    pub(crate) fn held(Whole { data, trailers, .. }: Whole, mut place: ResponsePlace) -> Self {
        place.shrink_to(data.len());
        Self(Kind::WaitingBytes(WaitingBytes::counted([data], place, true), trailers))
    }

    /// The same, counted in `place` until its client has read it. A streamed body is not counted. Fails if there is
    /// no memory for it.
    pub(crate) fn held_in(self, mut place: ResponsePlace) -> Result<Self, NoRoom> {
        let Kind::Whole(whole) = self.0 else { return Ok(self) };
        place.try_grow_to(whole.data.len())?;
        Ok(Self::held(whole, place))
    }

    /// The bytes of a complete body.
    pub(crate) fn data(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Whole(whole) => Some(whole.data.clone()),
            Kind::WaitingBytes(held, _) => held.data(),
            Kind::Live(_) => None,
        }
    }

    fn resumed<B>(came: WaitingBytes, rest: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Live(Live { came, rest: rest.map_err(Into::into).boxed_unsync(), clean: None }))
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        Self::whole(Whole { data, ..Whole::default() })
    }
}

/// Reads `body` completely, unless it is longer than `max` bytes, or does not fit in `place`.
pub(crate) async fn read<B>(body: B, max: usize, mut place: Option<BodyMemory>) -> Read
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut came = Received::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        let frame = match &place {
            None => body.frame().await,
            Some(place) => tokio::select! {
                biased;
                () = place.revoked() => return Read::Broken(NoRoom.into()),
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
                if let Some(place) = &mut place
                    && let Err(no_room) = place.grow_to(came.len() + data.len()).await
                {
                    return Read::Broken(no_room.into());
                }
                came.push(data, 0);
                if came.len() > max {
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
    if let Some(Err(no_room)) = place.as_ref().map(BodyMemory::stay) {
        return Read::Broken(no_room.into());
    }
    Read::Whole(Whole { data: came.into_bytes(), trailers, place: place.map(Arc::new) })
}

/// Reads the `body` of a response completely, unless it is longer than `max` bytes, or there is no memory for it.
pub(crate) async fn read_response<B>(body: B, max: usize, mut place: ResponsePlace) -> ReadResponse
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    // If its length is known, reserve memory for all of it in one step: a partial reservation would block memory
    // while it waits.
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let announced = announced.filter(|bytes| *bytes <= max).unwrap_or_default();
    let (mut came, mut capacity, mut patience) = (Received::default(), 0, place.patience());
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await.map(|frame| frame.map_err(Into::into)) {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return ReadResponse::Broken(error),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                let total = came.len() + data.len();
                if total > capacity {
                    let is_last = body.is_end_stream();
                    capacity = if is_last { total } else { announced.max((2 * total).min(max)).max(total) };
                }
                let why = if total > max {
                    Some(Why::TooLong)
                } else if place.grow_to(room_for(capacity), &mut patience).await.is_err() {
                    Some(Why::NoRoom)
                } else {
                    None
                };
                if let Some(why) = why {
                    place.shrink_to(came.len());
                    let held = WaitingBytes::counted([came.into_bytes(), data], place, false);
                    return ReadResponse::Over(Body::resumed(held, body).cleaned(Clean::All), why);
                }
                came.push(data, capacity);
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        if body.is_end_stream() {
            break;
        }
    }
    ReadResponse::Whole(Whole { data: came.into_bytes(), trailers, place: None }, place)
}

/// The memory for a response of this length: twice its length, because of the stored copy, beyond what every request
/// has.
fn room_for(bytes: usize) -> usize {
    if bytes <= response_room::FIRST_BYTES { bytes } else { bytes.saturating_mul(2) }
}

impl Whole {
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
            Kind::Whole(Whole { data, .. }) => (!data.is_empty()).then(|| Ok(std::mem::take(data))),
            Kind::WaitingBytes(held, _) => held.next_piece(),
            Kind::Live(Live { came, .. }) => came.next_piece(),
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
            Kind::Whole(Whole { trailers, .. }) | Kind::WaitingBytes(_, trailers) => trailers,
        };
        Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(Whole { data, trailers, .. }) => data.is_empty() && trailers.is_none(),
            Kind::WaitingBytes(held, trailers) => held.is_empty() && trailers.is_none(),
            Kind::Live(Live { came, rest, .. }) => came.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(Whole { data, trailers, .. }) => whole_hint(data.len(), trailers.is_some()),
            Kind::WaitingBytes(held, trailers) => whole_hint(held.len(), trailers.is_some()),
            Kind::Live(Live { came, rest, .. }) => {
                let (rest, came) = (rest.size_hint(), came.len() as u64);
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(came));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(came));
                }
                hint
            }
        }
    }
}

fn whole_hint(bytes: usize, has_trailers: bool) -> SizeHint {
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
            Kind::Whole(whole) => write!(f, "Body({} bytes)", whole.data.len()),
            Kind::WaitingBytes(held, _) => write!(f, "Body({} bytes)", held.len()),
            Kind::Live(_) => f.write_str("Body(live)"),
        }
    }
}

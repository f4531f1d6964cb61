//! Bodies: read whole within a limit, or passed through live.
//!
//! What lives here: the one body type of this crate. What must never: a byte changed, or a body held beyond its limit.

use crate::clean::Clean;
use crate::room::Place;
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

/// What the inner service gets and the client is sent: bytes that were read before, or a body that still comes.
pub struct Body(Kind);

enum Kind {
    Whole(Whole),
    Live(Live),
}

/// A body that still comes.
struct Live {
    /// What came already.
    came: Bytes,
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// What its trailers must not say.
    clean: Option<Clean>,
}

/// A body that was read to its end.
#[derive(Clone, Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// What it holds of the room that all share.
    pub(crate) place: Option<Arc<Place>>,
}

/// What came of reading a body.
pub(crate) enum Read {
    Whole(Whole),
    /// It is longer than allowed. Nothing of it is lost, but for trailers that only Semel may send.
    Over(Body),
    /// It broke off, did not end in time, or found no room.
    Broken(BoxError),
}

impl Body {
    /// A body that is passed through as it comes.
    pub fn live<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::resumed(Bytes::new(), body)
    }

    /// The same, without what its trailers must not say.
    pub(crate) fn cleaned(mut self, clean: Clean) -> Self {
        match &mut self.0 {
            Kind::Whole(whole) => whole.clean(clean),
            Kind::Live(live) => live.clean = Some(clean),
        }
        self
    }

    pub(crate) fn whole(whole: Whole) -> Self {
        Self(Kind::Whole(whole))
    }

    /// The bytes of a body that was read.
    pub(crate) fn data(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Whole(whole) => Some(whole.data.clone()),
            Kind::Live(_) => None,
        }
    }

    fn resumed<B>(came: Bytes, rest: B) -> Self
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

/// Reads `body` to its end, unless it is longer than `max` bytes, or than there is room for in `place`.
pub(crate) async fn read<B>(body: B, max: usize, mut place: Option<Place>) -> Read
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut came = Came::default();
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await.map(|frame| frame.map_err(Into::into)) {
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
                came.push(data);
                if came.len() > max {
                    return Read::Over(Body::resumed(came.into_bytes(), body).cleaned(Clean::All));
                }
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        // Where its length is known, its end need not be waited for.
        if body.is_end_stream() {
            break;
        }
    }
    Read::Whole(Whole { data: came.into_bytes(), trailers, place: place.map(Arc::new) })
}

impl Whole {
    /// Takes off what its trailers must not say.
    pub(crate) fn clean(&mut self, clean: Clean) {
        if let Some(trailers) = &mut self.trailers {
            clean.from(trailers);
        }
        self.trailers.take_if(|trailers| trailers.is_empty());
    }
}

/// What came so far. A body of one piece is not copied.
#[derive(Default)]
struct Came {
    first: Bytes,
    joined: BytesMut,
}

impl Came {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
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
        let (data, rest) = match &mut self.0 {
            Kind::Whole(Whole { data, .. }) => (data, None),
            Kind::Live(Live { came, rest, clean }) => (came, Some((rest, *clean))),
        };
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))));
        }
        if let Some((rest, clean)) = rest {
            let frame = ready!(Pin::new(rest).poll_frame(context));
            return Poll::Ready(match (frame, clean) {
                (Some(Ok(frame)), Some(clean)) => clean.frame(frame).map(Ok),
                (frame, _) => frame,
            });
        }
        let Kind::Whole(Whole { trailers, .. }) = &mut self.0 else { return Poll::Ready(None) };
        Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(Whole { data, trailers, .. }) => data.is_empty() && trailers.is_none(),
            Kind::Live(Live { came, rest, .. }) => came.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(Whole { data, trailers: None, .. }) => SizeHint::with_exact(data.len() as u64),
            // A length would have HTTP/1 end the message before its trailers.
            Kind::Whole(Whole { data, trailers: Some(_), .. }) => {
                let mut hint = SizeHint::new();
                hint.set_lower(data.len() as u64);
                hint
            }
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

/// How long it is, never what is in it.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(whole) => write!(f, "Body({} bytes)", whole.data.len()),
            Kind::Live(_) => f.write_str("Body(live)"),
        }
    }
}

//! Trailers of bodies that are passed on as they come.
//!
//! What lives here: taking off what only Semel may say. What must never: a byte of the body changed, or held back.

use crate::names;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What trailers are cleaned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clean {
    /// Everything that only Semel may say.
    All,
    /// The word about the effect, which no client ever sees.
    Outcome,
}

impl Clean {
    /// Takes it off headers or trailers.
    pub(crate) fn from(self, headers: &mut HeaderMap) {
        match self {
            Self::All => names::strip(headers),
            Self::Outcome => drop(headers.remove(names::OUTCOME)),
        }
    }
}

/// A body whose trailers are cleaned.
pub(crate) struct Cleaned<B> {
    pub(crate) body: B,
    pub(crate) clean: Clean,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Cleaned<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.clean.from(trailers);
        }
        // What is left of trailers may be nothing: then there are none.
        let is_empty = |frame: &Frame<Bytes>| frame.trailers_ref().is_some_and(HeaderMap::is_empty);
        Poll::Ready(frame.filter(|frame| !frame.as_ref().is_ok_and(is_empty)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

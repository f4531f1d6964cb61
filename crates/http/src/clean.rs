//! What must not be said on the way through.
//!
//! Contents: taking it off headers and trailers. Never here: anything of the service's own taken off.

use crate::names;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// What headers and trailers are cleaned of.
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

    /// A frame without it; `None` if nothing is left of its trailers.
    pub(crate) fn frame(self, mut frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        if let Some(trailers) = frame.trailers_mut() {
            self.from(trailers);
            if trailers.is_empty() {
                return None;
            }
        }
        Some(frame)
    }
}

//! Headers that must not pass through.
//!
//! They are removed from headers and trailers. The service's own headers are never removed.

use crate::names;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// What to remove from headers and trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clean {
    /// Everything that only Semel may set.
    All,
    /// The report about the effect, which clients must not see.
    Outcome,
}

impl Clean {
    /// Removes it from headers or trailers.
    pub(crate) fn strip(self, headers: &mut HeaderMap) {
        match self {
            Self::All => names::strip(headers),
            Self::Outcome => drop(headers.remove(names::OUTCOME)),
        }
    }

    /// A frame without it; `None` if nothing is left of its trailers.
    pub(crate) fn frame(self, mut frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        if let Some(trailers) = frame.trailers_mut() {
            self.strip(trailers);
            if trailers.is_empty() {
                return None;
            }
        }
        Some(frame)
    }
}

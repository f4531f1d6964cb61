//! Reads a body to its end, or up to a limit.

use crate::upstream::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

/// What came of reading a body.
pub(super) enum Read {
    Whole(Bytes),
    /// Longer than allowed; the rest was not taken.
    TooLong,
    /// It broke off, or did not come to its end in time.
    Broken,
}

impl Read {
    /// The bytes, where all of them are there.
    pub(super) fn whole(self) -> Option<Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::TooLong | Self::Broken => None,
        }
    }
}

/// Reads `body` to its end, unless that is after more than `bytes_max`. Takes as long as it takes; whoever asks sets a limit.
pub(super) async fn read(mut body: Body, bytes_max: usize) -> Read {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Read::Broken };
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > bytes_max - read.len() {
            return Read::TooLong;
        }
        read.extend_from_slice(&data);
    }
    Read::Whole(read.freeze())
}

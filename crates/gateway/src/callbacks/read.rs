//! Reads a body to its end, or up to a limit.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use semel_proxy::upstream::Body;

/// The result of reading a body.
pub(super) enum Read {
    Whole(Bytes),
    /// Longer than allowed; the rest was not read.
    TooLong,
    /// It was cut off, or did not end in time.
    Broken,
}

impl Read {
    /// The bytes, if it is complete.
    pub(super) fn complete(self) -> Option<Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::TooLong | Self::Broken => None,
        }
    }
}

/// Reads `body` to its end, or up to `bytes_max`. It has no timeout of its own.
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

//! A request body that is not valid HTTP.
//!
//! A server reports this to the layer, without bytes of the request.

use std::fmt;

/// The client's request body is not valid HTTP: an invalid chunk, or a premature end.
///
/// A server ends a body with this as its error, or as a source of it: the layer then answers 400
/// [`MALFORMED_REQUEST`](crate::Code::Malformed). Clients see the text, so it must not quote the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl Malformed {
    /// The `Malformed` in `error` or its sources.
    pub fn in_cause_of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(|error| error.downcast_ref().copied())
    }
}

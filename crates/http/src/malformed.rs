//! A request's body that is not valid HTTP.
//!
//! Contents: how anyone who serves requests reports that to the layer. Never here: a byte of the request.

use std::fmt;

/// The client's request stopped being valid HTTP in the middle of its body: a broken chunk, or an end before its time.
///
/// Anyone who serves requests ends a body with this as its error, or as a source of it: the layer then answers 400
/// [`MALFORMED_REQUEST`](crate::Code::Malformed). Clients are shown the sentence, so it must quote nothing of the
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl Malformed {
    /// The one that `error` is, or that caused it.
    pub fn in_cause_of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(|error| error.downcast_ref().copied())
    }
}

//! The problems of requests that exceed a limit of the layer.

use super::code::Code;
use super::document::Problem;
use std::time::Duration;

/// When a client should retry if there is no memory. An estimate.
const BUSY_FOR: Duration = Duration::from_secs(1);

impl Problem {
    /// There is no memory for the response.
    pub(crate) fn no_memory_for_response() -> Self {
        let detail = "Too many responses are being sent at the moment, and there was no memory for this one. Nothing was run; \
                      retry later with the same key.";
        Self::new(Code::Busy, detail).retryable_after(BUSY_FOR)
    }

    /// There is no memory for the request's body.
    pub(crate) fn no_memory_for_body() -> Self {
        let detail = "Too many requests are being read at the moment, and there was no memory for the body of this one. Nothing was run; \
                      retry later with the same key.";
        Self::new(Code::Busy, detail).retryable_after(BUSY_FOR)
    }

    /// The request's body is longer than its route allows.
    pub(crate) fn body_too_large(bytes_max: usize) -> Self {
        let detail = format!(
            "Nothing was run. With an idempotency key, a body may have at most {bytes_max} bytes here."
        );
        Self::new(Code::TooLarge, detail)
    }
}

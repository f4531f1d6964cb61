//! How long a response may be that a worker or an operator sends. The limits are those for responses of the upstream: what
//! could not be forwarded from there cannot be replayed from the store either.

use super::problem::Problem;
use http::HeaderMap;
use semel_http::{RouteSettings, Routes};

/// The longest head that a response of the upstream has by default.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How many headers a response of the upstream has at most.
const HEADERS_MAX: usize = 256;

/// Who sends a response to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseAuthor {
    /// A worker, about its own attempt.
    Worker,
    /// An operator, about somebody else's.
    Operator,
}

/// The longest response that is stored for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// All headers, in bytes as they are sent.
    pub head_bytes_max: usize,
    /// How many headers.
    pub headers_max: usize,
    /// The body.
    pub body_bytes_max: usize,
    /// Only status, `Location` and `ETag` are stored.
    pub is_minimal: bool,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            body_bytes_max: RouteSettings::default().response_bytes_max,
            is_minimal: false,
        }
    }
}

impl ResponseLimits {
    /// Those of a record's operation, by the current routes and the upstream's longest head.
    pub fn of(routes: &Routes, operation: &str, head_bytes_max: u32) -> Self {
        Self {
            head_bytes_max: head_bytes_max as usize,
            body_bytes_max: routes.response_bytes_max(operation),
            is_minimal: routes.stores_minimal(operation),
            ..Self::default()
        }
    }

    /// Refuses a response that is too long, and names the limit.
    pub(super) fn check(self, headers: &HeaderMap, body_bytes: usize) -> Result<(), Problem> {
        // Each line has a colon, a space and its end.
        let head_bytes: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        for (found, max, what, setting) in [
            (head_bytes, self.head_bytes_max, "The headers of the response have", ""),
            (
                body_bytes,
                self.body_bytes_max,
                "The body of the response has",
                " (`kept_max` of the operation)",
            ),
        ] {
            if found > max {
                return Err(Problem::invalid(format!(
                    "{what} {found} bytes; at most {max} can be stored and replayed{setting}. Nothing was changed."
                )));
            }
        }
        Ok(())
    }

    /// Refuses too many headers, before they are parsed.
    pub(super) fn check_count(self, headers: usize) -> Result<(), Problem> {
        if headers <= self.headers_max {
            return Ok(());
        }
        let max = self.headers_max;
        Err(Problem::invalid(format!(
            "The response has {headers} headers; at most {max} can be stored and replayed. Nothing was changed."
        )))
    }
}

//! Semel's headers.
//!
//! They are removed from requests and responses. `Idempotency-Key` is the client's own and is not removed.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::core::id::OperationId;

/// The operation ID, on requests to the handler and on every protected response.
pub const OPERATION_ID: HeaderName = HeaderName::from_static("operation-id");
/// The number of the attempt, on requests to the handler.
pub const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
/// The fence, on requests to the handler.
pub const FENCE: HeaderName = HeaderName::from_static("idempotency-fence");
/// The handler's report about its effect, on its response; see [`OutcomeHint`](crate::OutcomeHint).
pub const OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// Marks a replayed response.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Until when a response is replayed.
pub const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// `false` on a response that could not be stored in time.
pub const STORED: HeaderName = HeaderName::from_static("idempotency-stored");
/// How many milliseconds the client still waits, unless a route says otherwise. It is the client's own; the handler gets
/// what is left.
pub const REQUEST_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// The client's key, unless a route says otherwise.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");

const CONTROL: [HeaderName; 7] = [OPERATION_ID, ATTEMPT, FENCE, OUTCOME, REPLAYED, EXPIRES, STORED];

/// Whether only Semel may set this header.
pub(crate) fn is_control(name: &HeaderName) -> bool {
    CONTROL.contains(name)
}

/// Removes headers that only Semel may set, also if they are spelled with underscores: servers that pass headers as
/// variables (CGI, WSGI) treat `Operation-Id` and `Operation_Id` as one name.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in &CONTROL {
        headers.remove(name);
    }
    let is_alias = |name: &&HeaderName| {
        let text = name.as_str();
        text.contains('_') && CONTROL.iter().any(|control| control.as_str() == text.replace('_', "-"))
    };
    let aliases: Vec<HeaderName> = headers.keys().filter(is_alias).cloned().collect();
    for alias in aliases {
        headers.remove(alias);
    }
}

/// An operation id as a header.
pub(crate) fn operation_id(id: OperationId) -> HeaderValue {
    text(id.to_string())
}

/// Our own text as a header value; empty if it is not valid.
pub(crate) fn text(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

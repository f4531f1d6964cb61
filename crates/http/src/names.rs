//! The headers that Semel speaks by.
//!
//! Contents: their names, and taking them off what others send. Never here: `Idempotency-Key`; that one is the
//! client's own and passes.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::core::id::OperationId;

/// The public name of the command, on what is handed on and on every protected response.
pub const OPERATION_ID: HeaderName = HeaderName::from_static("operation-id");
/// Which attempt it is, on what is handed on.
pub const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
/// What a late attempt is stopped by, on what is handed on.
pub const FENCE: HeaderName = HeaderName::from_static("idempotency-fence");
/// What the handler says about its effect, on its response; see [`Steer`](crate::Steer).
pub const OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// That a response is a stored one, given once more.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Until when a response is replayed.
pub const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// `false` on a response that could not be stored in time.
pub const STORED: HeaderName = HeaderName::from_static("idempotency-stored");
/// Where clients put their key, unless a route says otherwise.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");

const CONTROL: [HeaderName; 7] = [OPERATION_ID, ATTEMPT, FENCE, OUTCOME, REPLAYED, EXPIRES, STORED];

/// Whether only Semel itself may say this.
pub(crate) fn is_control(name: &HeaderName) -> bool {
    CONTROL.contains(name)
}

/// Takes off whatever only Semel itself may say; also where it is spelled with underscores, since servers that hand
/// headers on as variables (CGI, WSGI) make one name of `Operation-Id` and `Operation_Id`.
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

/// Text of our own making as a header; what no header can carry is left empty.
pub(crate) fn text(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

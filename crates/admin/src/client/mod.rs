//! Clients of the admin API: over the network to a [running gateway](Remote), or [in this process](InProcess).
//!
//! Both end at the engine, which applies the machine's rules and writes into the history who did what, and why.

mod error;
mod in_process;
mod remote;

pub use error::{AskError, RemoteError, UrlError};
pub use in_process::{InProcess, ResponseLimitsOf, holder_name};
pub use remote::{Remote, Url};

use serde_json::Value;
use std::fmt;

/// The maximum length of a response: a page of records needs a thousandth of it, a stored response at most a third.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A response. Debug output leaves out the document, which may contain stored responses.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// After how many seconds the same request may succeed.
    pub retry_after: Option<u64>,
    /// The document.
    pub document: Value,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// A response from its parts.
fn reply(parts: &http::response::Parts, body: &[u8]) -> Result<Reply, AskError> {
    let status = parts.status.as_u16();
    let document = serde_json::from_slice(body).map_err(|source| AskError::NotJson(status, source))?;
    let retry_after = parts.headers.get(http::header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Reply { status, retry_after, document })
}

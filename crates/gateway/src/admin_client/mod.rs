//! Clients of the admin API: over the network to a [running gateway](Remote), or [in this process](Local) on a store
//! that it opens.
//!
//! Both end at the engine, which applies the machine's rules and writes into the history who did what, and why.

mod local;
mod remote;

pub use local::{Configured, Local};
pub use remote::{Remote, Url};

use crate::bounded_read::FileKind;
use http::Method;
use serde_json::Value;
use std::fmt;

/// The maximum length of a response, the same as of one in a file: a page of records needs a thousandth of it, a stored
/// response at most a third.
const ANSWER_BYTES_MAX: usize = FileKind::Response.limit().bytes_max;

/// The admin API: remote or local.
pub enum AdminClient {
    /// A running gateway.
    Remote(Remote),
    /// A store that was opened here.
    Local(Box<Local>),
}

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

impl AdminClient {
    /// Sends a request. An error if there is no response, or one that cannot be understood.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, String> {
        match self {
            Self::Remote(remote) => remote.ask(method, path, body).await,
            Self::Local(local) => local.ask(method, path, body).await,
        }
    }

    /// Closes the connection to the store, if there is one.
    pub async fn close(self) {
        if let Self::Local(local) = self {
            local.close().await;
        }
    }
}

/// A response from its parts.
fn reply(parts: &http::response::Parts, body: &[u8]) -> Result<Reply, String> {
    let status = parts.status.as_u16();
    let document = serde_json::from_slice(body)
        .map_err(|_| format!("the response ({status}) is not JSON; is this an admin address?"))?;
    let retry_after = parts.headers.get(http::header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Reply { status, retry_after, document })
}

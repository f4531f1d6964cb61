//! The admin API as the command line uses it: of a [running gateway](Remote), or [in this process](Local) on a store that
//! it opens.

mod local;

pub use local::{Configured, Local, LocalError, SealingError};

use http::Method;
use semel_admin::client::{AskError, Remote, Reply};
use serde_json::Value;

/// The admin API: remote or local.
pub enum AdminClient {
    /// A running gateway.
    Remote(Remote),
    /// A store that was opened here.
    Local(Box<Local>),
}

impl AdminClient {
    /// Sends a request. An error if there is no response, or one that cannot be understood.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, AskError> {
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

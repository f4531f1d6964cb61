//! Why a client cannot be made, or gets no response.

use super::remote::{ANSWER_WITHIN, CONNECT_WITHIN};
use http::header::InvalidHeaderValue;
use http::uri::InvalidUri;
use semel_net::client::{AuthoritiesError, ReadError, SendError};
use semel_net::target::TargetError;
use std::io;
use thiserror::Error;

/// Why a text is not an admin address. It may contain a password, so it is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// It begins with neither `http://` nor `https://`.
    #[error("expected http://HOST:PORT or https://HOST:PORT")]
    Scheme,
    /// It contains credentials.
    #[error(
        "the admin address contains credentials, which are not sent: put a token into SEMEL_ADMIN_TOKEN, or into a file for \
         --token-file"
    )]
    Credentials,
    /// It cannot be used for another reason.
    #[error("the admin address cannot be used: {}", .0.reason())]
    Target(#[source] TargetError),
}

/// Why a remote admin API cannot be used. Nothing was sent.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The token does not fit into a header.
    #[error("the token has characters that are not allowed in a header")]
    Token(#[source] InvalidHeaderValue),
    /// No certificate can have the host of this address.
    #[error("the host of {0} is not valid in a certificate")]
    Host(String),
    /// No authorities were given, and the system has none.
    #[error("{}; give --ca FILE", AuthoritiesError::None)]
    NoAuthorities,
    /// The authorities cannot be used.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
}

/// Why there is no response that can be understood. Texts in it are addresses, unless they say otherwise.
#[derive(Debug, Error)]
pub enum AskError {
    /// This path cannot be requested at the address.
    #[error("{0} is not a valid path of {1}")]
    Path(String, String, #[source] InvalidUri),
    /// The request cannot be written.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// There is no connection.
    #[error(
        "{0} cannot be reached: {1}. Is a gateway running there, with --admin? You can also name its store: --store URL"
    )]
    Unreachable(String, #[source] io::Error),
    /// The TLS handshake failed.
    #[error("no TLS with {0}: {1}")]
    Tls(String, #[source] io::Error),
    /// There was no connection in time.
    #[error("{0} cannot be reached: no connection, or no TLS, within {secs} s", secs = CONNECT_WITHIN.as_secs())]
    ConnectTimeout(String),
    /// The connection was closed before the request was sent.
    #[error("{0} closed the connection before the request was sent: {1}")]
    Unsent(String, #[source] SendError),
    /// The connection was closed later. What was asked for may have been done.
    #[error("{0} closed the connection: {1}. The action may or may not have been done")]
    Closed(String, #[source] SendError),
    /// The response ended early, or is too long.
    #[error("the response of {0} cannot be read: {1}")]
    Unreadable(String, #[source] ReadError),
    /// There was no response in time.
    #[error("{0} did not answer within {secs} s", secs = ANSWER_WITHIN.as_secs())]
    Timeout(String),
    /// The response of the API in this process is too long.
    #[error(transparent)]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The response with this status is not JSON.
    #[error("the response ({0}) is not JSON; is this an admin address?")]
    NotJson(u16, #[source] serde_json::Error),
}

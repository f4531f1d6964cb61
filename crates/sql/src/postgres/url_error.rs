//! Why a `postgres:` URL is refused. No error repeats what may be a password.

use super::address::{CONNECTIONS_MAX, SchemaNameError, known_parameters};
use super::tls::TlsError;
use semel_net::parameters::{ParameterError, SecondsError};
use semel_net::password::PasswordError;
use std::error::Error as _;
use thiserror::Error;

const FORM: &str = "write postgres://USER@HOST:PORT/DATABASE?password=env:NAME";

/// Why a URL does not name a store.
#[derive(Debug, Error)]
pub enum UrlError {
    /// It does not begin with two slashes.
    #[error("a postgres URL begins with postgres://; {FORM}")]
    NoAuthority,
    /// A password stands before the host.
    #[error(
        "the postgres URL contains a password, which others could read; remove it and add password=env:NAME (an environment \
         variable) or password=file:PATH"
    )]
    HasPassword,
    /// The driver cannot read it.
    #[error("the postgres URL cannot be read: {}; {FORM}", .0.source().map_or_else(|| .0.to_string(), ToString::to_string))]
    Unreadable(#[source] tokio_postgres::Error),
    /// It names no host.
    #[error("the postgres URL names no host, as in postgres://USER@HOST/DATABASE")]
    NoHost,
    /// It names no user.
    #[error("the postgres URL names no user, as in postgres://USER@HOST/DATABASE")]
    NoUser,
    /// One of its parameters cannot be read.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// There is no parameter of this name.
    #[error("unknown parameter `{0}` in the postgres URL; there are {known}", known = known_parameters())]
    UnknownParameter(String),
    /// The value of `password` does not say where the password is. It is not kept: it may be the password itself.
    #[error("password in the postgres URL is env:NAME or file:PATH, never the password itself")]
    Password,
    /// The value of `sslmode`, which is none of the modes.
    #[error("sslmode is disable, prefer, require, verify-ca or verify-full, not `{0}`")]
    SslMode(String),
    /// The value of `listen`, which names no server.
    #[error("listen is HOST:PORT of the server behind a pooler, or off, not `{0}`")]
    Listen(String),
    /// The schema cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaNameError),
    /// The value of `connections`, which is no number or out of range.
    #[error("connections is a number from 2 to {CONNECTIONS_MAX}, not `{0}`")]
    Connections(String),
    /// The value of `timeout` cannot be used.
    #[error(transparent)]
    Timeout(#[from] SecondsError),
    /// The value of `target_session_attrs`, which is none of those that work.
    #[error("target_session_attrs is read-write or any, not `{0}`")]
    SessionAttributes(String),
}

/// Why a file or variable that the URL names cannot be used.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The password cannot be read.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// TLS cannot be prepared.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

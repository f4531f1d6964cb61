//! Why a `redis:` URL is refused. No error repeats what may be a password.

use semel_net::parameters::{ParameterError, SecondsError};
use semel_net::password::PasswordError;
use semel_net::tls::StoreRootsError;
use thiserror::Error;

const FORM: &str = "write redis://USER@HOST:PORT/DB?password=env:NAME";
const KNOWN: &str = "buckets, connect_timeout, notify, password, prefix, sslrootcert, timeout, wait, waitaof";

/// Why a URL does not name a store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// It does not begin with two slashes.
    #[error("a redis URL begins with redis://; {FORM}")]
    NoAuthority,
    /// A password stands before the host.
    #[error(
        "the redis URL contains a password, which others could read; remove it and add password=env:NAME (an environment \
         variable) or password=file:PATH"
    )]
    HasPassword,
    /// Its user is not text.
    #[error("the user in the redis URL is not UTF-8")]
    User,
    /// One of its hosts, or a port, cannot be read.
    #[error("the hosts of the redis URL cannot be read; {FORM}")]
    Hosts,
    /// Its path is not the number of a database.
    #[error("the database in the redis URL is a number; {FORM}")]
    Database,
    /// It names a user without a password.
    #[error("the redis URL names a user and no password; add password=env:NAME")]
    NoPassword,
    /// It names certificate authorities, and connections are not encrypted.
    #[error("sslrootcert is for encrypted connections: write rediss://")]
    NotEncrypted,
    /// One of its parameters cannot be read.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// There is no parameter of this name.
    #[error("unknown parameter `{0}` in the redis URL; there are {KNOWN}")]
    UnknownParameter(String),
    /// The value of `password` does not say where the password is. It is not kept: it may be the password itself.
    #[error("password in the redis URL is env:NAME or file:PATH, never the password itself")]
    Password,
    /// The prefix cannot be used.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The value of a timeout cannot be used.
    #[error(transparent)]
    Timeout(#[from] SecondsError),
    /// A value that is no number or out of range.
    #[error("{name} is a number from {least} to {most}, not `{value}`")]
    Number {
        /// The parameter's name.
        name: String,
        /// The smallest number.
        least: u16,
        /// The largest number.
        most: u16,
        /// Its value.
        value: String,
    },
    /// A value that is neither `on` nor `off`.
    #[error("{name} is on or off, not `{value}`")]
    OnOrOff {
        /// The parameter's name.
        name: String,
        /// Its value.
        value: String,
    },
}

/// A prefix that the store's keys cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{prefix}` cannot be the prefix of the store's keys; use up to 50 letters, digits, underscores, hyphens and full stops"
)]
pub struct PrefixError {
    /// The prefix.
    pub prefix: String,
}

/// Why a file or variable that the URL names cannot be used.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The password cannot be read.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// There is no authority that the server could be verified with.
    #[error(transparent)]
    Roots(#[from] StoreRootsError),
}

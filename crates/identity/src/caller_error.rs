//! Why a request's caller or tenant cannot be identified.

use std::fmt;

/// Why a request's caller or tenant cannot be identified. Clients see the text, so it never quotes a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerError {
    /// The request has no credential that the rule knows.
    Missing(String),
    /// The request has an invalid credential: an expired token, a duplicate header.
    Rejected(String),
}

impl fmt::Display for CallerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) | Self::Rejected(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CallerError {}

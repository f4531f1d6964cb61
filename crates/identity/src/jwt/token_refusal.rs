//! Why a token is refused, in words for clients. They repeat nothing from the token.

use std::fmt;

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenRefusal {
    /// Longer than any real token.
    TooLong,
    /// Not three parts of base64 with JSON objects in them, each member once.
    Malformed,
    /// `none`, an unknown algorithm, or one that is not accepted from this issuer.
    Algorithm,
    /// The header requires unknown extensions.
    Critical,
    /// No issuer, or an unknown one.
    Issuer,
    /// No key of the issuer has the token's `kid` and fits its algorithm.
    UnknownKey,
    /// The issuer's keys were never fetched, or are too old.
    NoKeys,
    /// The signature is not the issuer's.
    Signature,
    /// Meant for another audience.
    Audience,
    /// Its time is over.
    Expired,
    /// It has no `exp`, or one that is no number.
    NoExpiry,
    /// It is not valid yet, or its `nbf` is not a number.
    NotYetValid,
    /// `sub` is missing or empty.
    Subject,
}

impl fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is too long",
            Self::Malformed => "it is malformed",
            Self::Algorithm => "its algorithm is not accepted",
            Self::Critical => "it needs extensions that are not supported",
            Self::Issuer => "its issuer is not known",
            Self::UnknownKey => "its key is not known (if the key is new, try again later)",
            Self::NoKeys => "its issuer's keys are not available now; try again later",
            Self::Signature => "its signature is not valid",
            Self::Audience => "it is meant for another audience",
            Self::Expired => "it has expired",
            Self::NoExpiry => "it has no valid expiry",
            Self::NotYetValid => "it is not valid yet",
            Self::Subject => "it names no subject",
        })
    }
}

impl std::error::Error for TokenRefusal {}

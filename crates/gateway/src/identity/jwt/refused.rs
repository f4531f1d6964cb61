//! Why a token is refused, in words for clients. They repeat nothing from the token.

use std::fmt;

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Longer than any token needs to be.
    TooLong,
    /// Not three parts of base64 with JSON objects in them, each member once.
    Malformed,
    /// `none`, one that is not known here, or one that this service does not take from this issuer.
    Algorithm,
    /// The header asks for extensions that are not known here.
    Critical,
    /// No issuer, or one that this service does not know.
    Issuer,
    /// No key of the issuer has the token's `kid` and serves its algorithm.
    UnknownKey,
    /// The issuer's keys could not be fetched for so long that they are not believed any more, or not even once.
    NoKeys,
    /// The signature is not the issuer's.
    Signature,
    /// Meant for others.
    Audience,
    /// Its time is over.
    Expired,
    /// It has no `exp`, or one that is no number.
    NoExpiry,
    /// Its time has not come, or its `nbf` is no number.
    NotYetValid,
    /// `sub` is not a text of at least one character.
    Subject,
}

impl fmt::Display for Refused {
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

impl std::error::Error for Refused {}

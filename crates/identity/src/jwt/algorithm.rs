//! Signature algorithms, and the kind of key that each needs. `none` is not one of them, and names are case-sensitive.

use std::fmt;
use std::str::FromStr;

/// How a token is signed (RFC 7518, section 3.1, and RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the RFC's own")]
pub enum Algorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

/// The kind of key that an algorithm needs. A key has one kind, and serves no algorithm of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    /// Every supported algorithm.
    pub const ALL: [Self; 12] = [
        Self::HS256,
        Self::HS384,
        Self::HS512,
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// The asymmetric algorithms: all but `HS…`.
    pub fn asymmetric() -> Vec<Self> {
        Self::ALL.into_iter().filter(|algorithm| !algorithm.is_symmetric()).collect()
    }

    /// Whether a verifier could also sign.
    pub fn is_symmetric(self) -> bool {
        self.kind() == Kind::Secret
    }

    /// The name in a token's header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }

    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::HS256 | Self::HS384 | Self::HS512 => Kind::Secret,
            Self::RS256 | Self::RS384 | Self::RS512 | Self::PS256 | Self::PS384 | Self::PS512 => Kind::Rsa,
            Self::ES256 => Kind::P256,
            Self::ES384 => Kind::P384,
            Self::EdDSA => Kind::Ed25519,
        }
    }

    /// The minimum length of a secret: that of the hash (RFC 7518, section 3.2).
    pub(crate) const fn secret_bytes_min(self) -> usize {
        match self {
            Self::HS256 => 32,
            Self::HS384 => 48,
            Self::HS512 => 64,
            _ => 0,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text does not name a supported algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Algorithm::ALL.map(Algorithm::as_str).join(", ");
        write!(f, "not a supported algorithm; supported are {names}")
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_to_the_letter() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
        }
        for text in
            ["none", "None", "NONE", "nOnE", "", "hs256", "HS256 ", "ES512", "EDDSA", "HS1", "RSA-OAEP"]
        {
            assert_eq!(text.parse::<Algorithm>(), Err(UnknownAlgorithm), "{text}");
        }
    }
}

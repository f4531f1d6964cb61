//! Keys, and the verification of signatures. A key is used only with algorithms of its kind, and never printed.

use super::algorithm::{Algorithm, Kind};
use super::der;
use ring::hmac;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaVerificationAlgorithm, RsaParameters, UnparsedPublicKey};
use rustls::pki_types::pem::{PemObject, SectionKind};
use std::fmt;

/// The minimum size of an RSA key.
pub(super) const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;

/// A key, and restrictions of its use.
#[derive(Clone)]
pub(crate) struct Key {
    /// Its name in tokens. A configured key has no name, and is used whatever name a token gives.
    pub(super) id: Option<String>,
    /// The only algorithm that it is meant for, if its issuer says so.
    pub(super) only: Option<Algorithm>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Secret(Vec<u8>),
    Rsa(PublicKeyComponents<Vec<u8>>),
    /// An uncompressed point.
    Curve(Kind, Vec<u8>),
}

impl Key {
    pub(super) fn secret(bytes: Vec<u8>) -> Self {
        Self::of(Material::Secret(bytes))
    }

    /// From modulus and exponent, big-endian.
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let (n, e) = (without_zeros(modulus), without_zeros(exponent));
        let bits = n.len() * 8 - n.first().map_or(0, |byte| byte.leading_zeros() as usize);
        if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
            return Err(KeyError::RsaBits(bits));
        }
        // With an exponent of 1, everything is a valid signature; ring accepts 3 up to 33 bits.
        let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|byte| byte % 2 == 1);
        if !is_odd(&n) || !is_odd(&e) || e == [1] || e.len() > 5 {
            return Err(KeyError::Malformed);
        }
        Ok(Self::of(Material::Rsa(PublicKeyComponents { n, e })))
    }

    /// From a point's coordinates. Each verification checks that it lies on the curve.
    pub(super) fn curve(kind: Kind, x: &[u8], y: &[u8]) -> Result<Self, KeyError> {
        Self::point(kind, [&[4], x, y].concat())
    }

    /// From an uncompressed point.
    pub(super) fn point(kind: Kind, point: Vec<u8>) -> Result<Self, KeyError> {
        let bytes = match kind {
            Kind::P256 => 65,
            Kind::P384 => 97,
            _ => return Err(KeyError::Malformed),
        };
        if point.len() != bytes || point.first() != Some(&4) {
            return Err(KeyError::Malformed);
        }
        Ok(Self::of(Material::Curve(kind, point)))
    }

    pub(super) fn ed25519(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() != 32 {
            return Err(KeyError::Malformed);
        }
        Ok(Self::of(Material::Curve(Kind::Ed25519, bytes.to_vec())))
    }

    /// The only public key in a PEM text (`-----BEGIN PUBLIC KEY-----`).
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let mut sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem);
        let (kind, content) = sections.next().and_then(Result::ok).ok_or(KeyError::NoPem)?;
        if sections.next().is_some() {
            return Err(KeyError::SeveralInPem);
        }
        match kind {
            SectionKind::PublicKey => der::public_key(&content),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                Err(KeyError::Private)
            }
            _ => Err(KeyError::NoPem),
        }
    }

    fn of(material: Material) -> Self {
        Self { id: None, only: None, material }
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.material {
            Material::Secret(_) => Kind::Secret,
            Material::Rsa(_) => Kind::Rsa,
            Material::Curve(kind, _) => *kind,
        }
    }

    /// Whether this key can make signatures by `algorithm`.
    pub(crate) fn serves(&self, algorithm: Algorithm) -> bool {
        let is_long_enough = match &self.material {
            Material::Secret(secret) => secret.len() >= algorithm.secret_bytes_min(),
            _ => true,
        };
        self.kind() == algorithm.kind() && self.only.is_none_or(|only| only == algorithm) && is_long_enough
    }

    /// Whether this key made the signature by that algorithm. Never for an algorithm that it does not serve.
    pub(super) fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.serves(algorithm) {
            return false;
        }
        match &self.material {
            Material::Secret(secret) => hmac_of(algorithm)
                .is_some_and(|hash| hmac::verify(&hmac::Key::new(hash, secret), message, signature).is_ok()),
            Material::Rsa(key) => {
                rsa_of(algorithm).is_some_and(|parameters| key.verify(parameters, message, signature).is_ok())
            }
            Material::Curve(Kind::Ed25519, point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, signature).is_ok()
            }
            Material::Curve(kind, point) => ecdsa_of(*kind)
                .is_some_and(|ecdsa| UnparsedPublicKey::new(ecdsa, point).verify(message, signature).is_ok()),
        }
    }
}

fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
}

fn hmac_of(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

fn rsa_of(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// The fixed-length form, the only one allowed in tokens: not DER.
fn ecdsa_of(kind: Kind) -> Option<&'static EcdsaVerificationAlgorithm> {
    match kind {
        Kind::P256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
        Kind::P384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
        _ => None,
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.kind())
    }
}

/// A secret that the issuer and this gateway share. Hidden in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The raw bytes: an encoded secret must be decoded before.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no public key in the PEM text.
    NoPem,
    /// There is more than one section in the PEM text.
    SeveralInPem,
    /// A private key where the public one is needed.
    Private,
    /// A kind of key, or a curve, that cannot be used here.
    Unsupported,
    /// The key is damaged.
    Malformed,
    /// An RSA key of that many bits.
    RsaBits(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPem => f.write_str("there is no `-----BEGIN PUBLIC KEY-----` in it"),
            Self::SeveralInPem => f.write_str("it has several sections; keep the one public key"),
            Self::Private => f.write_str(
                "it is a private key; give the public one (openssl pkey -pubout), and keep this one with the issuer",
            ),
            Self::Unsupported => f.write_str("its kind is not RSA, P-256, P-384 or Ed25519"),
            Self::Malformed => f.write_str("it is damaged"),
            Self::RsaBits(bits) => {
                write!(f, "an RSA key must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits; this one has {bits}")
            }
        }
    }
}

impl std::error::Error for KeyError {}

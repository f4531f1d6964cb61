//! The settings of a trusted issuer, with safe defaults, and their check.

use super::algorithm::Algorithm;
use super::key::Secret;
use http::Uri;
use std::path::PathBuf;
use std::time::Duration;

/// The required audience of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// One of these has to be among its `aud`.
    OneOf(Vec<String>),
    /// Any: tokens that the issuer made for other services are accepted too. Only by explicit choice.
    Any,
}

/// The source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A secret that issuer and gateway share, for `HS…`.
    Secret(Secret),
    /// One public key, as PEM.
    Pem(Vec<u8>),
    /// A file with a JSON Web Key Set, checked every five seconds. If it cannot be read any more, the old keys stay in
    /// use and a warning is logged.
    File(PathBuf),
    /// A URL that publishes a JSON Web Key Set.
    Url(Url),
}

/// A URL that publishes a JSON Web Key Set, and how it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `https://…`; `http://` only for this machine. Redirects are not followed.
    pub address: String,
    /// How often the keys are fetched. 5 minutes.
    pub refresh_every: Duration,
    /// The minimum time between two fetches. 10 seconds.
    pub refresh_interval_min: Duration,
    /// How long old keys are used if they cannot be fetched. 24 hours.
    pub stale_max: Duration,
    /// The timeout of a fetch. 5 seconds.
    pub timeout: Duration,
    /// The maximum size of a key set. 256 KiB.
    pub bytes_max: usize,
    /// The certificate authorities (PEM) for the URL; the system's by default.
    pub roots_pem: Option<Vec<u8>>,
}

impl Url {
    /// A URL with the default settings.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            refresh_every: Duration::from_mins(5),
            refresh_interval_min: Duration::from_secs(10),
            stale_max: Duration::from_hours(24),
            timeout: Duration::from_secs(5),
            bytes_max: 256 * 1024,
            roots_pem: None,
        }
    }

    /// The parts of the URL; `None` if it is not valid or contains a user name.
    pub(crate) fn uri(&self) -> Option<Uri> {
        let uri: Uri = self.address.parse().ok()?;
        let authority = uri.authority()?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        (is_known && !authority.as_str().contains('@') && !authority.host().is_empty()).then_some(uri)
    }
}

/// A host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// A trusted issuer, with the conditions for its tokens.
///
/// ```
/// use semel_identity::jwt::{Audience, Issuer, KeySource, Url};
///
/// let keys = KeySource::Url(Url::new("https://id.example/keys"));
/// let audience = Audience::OneOf(vec!["payments".to_owned()]);
/// let issuer = Issuer::new("https://id.example", audience, keys);
/// assert!(issuer.is_expiry_required);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The exact `iss` of its tokens.
    pub name: String,
    /// The required audience.
    pub audience: Audience,
    /// The source of the keys.
    pub keys: KeySource,
    /// The accepted algorithms. By default `HS256` with a secret, otherwise all but `HS…`.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock and ours may differ. 60 seconds.
    pub leeway: Duration,
    /// Whether a token without `exp` is refused; true by default.
    pub is_expiry_required: bool,
}

impl Issuer {
    /// An issuer with the default settings.
    pub fn new(name: impl Into<String>, audience: Audience, keys: KeySource) -> Self {
        let algorithms = match keys {
            KeySource::Secret(_) => vec![Algorithm::HS256],
            _ => Algorithm::asymmetric(),
        };
        let leeway = Duration::from_mins(1);
        Self { name: name.into(), audience, keys, algorithms, leeway, is_expiry_required: true }
    }

    /// Accepts only these algorithms.
    #[must_use]
    pub fn by(mut self, algorithms: impl Into<Vec<Algorithm>>) -> Self {
        self.algorithms = algorithms.into();
        self
    }

    /// Whether there is a single configured key.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.keys, KeySource::Secret(_) | KeySource::Pem(_))
    }
}

//! The settings of a trusted issuer, with safe defaults, and their check.

use super::algorithm::{Algorithm, Kind};
use super::key::{Key, Secret};
use crate::check::IdentityError;
use http::Uri;
use std::net::IpAddr;
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
    pub(super) fn uri(&self) -> Option<Uri> {
        let uri: Uri = self.address.parse().ok()?;
        let authority = uri.authority()?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        (is_known && !authority.as_str().contains('@') && !authority.host().is_empty()).then_some(uri)
    }
}

/// A host without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
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

/// The maximum leeway: with more, an expired token would be as good as a valid one.
const LEEWAY_MAX: Duration = Duration::from_mins(5);

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

    /// Everything that is unsafe about these settings.
    pub(crate) fn check(&self) -> Vec<IdentityError> {
        let mut found = Vec::new();
        if self.name.is_empty() {
            found.push(IdentityError::NoIssuer);
        }
        if let Audience::OneOf(names) = &self.audience
            && (names.is_empty() || names.iter().any(String::is_empty))
        {
            found.push(IdentityError::NoAudience(self.name.clone()));
        }
        if self.leeway > LEEWAY_MAX {
            found.push(IdentityError::Leeway(self.name.clone()));
        }
        if self.algorithms.is_empty() {
            found.push(IdentityError::NoAlgorithm(self.name.clone()));
        }
        match &self.keys {
            KeySource::Secret(secret) => found.extend(self.algorithms.iter().filter_map(|algorithm| {
                let bytes_min = algorithm.secret_bytes_min();
                let issuer = self.name.clone();
                if !algorithm.is_symmetric() {
                    return Some(IdentityError::AlgorithmOfOtherKey { issuer, algorithm: *algorithm });
                }
                (secret.bytes().len() < bytes_min).then_some(IdentityError::ShortSecret {
                    issuer,
                    algorithm: *algorithm,
                    bytes_min,
                })
            })),
            KeySource::Pem(pem) => match Key::from_pem(pem) {
                Ok(key) => self.check_key(&key, &mut found),
                Err(error) => found.push(IdentityError::Key { issuer: self.name.clone(), error }),
            },
            KeySource::File(_) => {}
            KeySource::Url(url) => {
                found.extend(self.others(|algorithm| !algorithm.is_symmetric()));
                self.check_url(url, &mut found);
            }
        }
        found
    }

    /// The algorithms that are not safe, each as a mistake.
    fn others(&self, passes: impl Fn(Algorithm) -> bool) -> Vec<IdentityError> {
        let others = self.algorithms.iter().filter(|algorithm| !passes(**algorithm));
        others
            .map(|algorithm| IdentityError::AlgorithmOfOtherKey {
                issuer: self.name.clone(),
                algorithm: *algorithm,
            })
            .collect()
    }

    /// A single configured key: with `HS…`, a public key would be a secret that everybody knows; and at least one
    /// algorithm must fit.
    fn check_key(&self, key: &Key, found: &mut Vec<IdentityError>) {
        found.extend(self.others(|algorithm| !algorithm.is_symmetric()));
        if key.kind() == Kind::Secret || !self.algorithms.iter().any(|algorithm| key.serves(*algorithm)) {
            found.push(IdentityError::NoAlgorithm(self.name.clone()));
        }
    }

    fn check_url(&self, url: &Url, found: &mut Vec<IdentityError>) {
        let issuer = self.name.clone();
        match url.uri() {
            None => found.push(IdentityError::KeysAddress { issuer }),
            Some(uri)
                if uri.scheme_str() == Some("http") && !is_loopback(bare(uri.host().unwrap_or_default())) =>
            {
                found.push(IdentityError::KeysInTheClear { issuer });
            }
            Some(_) => {}
        }
        if url.refresh_interval_min < Duration::from_secs(1)
            || url.refresh_every < url.refresh_interval_min
            || url.stale_max < url.refresh_every
            || url.timeout.is_zero()
            || url.bytes_max == 0
        {
            found.push(IdentityError::KeysRefresh { issuer: self.name.clone() });
        }
    }

    /// Whether there is a single configured key.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.keys, KeySource::Secret(_) | KeySource::Pem(_))
    }
}

fn is_loopback(host: &str) -> bool {
    let is_address = host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    is_address || host.eq_ignore_ascii_case("localhost")
}

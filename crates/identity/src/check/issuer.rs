//! What is unsafe about the settings of an issuer.

use super::IdentityError;
use crate::jwt::{Algorithm, Audience, Issuer, Key, KeySource, Kind, Url, bare};
use std::net::IpAddr;
use std::time::Duration;

/// The maximum leeway: with more, an expired token would be as good as a valid one.
const LEEWAY_MAX: Duration = Duration::from_mins(5);

impl Issuer {
    /// Everything that is unsafe about these settings.
    pub(super) fn check(&self) -> Vec<IdentityError> {
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
}

fn is_loopback(host: &str) -> bool {
    let is_address = host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    is_address || host.eq_ignore_ascii_case("localhost")
}

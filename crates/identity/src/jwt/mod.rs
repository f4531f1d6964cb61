//! Bearer tokens that prove who is calling (RFC 7519).
//!
//! A token's header is not trusted. The issuer's settings decide which algorithms are allowed, the keys come from the
//! settings or from the issuer, and each key serves only algorithms of its own kind.

mod algorithm;
mod der;
mod fetch;
mod issuer;
mod jwks;
mod key;
mod keys;
mod refresh;
mod token;
mod token_refusal;
mod verify;

#[cfg(test)]
mod vectors;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use issuer::{Audience, Issuer, KeySource, Url};
pub use key::{KeyError, Secret};
pub use token_refusal::TokenRefusal;
pub(super) use verify::{CheckTime, Verified, Verifier, verify};

pub(super) use algorithm::Kind;
pub(super) use issuer::bare;
pub(super) use key::Key;

use super::surroundings::Clock;
use keys::Keys;
use refresh::{KeySetSource, LoadError};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Why the keys of an issuer cannot be used.
pub(super) enum StartError {
    /// The configured key.
    Key(KeyError),
    /// The key set, for this reason.
    NotLoaded(String),
}

/// Ends a task when it is dropped.
pub(super) struct Refreshing(JoinHandle<()>);

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An issuer with its keys loaded, and the task that keeps them fresh.
///
/// A file must contain a usable key now. A URL may be down: its tokens are refused until it answers, and a warning is
/// logged.
pub(super) async fn start(
    issuer: Issuer,
    clock: &Arc<dyn Clock>,
) -> Result<(Verifier, Option<Refreshing>), StartError> {
    let fixed = |issuer, key| (Verifier { issuer, keys: Arc::new(Keys::fixed(key)) }, None);
    let source = match &issuer.keys {
        KeySource::Secret(secret) => {
            let key = Key::secret(secret.bytes().to_vec());
            return Ok(fixed(issuer, key));
        }
        KeySource::Pem(pem) => {
            let key = Key::from_pem(pem).map_err(StartError::Key)?;
            return Ok(fixed(issuer, key));
        }
        KeySource::Url(url) => {
            KeySetSource::url(url.clone()).map_err(|error| StartError::NotLoaded(error.to_string()))?
        }
        KeySource::File(path) => KeySetSource::File(path.clone()),
    };
    let keys = Arc::new(Keys::awaited(source.stale_max()));
    let begun_at = clock.uptime();
    match source.load(&**clock).await {
        Ok(loaded) if loaded.is_empty() && matches!(source, KeySetSource::File(_)) => {
            return Err(StartError::NotLoaded(LoadError::Empty.to_string()));
        }
        Ok(loaded) => keys.replace(loaded, begun_at),
        Err(error) if matches!(source, KeySetSource::File(_)) => {
            return Err(StartError::NotLoaded(error.to_string()));
        }
        Err(error) => {
            tracing::warn!(target: "semel_gateway::identity::jwt", place = %source, %error, "the keys of an issuer cannot be fetched; its tokens are refused until they can");
            keys.want();
        }
    }
    let task = refresh::keep_fresh(Arc::clone(&keys), source, Arc::clone(clock), begun_at);
    Ok((Verifier { issuer, keys }, Some(Refreshing(tokio::spawn(task)))))
}

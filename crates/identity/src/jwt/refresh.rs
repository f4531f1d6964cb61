//! Refreshes an issuer's keys from a file or a URL, at most once per minimum interval. If that fails, the old keys
//! stay in use.

use super::fetch::{FetchError, Fetcher};
use super::issuer::Url;
use super::jwks::{self, KeySetError, KeySetOrigin};
use super::key::Key;
use super::keys::Keys;
use crate::Clock;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a file is checked.
const FILE_EVERY: Duration = Duration::from_secs(5);
const FILE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The source of a key set.
pub(super) enum KeySetSource {
    File(PathBuf),
    Url { url: Box<Url>, fetcher: Box<Fetcher> },
}

/// Why a set could not be loaded.
#[derive(Debug)]
pub(super) enum LoadError {
    Io(io::Error),
    TooLarge,
    Fetch(FetchError),
    Set(KeySetError),
    Empty,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TooLarge => write!(f, "it has more than {FILE_BYTES_MAX} bytes"),
            Self::Fetch(error) => error.fmt(f),
            Self::Set(error) => error.fmt(f),
            Self::Empty => f.write_str("none of its keys can be used here"),
        }
    }
}

impl std::error::Error for LoadError {}

impl KeySetSource {
    pub(super) fn url(url: Url) -> Result<Self, FetchError> {
        let fetcher = Box::new(Fetcher::new(&url)?);
        Ok(Self::Url { url: Box::new(url), fetcher })
    }

    /// How long a set from this source is used.
    pub(super) fn stale_max(&self) -> Option<Duration> {
        match self {
            Self::File(_) => None,
            Self::Url { url, .. } => Some(url.stale_max),
        }
    }

    fn every(&self) -> Duration {
        match self {
            Self::File(_) => FILE_EVERY,
            Self::Url { url, .. } => url.refresh_every,
        }
    }

    fn interval_min(&self) -> Duration {
        match self {
            Self::File(_) => FILE_INTERVAL_MIN,
            Self::Url { url, .. } => url.refresh_interval_min,
        }
    }

    /// The current keys. A set without usable keys is valid too: an issuer may withdraw all of them.
    pub(super) async fn load(&self, clock: &dyn Clock) -> Result<Vec<Key>, LoadError> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read(&path)).await;
                let document = read.map_err(|_| LoadError::Io(io::ErrorKind::Other.into()))??;
                jwks::read(&document, KeySetOrigin::File).map_err(LoadError::Set)
            }
            Self::Url { url, fetcher } => {
                let document = tokio::select! {
                    biased;
                    document = fetcher.fetch() => document,
                    () = clock.sleep(url.timeout) => Err(FetchError::Timeout),
                };
                jwks::read(&document.map_err(LoadError::Fetch)?, KeySetOrigin::Url).map_err(LoadError::Set)
            }
        }
    }
}

impl fmt::Display for KeySetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            // A query may contain secrets, which do not belong in logs.
            Self::Url { url, .. } => url.address.split('?').next().unwrap_or_default().fmt(f),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let file = std::fs::File::open(path).map_err(LoadError::Io)?;
    let mut document = Vec::new();
    let bytes = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut document).map_err(LoadError::Io)?;
    if bytes as u64 > FILE_BYTES_MAX { Err(LoadError::TooLarge) } else { Ok(document) }
}

/// Refreshes the set regularly, and soon if a newer one is requested. The last load began at `begun_at`.
pub(super) async fn keep_fresh(
    keys: Arc<Keys>,
    source: KeySetSource,
    clock: Arc<dyn Clock>,
    mut begun_at: Duration,
) {
    let mut pause = source.every();
    loop {
        tokio::select! {
            () = clock.sleep(pause) => {}
            () = keys.wanted() => {}
        }
        let since = clock.uptime().saturating_sub(begun_at);
        if let Some(rest) = source.interval_min().checked_sub(since).filter(|rest| !rest.is_zero()) {
            clock.sleep(rest).await;
        }
        keys.forget_wishes();
        begun_at = clock.uptime();
        pause = match source.load(&*clock).await {
            Ok(loaded) => {
                keys.replace(loaded, begun_at);
                source.every()
            }
            Err(error) => {
                tracing::warn!(target: "semel_gateway::identity::jwt::refresh", place = %source, %error, "the keys of an issuer cannot be loaded; the old ones stay in use");
                source.interval_min()
            }
        };
    }
}

//! The engine of one call, on the store that it names.

use super::super::cli_error::CliError;
use super::super::{target, user};
use crate::config::StorageSettings;
use crate::serve::{ServeError, storage};
use crate::stores::{OpenError, Url};
use semel::core::store::Store;
use semel::quota::Quotas;
use semel::{BuildError, Engine, secrets};
use semel_admin::client::holder_name;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How long signing off from the store may take, and storing an outcome that it did not accept so far.
const SIGN_OFF_MAX: Duration = Duration::from_secs(30);
/// How long the store may refuse an outcome before the call ends without it.
const FINISH_WAIT: Duration = Duration::from_mins(1);
/// A yearly job on a store of its own finds the time of a year ago. A clock that is wrong by this much cannot bring a
/// key back to life, because tombstones last longer.
const DOWNTIME_MAX: Duration = Duration::from_hours(400 * 24);

/// Why a call has no engine. Nothing was run.
#[derive(Debug, Error)]
pub(super) enum NotOpened {
    #[error("{0} ends with this process, so every call would run the program")]
    InProcess(Url),
    #[error("{0}")]
    Config(CliError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Settings(#[from] ServeError),
    #[error("{url} needs the hashing secret {secret}: give --config with the file of a gateway on it")]
    SecretMissing { url: Url, secret: String },
    #[error("{url} cannot be used: {source}")]
    Unusable { url: Url, source: BuildError },
    #[error("a signal ended this call")]
    Stopped,
}

/// A store in use.
pub(super) struct Opened {
    pub(super) engine: Engine,
    store: Arc<dyn Store>,
}

impl Opened {
    /// Opens the store, and creates it if it does not exist. `file` is the configuration file of gateways on it.
    pub(super) async fn open(url: &Url, file: Option<&Path>) -> Result<Self, NotOpened> {
        if url.backend().is_in_process() {
            return Err(NotOpened::InProcess(url.clone()));
        }
        let config = file.map(target::config_of).transpose().map_err(NotOpened::Config)?;
        let (mut storage, quotas, sealing) = match config {
            Some(config) => (config.storage, config.quotas, config.sealing),
            None => (StorageSettings::default(), Quotas::default(), None),
        };
        let settings = &mut storage.settings;
        // Expired records are removed by nodes that are configured for it.
        settings.sweep.every = Duration::ZERO;
        settings.cache_bytes_max = 0;
        settings.request_timeout = settings.store_timeout;
        settings.finish_wait = settings.finish_wait.max(FINISH_WAIT);
        settings.clock.downtime_max = settings.clock.downtime_max.max(DOWNTIME_MAX);
        storage.archive = None;
        let store = url.open().await?;
        let builder = storage::builder(url, &storage, quotas, sealing, &store)?;
        let engine = builder.name(holder_name(&user::name())).build().await;
        let engine = engine.map_err(|error| match error {
            BuildError::Secrets(secrets::Error::Missing(id)) => {
                NotOpened::SecretMissing { url: url.clone(), secret: id }
            }
            error => NotOpened::Unusable { url: url.clone(), source: error },
        })?;
        Ok(Self { engine, store })
    }

    /// Waits for what is not stored yet, signs off from the store, and closes it.
    pub(super) async fn close(self) {
        self.engine.shutdown(SIGN_OFF_MAX).await;
        drop(self.engine);
        self.store.close().await;
    }
}

//! The store whose file contains the application's tables, after it is known to be the engine's.

use crate::error::Error;
use semel::{Engine, StoreId};
use semel_core::store::Store as _;
use semel_sql::sqlite::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long a statement of the work may take by default.
const LIMIT: Duration = Duration::from_secs(1);
/// The maximum: a change of the hashing secret relies on a commit that follows soon.
const LIMIT_MAX: Duration = Duration::from_secs(2);

/// The engine's own store, for work that writes to its file. Cheap to clone: create one at start.
#[derive(Debug, Clone)]
pub struct Database {
    pub(super) store: Arc<Store>,
    pub(super) limit: Duration,
    checked: Arc<OnceCell<StoreId>>,
}

impl Database {
    /// The store that the engine was built on.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, limit: LIMIT, checked: Arc::default() }
    }

    /// How long the work may run before SQLite interrupts it; at most 2 s. All other writers to the file wait
    /// meanwhile. Default: 1 s.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit: limit.min(LIMIT_MAX), ..self }
    }

    /// Refuses another store than the engine's. It is asked once.
    pub(super) async fn check(&self, engine: &Engine) -> Result<(), Error> {
        let engines = engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
        let store_id = self.checked.get_or_try_init(|| self.ask(engines)).await?;
        if *store_id == engines {
            return Ok(());
        }
        Err(Error::OtherStore { engine: engines, pool: Some(*store_id) })
    }

    async fn ask(&self, engine: StoreId) -> Result<StoreId, Error> {
        let settings = self.store.settings().await.map_err(Error::Store)?;
        let setting = settings.into_iter().find(|(name, _)| name == StoreId::SETTING);
        let store_id = setting.and_then(|(_, value)| StoreId::from_setting(&value));
        store_id.filter(|store_id| *store_id == engine).ok_or(Error::OtherStore { engine, pool: store_id })
    }
}

//! Which reconciler the engine asks about which operation; it is replaced with each configuration.

use semel::Reconcile;
use semel_http::Routes;
use std::sync::{Arc, PoisonError, RwLock};

/// The routes that hold now. Clones share them: what one replaces is replaced for all.
#[derive(Debug, Clone)]
pub struct Directory(Arc<RwLock<Routes>>);

impl Directory {
    /// With these to begin with.
    pub fn new(routes: Routes) -> Self {
        Self(Arc::new(RwLock::new(routes)))
    }

    /// Questions from now on are put as these say. One that was put already is waited for. Gives back what held before.
    pub fn replace(&self, routes: Routes) -> Routes {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), routes)
    }

    /// Whom to ask about records of this operation.
    pub fn reconciler_of(&self, operation: &str) -> Option<Arc<dyn Reconcile>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).reconciler_of(operation)
    }
}

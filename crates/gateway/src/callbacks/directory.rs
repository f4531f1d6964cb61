//! What other parts ask the routes about a record's operation, such as its reconciler; replaced with each configuration.

use semel::Reconcile;
use semel_admin::ResponseLimits;
use semel_http::Routes;
use std::sync::{Arc, PoisonError, RwLock};

/// The current routes. Clones share them.
#[derive(Debug, Clone)]
pub struct Directory(Arc<RwLock<Routes>>);

impl Directory {
    /// Starts with these routes.
    pub fn new(routes: Routes) -> Self {
        Self(Arc::new(RwLock::new(routes)))
    }

    /// Uses these routes for new callbacks; running ones continue. Returns the old routes.
    pub fn replace(&self, routes: Routes) -> Routes {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), routes)
    }

    /// The limits of a response that is stored for records of this operation.
    pub fn response_limits(&self, operation: &str, head_bytes_max: u32) -> ResponseLimits {
        let routes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ResponseLimits::of(&routes, operation, head_bytes_max)
    }

    /// The reconciler for records of this operation.
    pub fn reconciler_of(&self, operation: &str) -> Option<Arc<dyn Reconcile>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).reconciler_of(operation)
    }
}

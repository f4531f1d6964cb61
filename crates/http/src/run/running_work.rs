//! Reports when the work of an attempt begins and ends.

use crate::layer_state::Shared;
use crate::route::Ready;
use std::sync::Arc;

/// The work of one attempt, from its beginning until it is dropped.
pub(crate) struct RunningWork {
    shared: Arc<Shared>,
    ready: Arc<Ready>,
}

impl RunningWork {
    pub(crate) fn new(shared: &Arc<Shared>, ready: &Arc<Ready>) -> Self {
        shared.observer.began(&ready.label);
        Self { shared: Arc::clone(shared), ready: Arc::clone(ready) }
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.shared.observer.ended(&self.ready.label);
    }
}

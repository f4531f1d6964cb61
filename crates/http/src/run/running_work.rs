//! Reports when the work of an attempt begins and ends.

use crate::layer_state::LayerState;
use crate::route::CompiledRoute;
use std::sync::Arc;

/// The work of one attempt, from its beginning until it is dropped.
pub(crate) struct RunningWork {
    state: Arc<LayerState>,
    route: Arc<CompiledRoute>,
}

impl RunningWork {
    pub(crate) fn new(state: &Arc<LayerState>, route: &Arc<CompiledRoute>) -> Self {
        state.observer.began(&route.label);
        Self { state: Arc::clone(state), route: Arc::clone(route) }
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.state.observer.ended(&self.route.label);
    }
}

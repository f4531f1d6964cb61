//! The store's time: the server's.

use semel_core::store::Clock;
use semel_core::time::Time;
use std::fmt;
use std::sync::Arc;

/// Turns the server's time into the store's time.
#[derive(Clone, Default)]
pub(super) struct ServerTime {
    /// The clock for tests.
    replaced_by: Option<Arc<dyn Clock>>,
}

impl ServerTime {
    pub(super) fn new(replaced_by: Option<Arc<dyn Clock>>) -> Self {
        Self { replaced_by }
    }

    /// The time of an answer, from the server's milliseconds since 1970.
    pub(super) fn at(&self, millis: i64) -> Time {
        let server = || Time::from_millis(u64::try_from(millis).unwrap_or(0));
        self.replaced_by.as_ref().map_or_else(server, |clock| clock.now())
    }

    /// The time that a query refers to, if it is not the server's own.
    pub(super) fn replaced(&self) -> Option<Time> {
        self.replaced_by.as_ref().map(|clock| clock.now())
    }
}

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTime").finish_non_exhaustive()
    }
}

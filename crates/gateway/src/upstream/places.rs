//! How many requests may be under way at once.
//!
//! What lives here: the places, and a share of them that is kept free. What must never: a protected request that waits for
//! others, which may last as long as they like.

use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The places of HTTP/1 requests.
#[derive(Debug)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    /// Those that unprotected requests may take, of all.
    open: Arc<Semaphore>,
}

/// One of them. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_open: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// As many as `max`, of which a quarter is for protected requests alone.
    pub(super) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(max)), open: Arc::new(Semaphore::new(max - max / 4)) }
    }

    /// One that is free now.
    pub(super) fn at_hand(&self, is_protected: bool) -> Option<Place> {
        let of_open =
            if is_protected { None } else { Some(Arc::clone(&self.open).try_acquire_owned().ok()?) };
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _of_all: of_all, _of_open: of_open })
    }

    /// One, as soon as it is free.
    pub(super) async fn wait(&self, is_protected: bool) -> Result<Place, AcquireError> {
        let of_open = if is_protected { None } else { Some(Arc::clone(&self.open).acquire_owned().await?) };
        let of_all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(Place { _of_all: of_all, _of_open: of_open })
    }
}

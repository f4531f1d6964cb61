//! The current keys of one issuer. A request never waits for them: if its key is unknown it is refused, and the set is
//! refreshed in the background.

use super::key::Key;
use futures_util::FutureExt as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;

pub(super) struct Keys {
    current: RwLock<Option<Set>>,
    /// How long a set is used after it was loaded; for ever if it is local.
    stale_max: Option<Duration>,
    wanted: Notify,
}

#[derive(Clone)]
struct Set {
    keys: Arc<[Key]>,
    /// When the loading of this set began, in uptime.
    loaded_at: Duration,
}

impl Keys {
    /// No keys yet.
    pub(super) fn awaited(stale_max: Option<Duration>) -> Self {
        Self { current: RwLock::new(None), stale_max, wanted: Notify::new() }
    }

    /// The only configured key.
    pub(super) fn fixed(key: Key) -> Self {
        let keys = Self::awaited(None);
        keys.replace(vec![key], Duration::ZERO);
        keys
    }

    /// The keys at `uptime`; `None` if there are none, or they are too old.
    pub(super) fn at(&self, uptime: Duration) -> Option<Arc<[Key]>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let set = current.as_ref()?;
        let age = uptime.saturating_sub(set.loaded_at);
        self.stale_max.is_none_or(|max| age <= max).then(|| Arc::clone(&set.keys))
    }

    pub(super) fn replace(&self, keys: Vec<Key>, loaded_at: Duration) {
        let set = Set { keys: keys.into(), loaded_at };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(set);
    }

    /// Requests a newer set. Any number of calls cause one refresh.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Marks requests so far as met: the next load serves all of them.
    pub(super) fn forget_wishes(&self) {
        let _ = self.wanted.notified().now_or_never();
    }

    /// Resolves when a newer set is requested.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

//! The current keys of one issuer. A request never waits for them: if its key is unknown it is refused, and the set is
//! refreshed in the background.

use super::key::Key;
use futures_util::FutureExt as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;

pub(super) struct Keys {
    current: RwLock<Option<Set>>,
    /// For how long a set is believed after it was loaded. For ever, where it cannot be withdrawn from afar.
    stale_max: Option<Duration>,
    wanted: Notify,
}

#[derive(Clone)]
struct Set {
    keys: Arc<[Key]>,
    /// When the loading of this set began, as time since start.
    loaded_at: Duration,
}

impl Keys {
    /// Keys that are not there yet.
    pub(super) fn awaited(stale_max: Option<Duration>) -> Self {
        Self { current: RwLock::new(None), stale_max, wanted: Notify::new() }
    }

    /// The one key that was given by hand.
    pub(super) fn fixed(key: Key) -> Self {
        let keys = Self::awaited(None);
        keys.replace(vec![key], Duration::ZERO);
        keys
    }

    /// The keys to verify by at `uptime`; `None` where there are none, or only some that are too old.
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

    /// Asks for a newer set. However often this is called, one look-up is what follows.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Takes what was wanted so far as met: whoever loads a set next does it for all who asked before.
    pub(super) fn forget_wishes(&self) {
        let _ = self.wanted.notified().now_or_never();
    }

    /// Ends once somebody wants a newer set.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

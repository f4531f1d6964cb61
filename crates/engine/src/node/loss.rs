//! Whether the store has lost data.
//!
//! Separate from [whether it accepts writes](crate::node::writable): if a part of the store is lost, the others continue, and
//! their successful writes prove nothing about it. Only a complete check does.

use crate::node::writable::WriteRefusal;
use semel_core::store::Kind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Since when a loss is known, by the node's uptime.
#[derive(Debug, Default)]
pub(crate) struct LossWatch(Mutex<Option<Duration>>);

impl LossWatch {
    /// A call to the store reported a loss. Returns whether that is news.
    pub(crate) fn lost(&self, uptime: Duration) -> bool {
        let mut since = self.since();
        let is_news = since.is_none();
        since.get_or_insert(uptime);
        is_news
    }

    /// A check of the whole store that began at the uptime `asked` found no loss. Returns whether that is news.
    pub(crate) fn intact(&self, asked: Duration) -> bool {
        let mut since = self.since();
        let is_news = since.is_some_and(|since| since <= asked);
        if is_news {
            *since = None;
        }
        is_news
    }

    pub(crate) fn refusing(&self, uptime: Duration) -> Option<WriteRefusal> {
        let since = *self.since();
        since.map(|since| WriteRefusal { lasts: uptime.saturating_sub(since), kind: Kind::DataLost })
    }

    fn since(&self) -> MutexGuard<'_, Option<Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_loss_is_reported_once_until_a_later_check_finds_none() {
        let watch = LossWatch::default();
        assert!(!watch.intact(S(1)) && watch.refusing(S(2)).is_none());
        assert!(watch.lost(S(3)) && !watch.lost(S(4)));
        assert!(!watch.intact(S(2)), "that check began before the loss was found");
        let refused = WriteRefusal { lasts: S(2), kind: Kind::DataLost };
        assert_eq!(watch.refusing(S(5)), Some(refused));
        assert!(watch.intact(S(6)) && watch.refusing(S(7)).is_none());
        assert!(watch.lost(S(8)), "another loss is news");
    }
}

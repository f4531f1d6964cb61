//! Whether the store accepts writes.
//!
//! Derived from the results of the last writes. It makes no writes itself; the heartbeat makes enough.

use semel_core::store::{Error, Kind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The store refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRefusal {
    /// How long, since the start of the first failed write.
    pub lasts: Duration,
    /// The kind of the last error.
    pub kind: Kind,
}

/// A change of that status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// It refuses writes, or refuses them for another reason than before.
    Refuses,
    /// It accepts writes again.
    Writes,
}

#[derive(Debug, Default)]
pub(crate) struct WriteWatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failing: Option<Failing>,
    /// The start of the last successful write.
    wrote_at: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Duration,
    kind: Kind,
}

impl WriteWatch {
    /// Records the result of a write that began at the uptime `asked`.
    pub(crate) fn note(&self, asked: Duration, result: Result<(), &Error>) -> Option<StatusChange> {
        let mut state = self.state();
        match result {
            Ok(()) => {
                state.wrote_at = state.wrote_at.max(asked);
                state.failing.take().map(|_| StatusChange::Writes)
            }
            // This concerns only the entry, not the store.
            Err(error) if error.kind() == Kind::TooLarge || error.is_entry_locked() => None,
            Err(error) => {
                let kind = error.kind();
                // A slow write may have begun before others that succeeded.
                let since = state.failing.map_or(asked.max(state.wrote_at), |failing| failing.since);
                let before = state.failing.replace(Failing { since, kind });
                let is_news = before.is_none_or(|before| cause(before.kind) != cause(kind));
                is_news.then_some(StatusChange::Refuses)
            }
        }
    }

    pub(crate) fn refusing(&self, uptime: Duration) -> Option<WriteRefusal> {
        let failing = self.state().failing;
        failing.map(|Failing { since, kind }| WriteRefusal { lasts: uptime.saturating_sub(since), kind })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An unreachable store fails with either of these kinds.
fn cause(kind: Kind) -> Kind {
    if kind == Kind::Ambiguous { Kind::Unavailable } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn failing_writes_are_reported_once_per_cause_until_one_succeeds() {
        let watch = WriteWatch::default();
        let fails = |at, kind| watch.note(S(at), Err(&Error::new(kind, "writing")));
        assert_eq!((watch.note(S(1), Ok(())), watch.refusing(S(1))), (None, None));
        assert_eq!(fails(10, Kind::Unavailable), Some(StatusChange::Refuses));
        assert_eq!(fails(11, Kind::Ambiguous), None, "the cause is the same");
        assert_eq!(watch.refusing(S(14)), Some(WriteRefusal { lasts: S(4), kind: Kind::Ambiguous }));
        assert_eq!(fails(12, Kind::Full), Some(StatusChange::Refuses), "another one");
        assert_eq!(fails(13, Kind::TooLarge), None);
        assert_eq!(watch.refusing(S(14)), Some(WriteRefusal { lasts: S(4), kind: Kind::Full }));
        assert_eq!(watch.note(S(15), Ok(())), Some(StatusChange::Writes));
        assert_eq!((watch.note(S(16), Ok(())), watch.refusing(S(20))), (None, None));
        assert_eq!(fails(21, Kind::TooLarge), None, "an entry that is too large is not a fault of the store");
        assert_eq!(watch.note(S(22), Err(&Error::entry_locked("writing"))), None, "nor is a locked entry");
        assert_eq!(watch.refusing(S(30)), None);
        assert_eq!(
            (watch.note(S(40), Ok(())), fails(31, Kind::Ambiguous)),
            (None, Some(StatusChange::Refuses))
        );
        assert_eq!(
            watch.refusing(S(41)).map(|refusing| refusing.lasts),
            Some(S(1)),
            "not from before the last one"
        );
    }
}

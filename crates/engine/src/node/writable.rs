//! Whether the store accepts writes.
//!
//! Derived from the results of the last writes: of records, of settings, and of [probes](crate::background::write_probe). A setting is small, and may still be accepted where a record is not; and in a store of several
//! servers, a record that was written proves nothing about the others. So each clears only what it proves.

use semel_core::store::{Error, Kind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

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

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSubject {
    /// The record of a command.
    Record,
    /// Entries in all parts of the store, to see whether it accepts them.
    Probe,
    /// A setting.
    Setting,
}

#[derive(Debug, Default)]
pub(crate) struct WriteWatch {
    state: Mutex<State>,
    failed: Notify,
}

#[derive(Debug, Default)]
struct State {
    records: Option<Failing>,
    probes: Option<Failing>,
    settings: Option<Failing>,
    /// The start of the last successful write.
    wrote_at: Duration,
    /// The same of a record.
    wrote_record_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Duration,
    kind: Kind,
}

impl State {
    fn failing(&self) -> impl Iterator<Item = Failing> {
        [self.records, self.probes, self.settings].into_iter().flatten()
    }

    fn succeeded(&mut self, subject: WriteSubject, asked: Duration) {
        self.wrote_at = self.wrote_at.max(asked);
        match subject {
            WriteSubject::Record => {
                self.records = None;
                self.wrote_record_at = self.wrote_record_at.max(Some(asked));
            }
            WriteSubject::Probe => (self.records, self.probes) = (None, None),
            WriteSubject::Setting => self.settings = None,
        }
    }

    fn failed(&mut self, subject: WriteSubject, asked: Duration, kind: Kind) {
        let wrote_at = self.wrote_at;
        let failing = match subject {
            WriteSubject::Record => &mut self.records,
            WriteSubject::Probe => &mut self.probes,
            WriteSubject::Setting => &mut self.settings,
        };
        // A slow write may have begun before others that succeeded.
        let since = failing.map_or(asked.max(wrote_at), |failing| failing.since);
        *failing = Some(Failing { since, kind });
    }
}

impl WriteWatch {
    /// Records the result of a write that began at the uptime `asked`.
    pub(crate) fn note(
        &self,
        subject: WriteSubject,
        asked: Duration,
        result: Result<(), &Error>,
    ) -> Option<StatusChange> {
        let mut state = self.state();
        match result {
            Ok(()) => {
                let was_failing = state.failing().next().is_some();
                state.succeeded(subject, asked);
                (was_failing && state.failing().next().is_none()).then_some(StatusChange::Writes)
            }
            // This concerns only the entry, or a part of the store, and [is watched](crate::node::loss) apart.
            Err(error)
                if matches!(error.kind(), Kind::TooLarge | Kind::DataLost) || error.is_entry_locked() =>
            {
                None
            }
            Err(error) => {
                let kind = error.kind();
                let is_news = !state.failing().any(|failing| cause(failing.kind) == cause(kind));
                state.failed(subject, asked, kind);
                self.failed.notify_one();
                is_news.then_some(StatusChange::Refuses)
            }
        }
    }

    pub(crate) fn refusing(&self, uptime: Duration) -> Option<WriteRefusal> {
        let state = self.state();
        let since = state.failing().map(|failing| failing.since).min()?;
        let Failing { kind, .. } = state.failing().next()?;
        Some(WriteRefusal { lasts: uptime.saturating_sub(since), kind })
    }

    /// Whether a record was written that began at the uptime `since` or later.
    pub(crate) fn has_written_record_since(&self, since: Duration) -> bool {
        self.state().wrote_record_at.is_some_and(|at| at >= since)
    }

    /// Waits until a write fails that has not been waited for.
    pub(crate) async fn next_failure(&self) {
        self.failed.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An unreachable store fails with either of these kinds.
fn cause(kind: Kind) -> Kind {
    if kind == Kind::Ambiguous { Kind::Unavailable } else { kind }
}

#[cfg(test)]
mod tests {
    use super::WriteSubject::{Probe, Record, Setting};
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn failing_writes_are_reported_once_per_cause_until_one_succeeds() {
        let watch = WriteWatch::default();
        let fails = |at, kind| watch.note(Record, S(at), Err(&Error::new(kind, "writing")));
        assert_eq!((watch.note(Record, S(1), Ok(())), watch.refusing(S(1))), (None, None));
        assert_eq!(fails(10, Kind::Unavailable), Some(StatusChange::Refuses));
        assert_eq!(fails(11, Kind::Ambiguous), None, "the cause is the same");
        assert_eq!(watch.refusing(S(14)), Some(WriteRefusal { lasts: S(4), kind: Kind::Ambiguous }));
        assert_eq!(fails(12, Kind::Full), Some(StatusChange::Refuses), "another one");
        assert_eq!(fails(13, Kind::TooLarge), None);
        assert_eq!(watch.refusing(S(14)), Some(WriteRefusal { lasts: S(4), kind: Kind::Full }));
        assert_eq!(watch.note(Record, S(15), Ok(())), Some(StatusChange::Writes));
        assert_eq!((watch.note(Record, S(16), Ok(())), watch.refusing(S(20))), (None, None));
        assert_eq!(fails(21, Kind::TooLarge), None, "an entry that is too large is not a fault of the store");
        assert_eq!(
            watch.note(Record, S(22), Err(&Error::entry_locked("writing"))),
            None,
            "nor is a locked entry"
        );
        assert_eq!(watch.refusing(S(30)), None);
        assert_eq!(
            (watch.note(Record, S(40), Ok(())), fails(31, Kind::Ambiguous)),
            (None, Some(StatusChange::Refuses))
        );
        assert_eq!(
            watch.refusing(S(41)).map(|refusing| refusing.lasts),
            Some(S(1)),
            "not from before the last one"
        );
    }

    #[test]
    fn a_setting_that_was_written_does_not_clear_a_refused_record() {
        let watch = WriteWatch::default();
        let full = Error::new(Kind::Full, "writing");
        assert_eq!(watch.note(Record, S(10), Err(&full)), Some(StatusChange::Refuses));
        assert_eq!(watch.note(Setting, S(12), Ok(())), None);
        assert_eq!(watch.refusing(S(15)), Some(WriteRefusal { lasts: S(5), kind: Kind::Full }));
        assert_eq!(watch.note(Probe, S(16), Ok(())), Some(StatusChange::Writes));
        assert_eq!(watch.refusing(S(17)), None);
    }

    #[test]
    fn a_written_record_does_not_clear_what_another_part_of_the_store_refused() {
        let watch = WriteWatch::default();
        let gone = Error::new(Kind::Unavailable, "writing");
        assert_eq!(watch.note(Record, S(10), Err(&gone)), Some(StatusChange::Refuses));
        assert_eq!(watch.note(Probe, S(11), Err(&gone)), None);
        assert_eq!(watch.note(Record, S(12), Ok(())), None, "in one part");
        assert_eq!(watch.refusing(S(15)), Some(WriteRefusal { lasts: S(4), kind: Kind::Unavailable }));
        assert_eq!(watch.note(Setting, S(15), Err(&gone)), None);
        assert_eq!(watch.note(Probe, S(16), Ok(())), None, "settings still fail");
        assert_eq!(watch.refusing(S(17)), Some(WriteRefusal { lasts: S(2), kind: Kind::Unavailable }));
        assert_eq!(watch.note(Setting, S(18), Ok(())), Some(StatusChange::Writes));
    }
}

//! A node's trusted time.
//!
//! The current time, in and between the store's answers, and how far it is trusted. The store's clock may jump while
//! the node runs, or before it starts; neither may lead to a second effect. Clocks are read elsewhere, and
//! [`semel_core::machine`] decides what a moment means for a record.
//!
//! - While the node runs, every answer's time is compared with the uptime ([`watch`]). If they disagree by more than
//!   the skew, time continues without the jump.
//! - Across starts, nodes write their time into the store ([`mark`], [`heartbeat`]). A node whose clock is behind
//!   that mark at its start, or far ahead of it, does not trust the clock. One that is ahead by less watches the mark
//!   before it writes its own time: if a live node writes another time, the one that came later gives way.

mod compare;
mod heartbeat;
mod mark;
mod newcomer;
mod span;
mod start;
mod watch;

pub use compare::{ClockComparison, NodesClock, compare_clocks, confirm_clock_of_nodes};
pub(crate) use heartbeat::{Heartbeat, TimeExchange};
pub use heartbeat::{confirm_clock, examine_clock};
pub use start::DistrustReason;

use crate::settings::ClockSettings;
use mark::ContradictionReport;
pub(crate) use mark::{Mark, NAME as MARK, carried_over};
use newcomer::Watch;
use semel_core::time::{Now, Time, Trust};
use span::millis;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use watch::{ClockWatch, WatchEvent};

/// The status of the clock, for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockStatus {
    /// The clock is followed.
    Trusted,
    /// The clock jumped while the node ran. Time continues without the jump.
    Moved {
        /// The size of the jump in milliseconds; negative if the clock was set back.
        by_ms: i64,
    },
    /// The clock contradicted the store's mark when the node started. Nothing new is claimed.
    Untrusted(DistrustReason),
}

impl ClockStatus {
    /// Whether the node uses the store's clock.
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}

/// A change of the clock's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// It jumped. Time continues without the jump.
    Moved {
        /// The size of the jump in milliseconds; negative if the clock was set back.
        by_ms: i64,
    },
    /// It is right again.
    Back,
    /// It stayed at most an hour ahead for long enough, and is followed from now on.
    Followed {
        /// The size of the jump in milliseconds.
        by_ms: i64,
    },
    /// It contradicts the store's mark. Nothing new is claimed.
    Distrusted(DistrustReason),
    /// It no longer contradicts the store's mark.
    Plausible,
    /// An operator confirmed it.
    Confirmed,
    /// Another node of the store uses another time. Until they agree, no lease is judged expired.
    Disagrees {
        /// The difference in milliseconds.
        by_ms: i64,
    },
}

/// The time of an answer, and the uptimes of the call and the answer.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Time,
    asked: Duration,
    received: Duration,
}

/// The longest duration of a call whose time is used unconditionally.
const SOON: Duration = Duration::from_secs(1);
/// The largest drift between two running clocks: one part in this many.
const DRIFT: u32 = 1_000;

impl Sample {
    /// Whether `before` gives a more precise time for the moment of this answer. The precision of an answer is the
    /// duration of its call.
    fn is_vaguer_than(&self, before: &Self) -> bool {
        let width = |sample: &Self| sample.received.saturating_sub(sample.asked);
        let since = self.received.saturating_sub(before.received);
        width(self) > (width(before) + since / DRIFT).max(SOON)
    }
}

/// How far the clock is trusted. Deadlines are uptimes, so that no clock can move them.
#[derive(Debug, Clone)]
enum TrustState {
    Untrusted {
        why: DistrustReason,
        /// The mark that the clock must not contradict; `None` if it cannot be read.
        mark: Option<Box<Mark>>,
        /// How far the clock may be ahead of the mark.
        ahead_max: Duration,
        /// A better reference than the mark for trusting the clock again, if there is one.
        reference: Option<Reference>,
        /// What the store has to keep, if another node contradicted this one.
        contradiction: Option<ContradictionReport>,
        since: Duration,
    },
    Trusted {
        /// Until when no lease is judged expired.
        starting_until: Duration,
        /// Until when nothing is expired, reused or purged.
        settling_until: Duration,
        /// When this node followed an operator's confirmation.
        confirmed_at: Option<Duration>,
        /// Until it is over, this node does not write its time.
        watch: Option<Watch>,
        steady_since: Option<Time>,
        /// When this time replaced another one.
        replaced_at: Option<Time>,
        /// The latest date given by the replaced time, while records with such dates may exist.
        replaced_up_to: Option<Time>,
    },
}

/// A confirmed time, at some moment between two uptimes of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) at: Time,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Earlier dates may go up to this moment.
    pub(crate) before: Option<Time>,
}

impl Reference {
    /// The error in milliseconds of a clock that showed `shown` at some moment between `asked` and `received`, at any
    /// time after the confirmation. Zero if it is right.
    fn off(&self, shown: Time, asked: Duration, received: Duration) -> i128 {
        let (shown, at) = (i128::from(shown.as_millis()), i128::from(self.at.as_millis()));
        let earliest = at + millis(asked) - millis(self.to);
        let latest = at + millis(received) - millis(self.from);
        if shown > latest { shown - latest } else { (shown - earliest).min(0) }
    }
}

struct State {
    last: Sample,
    watch: ClockWatch,
    trust: TrustState,
    /// An upper bound of the uptime at which this node last knew the time of others. `None` until its first own
    /// heartbeat.
    others_known_at: Option<Duration>,
    /// From which uptime on to look for dates in the future that another node may still be writing.
    look_from: Duration,
    /// Whether this node trusted the clock, and no longer does.
    was_trusted: bool,
}

/// A node's trusted time.
///
/// The store read its clock somewhere between the call and the answer. So its time *now* is between the answered time
/// plus the time since the answer, and the answered time plus the time since the call.
pub(crate) struct TrustedTime {
    settings: ClockSettings,
    state: Mutex<State>,
    /// Whether to look for records with dates in the future.
    looks_for_future_dates: AtomicBool,
}

impl TrustedTime {
    /// The time of a starting node: from the store's first answer and its mark.
    pub(crate) fn start(
        settings: ClockSettings,
        boot: Option<&str>,
        remembered: Result<Option<Mark>, ()>,
        (shown, asked, received): (Time, Duration, Duration),
    ) -> (Self, Option<ClockChange>) {
        let (state, change) = State::start(&settings, boot, remembered, (shown, asked, received));
        (Self { settings, state: Mutex::new(state), looks_for_future_dates: AtomicBool::new(true) }, change)
    }

    /// Whether a node that trusts its clock has not made its first heartbeat yet.
    pub(crate) fn is_starting(&self) -> bool {
        let state = self.state();
        state.others_known_at.is_none() && matches!(state.trust, TrustState::Trusted { .. })
    }

    /// Whether nothing may be dated before the next heartbeat. An untrusted clock dates nothing anyway.
    pub(crate) fn has_to_catch_up(&self, uptime: Duration) -> bool {
        let state = self.state();
        matches!(state.trust, TrustState::Trusted { .. }) && state.is_out_of_touch(&self.settings, uptime)
    }

    /// The first heartbeat found `mark` in the store: judge the clock by it, as at a start.
    pub(crate) fn start_again(
        &self,
        boot: Option<&str>,
        mark: &Mark,
        answer: (Time, Duration, Duration),
    ) -> Option<ClockChange> {
        let (again, change) = State::start(&self.settings, boot, Ok(Some(mark.clone())), answer);
        *self.state() = again;
        change
    }

    /// There may be records with dates in the future.
    pub(crate) fn look_for_future_dates(&self) {
        self.looks_for_future_dates.store(true, Ordering::Release);
    }

    /// Whether somebody has to look for records with dates in the future. If so, that counts as begun.
    pub(crate) fn begin_look_for_future_dates(&self) -> bool {
        self.looks_for_future_dates.swap(false, Ordering::AcqRel)
    }

    /// Whether all dates in the future that are known of have been written.
    pub(crate) fn may_look_for_future_dates(&self, uptime: Duration) -> bool {
        uptime >= self.state().look_from
    }

    /// This node's time is in the store, and what others wrote before the uptime `at` is known.
    pub(crate) fn beaten(&self, at: Duration) {
        let mut state = self.state();
        state.others_known_at = state.others_known_at.max(Some(at));
    }

    /// Whether the last heartbeat is so old that others may use another, confirmed time and judge leases by it. Dates
    /// of such a node may look expired to them.
    pub(crate) fn is_out_of_touch(&self, uptime: Duration) -> bool {
        self.state().is_out_of_touch(&self.settings, uptime)
    }

    /// Records an answer, and returns the time to judge it by.
    pub(crate) fn note(
        &self,
        shown: Time,
        asked: Duration,
        received: Duration,
    ) -> (Time, Option<ClockChange>) {
        let mut state = self.state();
        let (at, change) = state.judge(&self.settings, shown, asked, received);
        // An answer to an older call adds nothing, unless it changed the trusted time: then earlier samples are
        // invalid. An answer to a slow call is less precise than the known time.
        let sample = Sample { at, asked, received };
        if change.is_some() || (asked >= state.last.asked && !sample.is_vaguer_than(&state.last)) {
            state.last = sample;
        }
        (at, change)
    }

    /// An operator confirmed that the clock, which showed `shown`, is right. Earlier dates go up to `before`.
    pub(crate) fn confirm(&self, shown: Time, before: Option<Time>, asked: Duration, received: Duration) {
        let mut state = self.state();
        state.watch.accept(shown, asked, received);
        let before = before.max(Some(state.earliest(received))).max(state.replaced_up_to());
        state.confirm(&self.settings, shown, received);
        state.expect_dates_up_to(before.map(|before| before + self.settings.peers_seen_within()));
        state.last = Sample { at: shown, asked, received };
    }

    /// The latest date given by a replaced time, while records with such dates may exist.
    pub(crate) fn replaced_up_to(&self) -> Option<Time> {
        self.state().replaced_up_to()
    }

    /// All unresolved records with dates in the future have been corrected, if
    /// [`replaced_up_to`](Self::replaced_up_to) did not change meanwhile. Later dates are of the current time.
    pub(crate) fn no_dates_are_ahead(&self, replaced_up_to: Option<Time>, uptime: Duration) {
        let mut state = self.state();
        if state.replaced_up_to() == replaced_up_to {
            let now = state.earliest(uptime) + self.settings.skew;
            state.expect_dates_up_to(replaced_up_to.map(|up_to| up_to.min(now)));
        }
    }

    /// An operator confirmed a time, and the clock showed `shown`. If that is the confirmed time, the clock is
    /// followed. Otherwise nothing may be dated until the clock shows the confirmed time.
    pub(crate) fn follow_confirmation(
        &self,
        reference: Reference,
        shown: Time,
        asked: Duration,
        received: Duration,
    ) -> ClockChange {
        let off = reference.off(shown, asked, received);
        if off.abs() <= millis(self.settings.watch_allowance()) {
            self.confirm(shown, reference.before, asked, received);
            return ClockChange::Confirmed;
        }
        let by = Duration::from_millis(u64::try_from(off.abs()).unwrap_or(u64::MAX));
        let why = if off > 0 { DistrustReason::Ahead(by) } else { DistrustReason::Behind(by) };
        let mut state = self.state();
        let before = reference.before.max(Some(state.earliest(received))).max(state.replaced_up_to());
        let reference = Some(Reference { before, ..reference });
        // One that still watched would have given way.
        state.was_trusted |= matches!(state.trust, TrustState::Trusted { watch: None, .. });
        state.trust = TrustState::Untrusted {
            why,
            mark: None,
            ahead_max: Duration::ZERO,
            reference,
            contradiction: None,
            since: received,
        };
        ClockChange::Distrusted(why)
    }

    /// Another live node uses another time: no lease is judged expired until that has been over for a while.
    pub(crate) fn disagree(&self, uptime: Duration) {
        let mut state = self.state();
        let now = state.earliest(uptime);
        if let TrustState::Trusted { .. } = state.trust {
            state.restart_leases(&self.settings, now, uptime);
        }
    }

    /// The current time at the earliest: a lease dated by it never lasts too long.
    pub(crate) fn earliest(&self, uptime: Duration) -> Now {
        let state = self.state();
        state.now(&self.settings, state.earliest(uptime), uptime)
    }

    /// The current time at the latest: a lease that is valid then is valid.
    pub(crate) fn latest(&self, uptime: Duration) -> Now {
        let state = self.state();
        state.now(&self.settings, state.latest(uptime), uptime)
    }

    /// The moment `at`, with the current trust.
    pub(crate) fn at(&self, at: Time, uptime: Duration) -> Now {
        self.state().now(&self.settings, at, uptime)
    }

    /// When to retry after a refusal because of the clock.
    pub(crate) fn retry_after(&self, uptime: Duration) -> Duration {
        match self.state().trust {
            TrustState::Untrusted { .. } => self.settings.heartbeat,
            TrustState::Trusted { settling_until, .. } => settling_until.saturating_sub(uptime),
        }
    }

    pub(crate) fn status(&self) -> ClockStatus {
        let state = self.state();
        match (&state.trust, state.watch.off()) {
            (TrustState::Untrusted { why, .. }, _) => ClockStatus::Untrusted(*why),
            (TrustState::Trusted { .. }, Some(off)) => ClockStatus::Moved { by_ms: clamped(off) },
            (TrustState::Trusted { .. }, None) => ClockStatus::Trusted,
        }
    }

    /// Whether this node trusts the clock, or has trusted it since its start.
    pub(crate) fn has_been_trusted(&self) -> bool {
        let state = self.state();
        state.was_trusted || matches!(state.trust, TrustState::Trusted { .. })
    }

    /// Since when time has passed without a gap. Fails if this node does not trust its time at all.
    fn steady_since(&self) -> Result<Option<Time>, DistrustReason> {
        match self.state().trust {
            TrustState::Untrusted { why, .. } => Err(why),
            TrustState::Trusted { steady_since, .. } => Ok(steady_since),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete, so the state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn start(
        settings: &ClockSettings,
        boot: Option<&str>,
        remembered: Result<Option<Mark>, ()>,
        (shown, asked, received): (Time, Duration, Duration),
    ) -> (Self, Option<ClockChange>) {
        let started = start::start(settings, boot, remembered, shown, asked, received);
        let last = Sample { at: started.now, asked, received };
        let (others_known_at, look_from) = (None, Duration::ZERO);
        let (watch, trust, was_trusted) = (started.watch, started.trust, false);
        (Self { last, watch, trust, others_known_at, look_from, was_trusted }, started.change)
    }

    fn judge(
        &mut self,
        settings: &ClockSettings,
        shown: Time,
        asked: Duration,
        received: Duration,
    ) -> (Time, Option<ClockChange>) {
        if let TrustState::Untrusted { reference: Some(reference), .. } = &self.trust {
            let reference = *reference;
            if reference.off(shown, asked, received).abs() > millis(settings.watch_allowance()) {
                return (shown, None);
            }
            self.watch.accept(shown, asked, received);
            self.confirm(settings, shown, received);
            self.expect_dates_up_to(reference.before.map(|before| before + settings.peers_seen_within()));
            return (shown, Some(ClockChange::Confirmed));
        }
        if let TrustState::Untrusted { mark, since, ahead_max, .. } = &self.trust {
            let Some(mark) = mark else { return (shown, None) };
            let between = (asked.saturating_sub(*since), received.saturating_sub(*since));
            if start::contradicts(settings, mark, shown, between, *ahead_max).is_some() {
                // Whatever the clock shows, the time is not earlier than this.
                return (shown.max(mark.at() + between.1), None);
            }
            let has_to_watch = start::has_to_watch(settings, mark, shown, between.0);
            self.watch.accept(shown, asked, received);
            self.restart_leases(settings, shown, received);
            if has_to_watch && let TrustState::Trusted { watch, .. } = &mut self.trust {
                // The next read of the mark is the first that counts.
                *watch = Some(Watch { since: None, last: asked, earlier: None });
            }
            return (shown, Some(ClockChange::Plausible));
        }
        let (at, news) = self.watch.feed(shown, asked, received);
        let change = news.map(|news| match news {
            WatchEvent::Moved(by) => ClockChange::Moved { by_ms: clamped(by) },
            WatchEvent::Back => ClockChange::Back,
            WatchEvent::Followed(by) => ClockChange::Followed { by_ms: clamped(by) },
        });
        if let Some(ClockChange::Followed { .. }) = change {
            self.replace(settings, shown, received);
        }
        (at, change)
    }

    /// From `at` on, time is steady; earlier dates may be wrong.
    fn restart_leases(&mut self, settings: &ClockSettings, at: Time, uptime: Duration) {
        let watch = match self.trust {
            TrustState::Trusted { watch, .. } => watch,
            TrustState::Untrusted { .. } => None,
        };
        self.trust = TrustState::Trusted {
            starting_until: uptime + settings.peers_seen_within(),
            settling_until: uptime + settings.settle.max(settings.peers_seen_within()),
            confirmed_at: None,
            watch,
            steady_since: Some(at),
            replaced_at: self.replaced_at(),
            replaced_up_to: self.replaced_up_to(),
        };
    }

    fn expect_dates_up_to(&mut self, moment: Option<Time>) {
        if let TrustState::Trusted { replaced_up_to, .. } = &mut self.trust {
            *replaced_up_to = moment;
        }
    }

    /// From `at` on, another time is used.
    fn replace(&mut self, settings: &ClockSettings, at: Time, uptime: Duration) {
        self.restart_leases(settings, at, uptime);
        if let TrustState::Trusted { replaced_at, .. } = &mut self.trust {
            *replaced_at = Some(at);
        }
    }

    /// From `at` on, another time is used, which an operator confirmed.
    fn confirm(&mut self, settings: &ClockSettings, at: Time, uptime: Duration) {
        self.replace(settings, at, uptime);
        if let TrustState::Trusted { confirmed_at, watch, .. } = &mut self.trust {
            (*confirmed_at, *watch) = (Some(uptime), None);
        }
    }

    fn replaced_at(&self) -> Option<Time> {
        match &self.trust {
            TrustState::Trusted { replaced_at, .. } => *replaced_at,
            TrustState::Untrusted { mark, .. } => mark.as_deref().and_then(Mark::replaced_at),
        }
    }

    fn replaced_up_to(&self) -> Option<Time> {
        match &self.trust {
            TrustState::Trusted { replaced_up_to, .. } => *replaced_up_to,
            TrustState::Untrusted { mark, .. } => mark.as_deref().and_then(Mark::replaced_up_to),
        }
    }

    fn is_out_of_touch(&self, settings: &ClockSettings, uptime: Duration) -> bool {
        // The same period in which nobody judges leases after a confirmation.
        self.others_known_at.is_none_or(|at| uptime.saturating_sub(at) >= settings.peers_seen_within())
    }

    fn earliest(&self, uptime: Duration) -> Time {
        self.last.at + uptime.saturating_sub(self.last.received)
    }

    fn latest(&self, uptime: Duration) -> Time {
        // One more, because clocks are in whole milliseconds and the real time may be just above.
        self.last.at + uptime.saturating_sub(self.last.asked) + Duration::from_millis(1)
    }

    fn now(&self, settings: &ClockSettings, at: Time, uptime: Duration) -> Now {
        let skew = settings.skew;
        // The answer to a slow call is dated by the call, and its records may be newer.
        let latest = at.max(self.latest(uptime));
        match self.trust {
            TrustState::Untrusted { .. } => Now { latest, trust: Trust::Untrusted, skew, ..at.into() },
            TrustState::Trusted {
                starting_until,
                settling_until,
                confirmed_at,
                watch,
                steady_since,
                replaced_at,
                replaced_up_to,
            } => {
                let is_out_of_touch = self.is_out_of_touch(settings, uptime);
                // A node that can write has heard of a confirmation after its next heartbeat.
                let has_been_heard = |at| uptime >= at + settings.heartbeat + SOON;
                let is_ahead_wrong = !is_out_of_touch && confirmed_at.is_some_and(has_been_heard);
                let trust = if uptime < starting_until || watch.is_some() || is_out_of_touch {
                    Trust::Starting
                } else if uptime < settling_until {
                    Trust::Settling
                } else {
                    Trust::Trusted
                };
                Now { at, latest, trust, skew, steady_since, replaced_at, replaced_up_to, is_ahead_wrong }
            }
        }
    }
}

fn clamped(millis: i128) -> i64 {
    i64::try_from(millis).unwrap_or(if millis > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;

//! The time that a node goes by.
//!
//! Contents: which moment it is, between and in the store's answers, and how far it can be relied on. The store's
//! clock may jump while the node runs, or before it starts; neither may cost a second effect. Never here: reading a
//! clock, or a rule about what a moment means for a record (that is [`semel_core::machine`]).
//!
//! - While the node runs, every answer's time is held against uptime ([`watch`]). Once they disagree by more than the
//!   skew, time goes on from where it should be.
//! - Across starts, nodes write the time that they go by into the store ([`mark`], [`heartbeat`]). A node that starts
//!   with a clock behind that mark, or far ahead of it, does not trust it.

mod heartbeat;
mod mark;
mod span;
mod start;
mod watch;

pub(crate) use heartbeat::{Heartbeat, beat, begin, catch_up};
pub use heartbeat::{confirm_clock, examine_clock};
pub use start::Distrust;

use crate::settings::ClockSettings;
pub(crate) use mark::{Mark, NAME as MARK, carried_over};
use semel_core::time::{Now, Time, Trust};
use span::millis;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use watch::{ClockWatch, News};

/// How the clock stands, for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockStatus {
    /// The clock is followed.
    Trusted,
    /// The clock jumped while the node ran. Time goes on from where it should be.
    Moved {
        /// By how much, in milliseconds; negative where it was set back.
        by_ms: i64,
    },
    /// The clock contradicted what the store remembers when the node started. Nothing new is claimed.
    Untrusted(Distrust),
}

impl ClockStatus {
    /// Whether the store's clock is what the node goes by.
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}

/// How the clock's standing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// It jumped, by so many milliseconds; negative where it was set back. Time goes on from where it should be.
    Moved {
        /// By how much.
        by_ms: i64,
    },
    /// It is back where it should be.
    Back,
    /// It stayed at most an hour ahead for long enough, and is followed from now on.
    Followed {
        /// By how much it had jumped, in milliseconds.
        by_ms: i64,
    },
    /// It contradicts what the store remembers. Nothing new is claimed.
    Distrusted(Distrust),
    /// It no longer contradicts what the store remembers.
    Plausible,
    /// Somebody confirmed it.
    Confirmed,
    /// Another node on the store goes by another time. Until they agree, no lease is judged dead.
    Disagrees {
        /// By how much that node's time differs, in milliseconds.
        by_ms: i64,
    },
}

/// The last answer's time, and when by this node's uptime the question was put and answered.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Time,
    asked: Duration,
    received: Duration,
}

/// For how long an answer may have been on its way to be taken as it is.
const SOON: Duration = Duration::from_secs(1);
/// By how much two clocks that both run may drift apart: one part in so many.
const DRIFT: u32 = 1_000;

impl Sample {
    /// Whether `before` tells more precisely what time it was when this answer came. An answer tells the time to
    /// within as long as it was on its way.
    fn is_vaguer_than(&self, before: &Self) -> bool {
        let width = |sample: &Self| sample.received.saturating_sub(sample.asked);
        let since = self.received.saturating_sub(before.received);
        width(self) > (width(before) + since / DRIFT).max(SOON)
    }
}

/// What the clock is trusted for. Moments by uptime, so that no clock can move them.
#[derive(Debug, Clone)]
enum Standing {
    Untrusted {
        why: Distrust,
        /// What the clock must not contradict; `None` if that cannot be read.
        mark: Option<Mark>,
        /// What it has to show before it is trusted again, where that is known better than by the mark.
        reference: Option<Reference>,
        since: Duration,
    },
    Trusted {
        /// Until when no lease is judged dead.
        starting_until: Duration,
        /// Until when nothing is expired, re-used or purged.
        settling_until: Duration,
        steady_since: Option<Time>,
        /// When this time took the place of another one.
        replaced_at: Option<Time>,
        /// The latest date that the other one gave, as long as records with such dates may be left.
        replaced_up_to: Option<Time>,
    },
}

/// A time that somebody confirmed at some moment between two uptimes of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) at: Time,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Dates up to this may have been given before.
    pub(crate) before: Option<Time>,
}

impl Reference {
    /// By how much a clock is off that showed `told` at some moment between `asked` and `received`, in milliseconds,
    /// however long after the confirmation that was. Zero if it is right.
    fn off(&self, told: Time, asked: Duration, received: Duration) -> i128 {
        let (told, at) = (i128::from(told.as_millis()), i128::from(self.at.as_millis()));
        let earliest = at + millis(asked) - millis(self.to);
        let latest = at + millis(received) - millis(self.from);
        if told > latest { told - latest } else { (told - earliest).min(0) }
    }
}

struct State {
    last: Sample,
    watch: ClockWatch,
    standing: Standing,
    /// When, by the uptime, this node last knew what others had written into the store about the time: not later than
    /// that. `None` until it has written there itself.
    heard_at: Option<Duration>,
}

/// The time that a node goes by.
///
/// The store read its clock somewhere between question and answer. So its time *now* lies between what it told plus the
/// time since the answer, and what it told plus the time since the question.
pub(crate) struct TrustedTime {
    settings: ClockSettings,
    state: Mutex<State>,
}

impl TrustedTime {
    /// The time of a node that starts now: the store's first answer, and what it remembers.
    pub(crate) fn start(
        settings: ClockSettings,
        boot: Option<&str>,
        remembered: Result<Option<Mark>, ()>,
        (told, asked, received): (Time, Duration, Duration),
    ) -> (Self, Option<ClockChange>) {
        let (state, change) = State::start(&settings, boot, remembered, (told, asked, received));
        (Self { settings, state: Mutex::new(state) }, change)
    }

    /// Whether the first heartbeat is still to come, of a node that trusts its clock so far.
    pub(crate) fn is_starting(&self) -> bool {
        let state = self.state();
        state.heard_at.is_none() && matches!(state.standing, Standing::Trusted { .. })
    }

    /// Whether nothing is to be dated before the next heartbeat. By a clock that is not trusted nothing is dated
    /// anyway.
    pub(crate) fn has_to_catch_up(&self, uptime: Duration) -> bool {
        let state = self.state();
        matches!(state.standing, Standing::Trusted { .. }) && state.is_out_of_touch(&self.settings, uptime)
    }

    /// Before this node's first heartbeat the store turned out to remember `mark`: the clock is judged by that, as at
    /// a start.
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

    /// The time that this node goes by is in the store, and what others had written there by the uptime `at` is known.
    pub(crate) fn beaten(&self, at: Duration) {
        let mut state = self.state();
        state.heard_at = state.heard_at.max(Some(at));
    }

    /// Whether it has been so long since the last heartbeat that others may go by another time which somebody
    /// confirmed, and judge leases by it. What such a node dates may look long past to them.
    pub(crate) fn is_out_of_touch(&self, uptime: Duration) -> bool {
        self.state().is_out_of_touch(&self.settings, uptime)
    }

    /// Takes note of an answer, and yields the time to judge it by.
    pub(crate) fn note(
        &self,
        told: Time,
        asked: Duration,
        received: Duration,
    ) -> (Time, Option<ClockChange>) {
        let mut state = self.state();
        let (at, change) = state.judge(&self.settings, told, asked, received);
        // An answer to an older question than the last one noted says nothing new, unless it changed what is
        // believed: what was noted before is another time's then. One that was long on its way says less than what
        // was known before.
        let sample = Sample { at, asked, received };
        if change.is_some() || (asked >= state.last.asked && !sample.is_vaguer_than(&state.last)) {
            state.last = sample;
        }
        (at, change)
    }

    /// Somebody confirmed that the clock, which showed `told`, is right.
    /// Dates up to `before` have been given until now.
    pub(crate) fn confirm(&self, told: Time, before: Option<Time>, asked: Duration, received: Duration) {
        let mut state = self.state();
        state.watch.accept(told, asked, received);
        let before = before.max(Some(state.earliest(received))).max(state.replaced_up_to());
        state.replace(&self.settings, told, received);
        state.expect_dates_up_to(before.map(|before| before + self.settings.peers_seen_within()));
        state.last = Sample { at: told, asked, received };
    }

    /// The latest date that a time gave which no longer counts, as long as records with such dates may be left.
    pub(crate) fn replaced_up_to(&self) -> Option<Time> {
        self.state().replaced_up_to()
    }

    /// Every unsettled record whose date had not come by now has been brought back to the present, as long as
    /// [`replaced_up_to`](Self::replaced_up_to) still is what it was when that began. Later dates are of this time.
    pub(crate) fn no_dates_are_ahead(&self, replaced_up_to: Option<Time>, uptime: Duration) {
        let mut state = self.state();
        if state.replaced_up_to() == replaced_up_to {
            let now = state.earliest(uptime) + self.settings.skew;
            state.expect_dates_up_to(replaced_up_to.map(|up_to| up_to.min(now)));
        }
    }

    /// Somebody confirmed a time, and the clock showed `told`. It is followed where that is the time that was
    /// confirmed. If it is another one, nothing is to be dated by it, nor by the time that this node went by so far,
    /// until it shows that one.
    pub(crate) fn refer_to(
        &self,
        reference: Reference,
        told: Time,
        asked: Duration,
        received: Duration,
    ) -> ClockChange {
        let off = reference.off(told, asked, received);
        if off.abs() <= millis(self.settings.watch_allowance()) {
            self.confirm(told, reference.before, asked, received);
            return ClockChange::Confirmed;
        }
        let by = Duration::from_millis(u64::try_from(off.abs()).unwrap_or(u64::MAX));
        let why = if off > 0 { Distrust::Ahead(by) } else { Distrust::Behind(by) };
        let mut state = self.state();
        let before = reference.before.max(Some(state.earliest(received))).max(state.replaced_up_to());
        let reference = Some(Reference { before, ..reference });
        state.standing = Standing::Untrusted { why, mark: None, reference, since: received };
        ClockChange::Distrusted(why)
    }

    /// Another node that is alive goes by another time: no lease is judged dead until that has been over for a while.
    pub(crate) fn disagree(&self, uptime: Duration) {
        let mut state = self.state();
        let now = state.earliest(uptime);
        if let Standing::Trusted { .. } = state.standing {
            state.begin_anew(&self.settings, now, uptime);
        }
    }

    /// The present, the earliest that it can be: what is dated by it claims no lease that the store would not grant.
    pub(crate) fn earliest(&self, uptime: Duration) -> Now {
        let state = self.state();
        state.now(&self.settings, state.earliest(uptime), uptime)
    }

    /// The present, the latest that it can be: a lease that is alive then is alive.
    pub(crate) fn latest(&self, uptime: Duration) -> Now {
        let state = self.state();
        state.now(&self.settings, state.latest(uptime), uptime)
    }

    /// The moment `at`, with what may be concluded from it now.
    pub(crate) fn at(&self, at: Time, uptime: Duration) -> Now {
        self.state().now(&self.settings, at, uptime)
    }

    /// In how long what is refused for the clock's sake may be tried again: soon where somebody must act first.
    pub(crate) fn retry_after(&self, uptime: Duration) -> Duration {
        match self.state().standing {
            Standing::Untrusted { .. } => self.settings.heartbeat,
            Standing::Trusted { settling_until, .. } => settling_until.saturating_sub(uptime),
        }
    }

    pub(crate) fn status(&self) -> ClockStatus {
        let state = self.state();
        match (&state.standing, state.watch.off()) {
            (Standing::Untrusted { why, .. }, _) => ClockStatus::Untrusted(*why),
            (Standing::Trusted { .. }, Some(off)) => ClockStatus::Moved { by_ms: clamped(off) },
            (Standing::Trusted { .. }, None) => ClockStatus::Trusted,
        }
    }

    /// Since when time has passed without a gap. An error if this node does not trust its time at all.
    fn steady_since(&self) -> Result<Option<Time>, Distrust> {
        match self.state().standing {
            Standing::Untrusted { why, .. } => Err(why),
            Standing::Trusted { steady_since, .. } => Ok(steady_since),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole: a panic elsewhere leaves it readable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn start(
        settings: &ClockSettings,
        boot: Option<&str>,
        remembered: Result<Option<Mark>, ()>,
        (told, asked, received): (Time, Duration, Duration),
    ) -> (Self, Option<ClockChange>) {
        let started = start::start(settings, boot, remembered, told, asked, received);
        let last = Sample { at: started.now, asked, received };
        let state = Self { last, watch: started.watch, standing: started.standing, heard_at: None };
        (state, started.change)
    }

    fn judge(
        &mut self,
        settings: &ClockSettings,
        told: Time,
        asked: Duration,
        received: Duration,
    ) -> (Time, Option<ClockChange>) {
        if let Standing::Untrusted { reference: Some(reference), .. } = &self.standing {
            let reference = *reference;
            if reference.off(told, asked, received).abs() > millis(settings.watch_allowance()) {
                return (told, None);
            }
            self.watch.accept(told, asked, received);
            self.replace(settings, told, received);
            self.expect_dates_up_to(reference.before.map(|before| before + settings.peers_seen_within()));
            return (told, Some(ClockChange::Confirmed));
        }
        if let Standing::Untrusted { mark, since, .. } = &self.standing {
            let Some(mark) = mark else { return (told, None) };
            let passed = received.saturating_sub(*since);
            if start::contradicts(settings, mark, told, passed).is_some() {
                // Whatever the clock shows, it is not earlier than this.
                return (told.max(mark.at() + passed), None);
            }
            self.watch.accept(told, asked, received);
            self.begin_anew(settings, told, received);
            return (told, Some(ClockChange::Plausible));
        }
        let (at, news) = self.watch.feed(told, asked, received);
        let change = news.map(|news| match news {
            News::Moved(by) => ClockChange::Moved { by_ms: clamped(by) },
            News::Back => ClockChange::Back,
            News::Followed(by) => ClockChange::Followed { by_ms: clamped(by) },
        });
        if let Some(ClockChange::Followed { .. }) = change {
            self.replace(settings, told, received);
        }
        (at, change)
    }

    /// From `at` on time is steady; what was dated before may be off.
    fn begin_anew(&mut self, settings: &ClockSettings, at: Time, uptime: Duration) {
        self.standing = Standing::Trusted {
            starting_until: uptime + settings.peers_seen_within(),
            settling_until: uptime + settings.settle.max(settings.peers_seen_within()),
            steady_since: Some(at),
            replaced_at: self.replaced_at(),
            replaced_up_to: self.replaced_up_to(),
        };
    }

    fn expect_dates_up_to(&mut self, moment: Option<Time>) {
        if let Standing::Trusted { replaced_up_to, .. } = &mut self.standing {
            *replaced_up_to = moment;
        }
    }

    /// From `at` on another time counts than before.
    fn replace(&mut self, settings: &ClockSettings, at: Time, uptime: Duration) {
        self.begin_anew(settings, at, uptime);
        if let Standing::Trusted { replaced_at, .. } = &mut self.standing {
            *replaced_at = Some(at);
        }
    }

    fn replaced_at(&self) -> Option<Time> {
        match &self.standing {
            Standing::Trusted { replaced_at, .. } => *replaced_at,
            Standing::Untrusted { mark, .. } => mark.as_ref().and_then(Mark::replaced_at),
        }
    }

    fn replaced_up_to(&self) -> Option<Time> {
        match &self.standing {
            Standing::Trusted { replaced_up_to, .. } => *replaced_up_to,
            Standing::Untrusted { mark, .. } => mark.as_ref().and_then(Mark::replaced_up_to),
        }
    }

    fn is_out_of_touch(&self, settings: &ClockSettings, uptime: Duration) -> bool {
        // As long as nobody judges leases after a confirmation.
        self.heard_at.is_none_or(|at| uptime.saturating_sub(at) >= settings.peers_seen_within())
    }

    fn earliest(&self, uptime: Duration) -> Time {
        self.last.at + uptime.saturating_sub(self.last.received)
    }

    fn latest(&self, uptime: Duration) -> Time {
        // One more, since every clock here tells whole milliseconds and the truth may lie just above.
        self.last.at + uptime.saturating_sub(self.last.asked) + Duration::from_millis(1)
    }

    fn now(&self, settings: &ClockSettings, at: Time, uptime: Duration) -> Now {
        let skew = settings.skew;
        // An answer that was long on its way is dated by when it was asked for, and what came with it may be younger.
        let latest = at.max(self.latest(uptime));
        match self.standing {
            Standing::Untrusted { .. } => Now { latest, trust: Trust::Untrusted, skew, ..at.into() },
            Standing::Trusted {
                starting_until,
                settling_until,
                steady_since,
                replaced_at,
                replaced_up_to,
            } => {
                let trust = if uptime < starting_until || self.is_out_of_touch(settings, uptime) {
                    Trust::Starting
                } else if uptime < settling_until {
                    Trust::Settling
                } else {
                    Trust::Trusted
                };
                Now { at, latest, trust, skew, steady_since, replaced_at, replaced_up_to }
            }
        }
    }
}

fn clamped(millis: i128) -> i64 {
    i64::try_from(millis).unwrap_or(if millis > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;

//! What can be set on an engine, and what it is otherwise.
//!
//! Contents: spans and bounds that concern this node alone. Never here: terms of a promise to a client; those are
//! [`Policy`](semel_core::policy::Policy) and stand in the record.

use std::time::Duration;

/// Spans and bounds of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a duplicate waits for a running attempt, unless its intent says otherwise. 2 s.
    pub wait: Duration,
    /// How long a caller waits for its outcome to be stored before it is handed out as not stored. 5 s.
    pub finish_wait: Duration,
    /// After how long a call to the store counts as lost. 10 s.
    ///
    /// That holds for the start, heartbeats and listings. What a request waits for has [less](Self::request_timeout).
    pub store_timeout: Duration,
    /// The same for what a request waits for: reading, claiming and finishing one record. 1 s, and never more than
    /// [`store_timeout`](Self::store_timeout).
    ///
    /// A claim that is lost is refused, and nothing is run. An outcome that is lost is stored again and again until
    /// the store takes it: giving up one call gives up no outcome.
    pub request_timeout: Duration,
    /// When a caller that was told "in progress" should ask again. 1 s.
    pub retry_after: Duration,
    /// The shortest pause between two looks of a duplicate that waits for another node's attempt. 5 ms.
    pub poll_min: Duration,
    /// The longest such pause. 250 ms.
    pub poll_max: Duration,
    /// How many bytes of final outcomes are kept in memory. 16 MiB; 0 keeps none.
    pub cache_bytes_max: usize,
    /// When the clock is believed.
    pub clock: ClockSettings,
    /// The sweeper's pace.
    pub sweep: Sweep,
    /// The reconciler's pace.
    pub probe: Probe,
}

/// The sweeper's pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// How often the sweeper looks. 1 s; zero switches it off.
    pub every: Duration,
    /// How many records it takes at a time. 256.
    pub chunk: usize,
    /// How many records it handles in a second at most. 5,000.
    pub records_per_second_max: u32,
}

/// When the clock is believed.
///
/// Leases, quiet periods and retention are judged by the store's clock, or by the machine's where the store has none.
/// That clock can be wrong, and a wrong clock must not cost a second effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockSettings {
    /// By how much clocks may differ: those of several machines, and one and the same before and after it was set. 5 s.
    ///
    /// Added to every lease and quiet period. A clock that jumps by more than this while the engine runs is not
    /// followed.
    pub skew: Duration,
    /// How long after the start nothing is expired, re-used or purged. 2 min.
    pub settle: Duration,
    /// The longest stop of all nodes that the clock is believed about: further ahead of the time that the store
    /// remembers, it is not trusted. 7 days.
    pub downtime_max: Duration,
    /// How often the time is written into the store. 10 s.
    pub heartbeat: Duration,
    /// How long a clock must stay where it jumped to, at most an hour ahead, before it is followed. 10 min.
    pub steady_for: Duration,
}

impl ClockSettings {
    /// The smallest jump that is noticed: answers are dated in whole milliseconds, and machines are busy.
    const ALLOWANCE_MIN: Duration = Duration::from_secs(1);

    /// Within how long a node that is alive has written the time for all others to see.
    pub(crate) fn peers_seen_within(&self) -> Duration {
        self.heartbeat.saturating_mul(5) / 2
    }

    /// By how much the clock may jump before it is not followed.
    pub(crate) fn watch_allowance(&self) -> Duration {
        self.skew.max(Self::ALLOWANCE_MIN)
    }
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self {
            skew: Duration::from_secs(5),
            settle: Duration::from_mins(2),
            downtime_max: Duration::from_hours(7 * 24),
            heartbeat: Duration::from_secs(10),
            steady_for: Duration::from_mins(10),
        }
    }
}

/// The reconciler's pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The pause from the first question, if it is not answered, to the second. It doubles each time. 1 s.
    pub min: Duration,
    /// The longest pause between two questions. 10 min.
    pub max: Duration,
    /// How long after the doubt arose the matter is left to an operator. 24 h.
    pub give_up_after: Duration,
    /// How long one question may take. 30 s.
    pub timeout: Duration,
    /// How long nothing must have been heard of an owner before "it is not there" counts, where that is longer than the
    /// record's own [quiet period](semel_core::policy::Policy::quiet); a shorter one changes nothing. Zero.
    pub quiet: Duration,
    /// How many questions to one [reconciler](crate::Reconcile) are under way at once. 16.
    pub at_once_max: usize,
    /// How many are under way to all of them together. 64. One to each is allowed besides, whatever others keep
    /// waiting, until twice as many are under way.
    pub at_once_total_max: usize,
}

impl Probe {
    pub(crate) const DEFAULT: Self = Self {
        min: Duration::from_secs(1),
        max: Duration::from_mins(10),
        give_up_after: Duration::from_hours(24),
        timeout: Duration::from_secs(30),
        quiet: Duration::ZERO,
        at_once_max: 16,
        at_once_total_max: 64,
    };
}

impl Settings {
    /// How long a request waits for one answer of the store.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout.min(self.store_timeout)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(2),
            finish_wait: Duration::from_secs(5),
            store_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(1),
            retry_after: Duration::from_secs(1),
            poll_min: Duration::from_millis(5),
            poll_max: Duration::from_millis(250),
            cache_bytes_max: 16 << 20,
            clock: ClockSettings::default(),
            sweep: Sweep::default(),
            probe: Probe::default(),
        }
    }
}

impl Default for Sweep {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), chunk: 256, records_per_second_max: 5_000 }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::DEFAULT
    }
}

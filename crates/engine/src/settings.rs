//! What can be set on an engine, and what it is otherwise.
//!
//! What lives here: spans and bounds that concern this node alone. What must never: terms of a promise to a client;
//! those are [`Policy`](semel_core::policy::Policy) and stand in the record.

use std::time::Duration;

/// Spans and bounds of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a twin waits for a running attempt, unless its intent says otherwise. 2 s.
    pub wait: Duration,
    /// How long a caller waits for its outcome to be stored before it is handed out as not stored. 5 s.
    pub finish_wait: Duration,
    /// After how long a call to the store counts as lost. 10 s.
    pub store_timeout: Duration,
    /// When a caller that was told "in progress" should ask again. 1 s.
    pub retry_after: Duration,
    /// The shortest pause between two looks of a twin that waits for another node's attempt. 5 ms.
    pub poll_min: Duration,
    /// The longest such pause. 250 ms.
    pub poll_max: Duration,
    /// How many bytes of final outcomes are kept in memory. 32 MiB; 0 keeps none.
    pub cache_bytes_max: usize,
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
    /// By how much the store's time may move against the time that passed before the sweeper stops. 5 s.
    pub skew: Duration,
    /// How long it must have been back in its place before the sweeper goes on. 10 min.
    pub steady_for: Duration,
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
    /// record's own [quiet period](semel_core::policy::Policy::quiet); a shorter one changes nothing. Zero. On a store
    /// without a clock of its own, [`Sweep::skew`] is added, and nothing counts while the sweeper would stop for the clock.
    pub quiet: Duration,
    /// How many questions to one [reconciler](crate::Reconcile) are under way at once. 16.
    pub at_once_max: usize,
    /// How many are under way to all of them together. 64. One to each is allowed besides, whatever others keep waiting, until
    /// twice as many are under way.
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(2),
            finish_wait: Duration::from_secs(5),
            store_timeout: Duration::from_secs(10),
            retry_after: Duration::from_secs(1),
            poll_min: Duration::from_millis(5),
            poll_max: Duration::from_millis(250),
            cache_bytes_max: 32 << 20,
            sweep: Sweep::default(),
            probe: Probe::default(),
        }
    }
}

impl Default for Sweep {
    fn default() -> Self {
        let (every, skew) = (Duration::from_secs(1), Duration::from_secs(5));
        Self { every, chunk: 256, records_per_second_max: 5_000, skew, steady_for: Duration::from_mins(10) }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::DEFAULT
    }
}

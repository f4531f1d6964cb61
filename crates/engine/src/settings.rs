//! Settings of an engine, and their defaults.
//!
//! Durations and limits of this node. Promises to clients are in the [`Policy`](semel_core::policy::Policy) of each
//! record.

use std::time::Duration;

/// Durations and limits of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a duplicate waits for a running attempt, unless its intent says otherwise. 2 s.
    pub wait: Duration,
    /// How long a caller waits until its outcome is stored; after that it is returned as not stored. 5 s.
    pub finish_wait: Duration,
    /// After how long a call to the store counts as lost. 10 s.
    ///
    /// For the start, heartbeats and listings. Requests have a [shorter timeout](Self::request_timeout).
    pub store_timeout: Duration,
    /// The timeout for calls that a request waits for: reading, claiming and finishing one record. 1 s, and at most
    /// [`store_timeout`](Self::store_timeout).
    ///
    /// If a claim times out, nothing is run. If storing an outcome times out, the engine keeps trying until it is
    /// stored.
    pub request_timeout: Duration,
    /// When a caller should retry after "in progress". 1 s.
    pub retry_after: Duration,
    /// The shortest polling interval of a duplicate that waits for another node's attempt. 5 ms.
    pub poll_min: Duration,
    /// The longest polling interval. 250 ms.
    pub poll_max: Duration,
    /// The size of the cache of final outcomes in bytes. 16 MiB; 0 turns it off.
    pub cache_bytes_max: usize,
    /// When the clock is trusted.
    pub clock: ClockSettings,
    /// The sweeper's pace.
    pub sweep: Sweep,
    /// The reconciler's pace.
    pub probe: Probe,
}

/// The sweeper's pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// How often the sweeper runs. 1 s; zero turns it off. Then another node has to sweep the store: nothing else
    /// removes records, and a store that keeps them in memory runs out of it.
    pub every: Duration,
    /// How many records it reads at a time. 256.
    pub chunk: usize,
    /// The most records per second. 5,000. On a store that [keeps records in
    /// memory](semel_core::store::Capabilities::kept_in_memory), the rate grows with the lag if the longest overdue
    /// record is overdue by more than five rounds, and five seconds: up to eight times as much.
    pub records_per_second_max: u32,
}

/// When the clock is trusted.
///
/// Leases, quiet periods and retention are judged by the store's clock, or by the machine's clock if the store has
/// none. That clock can be wrong, and a wrong clock must not lead to a second effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockSettings {
    /// How much clocks may differ: clocks of several machines, and one clock before and after it was set. 5 s.
    ///
    /// Added to every lease and quiet period. A larger jump of the clock while the engine runs is not followed.
    pub skew: Duration,
    /// How long after the start nothing is expired, reused or purged. 2 min.
    pub settle: Duration,
    /// The longest plausible downtime of all nodes: a clock further ahead of the last stored time is not trusted. 7
    /// days.
    pub downtime_max: Duration,
    /// How often the time is written into the store. 10 s.
    pub heartbeat: Duration,
    /// How long a clock that jumped ahead by at most an hour must be steady before it is followed. 10 min.
    pub steady_for: Duration,
}

impl ClockSettings {
    /// The smallest jump that is detected: answers have whole milliseconds, and machines are busy.
    const ALLOWANCE_MIN: Duration = Duration::from_secs(1);

    /// How long it takes at most until a live node has written its time to the store.
    pub(crate) fn peers_seen_within(&self) -> Duration {
        self.heartbeat.saturating_mul(5) / 2
    }

    /// The largest jump of the clock that is followed.
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
    /// The pause between the first probe and the second. It doubles each time. 1 s.
    pub min: Duration,
    /// The longest pause between two probes. 10 min.
    pub max: Duration,
    /// How long after the doubt arose the record is left to an operator. 24 h.
    pub give_up_after: Duration,
    /// How long one probe may take. 30 s.
    pub timeout: Duration,
    /// The minimum quiet period before "not found" counts, if it is longer than the record's own [quiet
    /// period](semel_core::policy::Policy::quiet); a shorter one has no effect. Zero.
    pub quiet: Duration,
    /// The most concurrent probes per [reconciler](crate::Reconcile). 16.
    pub at_once_max: usize,
    /// The most concurrent probes in total. 64. At least one probe per reconciler may run, up to twice this limit.
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
    /// The timeout of a request's call to the store.
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

//! How long a step took, and the time: the only clocks in this crate. No decision depends on them.

use std::time::{Duration, Instant, SystemTime};

/// A running stopwatch.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one file of xtask that reads a clock, to report durations"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since its start.
    pub(crate) fn read(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A number that no earlier run has used.
#[expect(clippy::disallowed_methods, reason = "the one file of xtask that reads a clock")]
pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

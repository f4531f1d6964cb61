//! How long a step took: the only clock in this crate. No decision depends on it.

use std::time::{Duration, Instant};

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

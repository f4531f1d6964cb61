//! The only place in this crate that reads a clock: to measure an exploration.

use std::time::{Duration, Instant};

/// Measures how long something took.
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the file that may")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long since it was started.
    pub fn since_start(&self) -> Duration {
        self.0.elapsed()
    }
}

//! The only module of this crate that reads a clock. No decision depends on it; all randomness comes from the
//! seed.

use std::time::{Duration, Instant};

/// Wall time in milliseconds: the same clock that decides about leases in a store without its own.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads it")]
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Measures how long something took.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads it")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn lap(&self) -> Duration {
        self.0.elapsed()
    }
}

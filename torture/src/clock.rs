//! The torture's clock.
//!
//! What lives here: the one place of this crate that reads a clock. What must never: a decision; whatever is random comes
//! from the seed.

use std::time::{Duration, Instant};

/// Wall time in milliseconds, the same clock that judges leases in a store that has none.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads it")]
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How long something took.
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

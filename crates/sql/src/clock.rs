//! The clock for stores that have none: the only place in this crate that reads a clock.

use semel_core::store::Clock;
use semel_core::time::Time;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long this process has used the crate, by a clock that is never set.
pub(crate) fn uptime() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    let now = Instant::now();
    now.saturating_duration_since(*BEGIN.get_or_init(|| now))
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn now(&self) -> Time {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Time::from_millis(0) + since_epoch.unwrap_or_default()
    }
}

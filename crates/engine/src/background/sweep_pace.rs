//! How fast the sweeper works: its configured rate, and up to eight times as fast where it has to catch up.

use crate::settings::Sweep;
use std::time::Duration;

/// How many times the configured rate a sweeper that is behind may reach.
const CATCH_UP_MAX: u32 = 8;
/// A lag of this many rounds is usual. From there on, the rate grows with the lag.
const USUAL_ROUNDS: u32 = 5;
const USUAL_LAG_MIN: Duration = Duration::from_secs(5);

/// The pace of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    per_second: u32,
    usual_lag: Duration,
    /// Whether it works faster if it is behind.
    catches_up: bool,
}

impl Pace {
    /// `is_in_memory`: the store keeps its records in memory.
    pub(crate) fn new(sweep: &Sweep, is_in_memory: bool) -> Self {
        Self {
            per_second: sweep.records_per_second_max.max(1),
            usual_lag: (sweep.every * USUAL_ROUNDS).max(USUAL_LAG_MIN),
            catches_up: is_in_memory,
        }
    }

    /// How many records may be handled in a second, if the longest overdue one is overdue by `lag`.
    fn rate(self, lag: Duration) -> u64 {
        let base = u64::from(self.per_second);
        if !self.catches_up {
            return base;
        }
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let grown = base.saturating_mul(millis(lag)) / millis(self.usual_lag).max(1);
        grown.clamp(base, base.saturating_mul(u64::from(CATCH_UP_MAX)))
    }

    /// The pause after `handled` records that took `took`. On a store in memory it is at least an eighth of that time:
    /// requests wait behind one chunk at most. A longer rest would let a store grow whose server is always busy.
    pub(crate) fn pause(self, handled: usize, lag: Duration, took: Duration) -> Duration {
        let handled = u64::try_from(handled).unwrap_or(u64::MAX);
        let fair = Duration::from_nanos(handled.saturating_mul(1_000_000_000) / self.rate(lag));
        let rest = if self.catches_up { took / 8 } else { Duration::ZERO };
        fair.saturating_sub(took).max(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Pace = Pace { per_second: 5_000, usual_lag: Duration::from_secs(5), catches_up: false };
    const MEMORY: Pace = Pace { catches_up: true, ..DISK };

    fn rates(pace: Pace) -> [u64; 6] {
        [0, 5, 10, 24, 40, 4_000_000].map(|secs| pace.rate(Duration::from_secs(secs)))
    }

    #[test]
    fn the_rate_grows_with_the_lag_up_to_a_bound() {
        assert_eq!(rates(MEMORY), [5_000, 5_000, 10_000, 24_000, 40_000, 40_000]);
        assert_eq!(rates(DISK), [5_000; 6], "on a disk, requests come first");
        let unlimited = Pace { per_second: u32::MAX, ..MEMORY };
        assert_eq!(unlimited.rate(Duration::from_hours(1)), 8 * u64::from(u32::MAX));
    }

    #[test]
    fn a_sweeper_rests_between_two_chunks() {
        let (late, millis) = (Duration::from_mins(1), Duration::from_millis);
        assert_eq!(MEMORY.pause(400, late, millis(4)), millis(6), "40,000 in a second");
        assert_eq!(MEMORY.pause(400, late, millis(100)), Duration::from_micros(12_500), "the server is slow");
        assert_eq!(MEMORY.pause(400, Duration::ZERO, millis(4)), millis(76));
        assert_eq!(DISK.pause(400, late, millis(4)), millis(76));
        assert_eq!(DISK.pause(400, late, millis(100)), Duration::ZERO);
    }
}

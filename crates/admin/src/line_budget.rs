//! How many log lines a flood can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// This many lines in each interval.
const LINES_MAX: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines that may be written now, and how many were left out since the last one.
#[derive(Debug, Default)]
pub struct LineBudget(Mutex<Interval>);

#[derive(Debug, Default)]
struct Interval {
    began: Option<Duration>,
    lines: u32,
    left_out: u64,
}

impl LineBudget {
    /// Whether a line may be written at the uptime `now`: then how many were left out before it.
    pub fn take(&self, now: Duration) -> Option<u64> {
        let mut interval = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if interval.began.is_none_or(|began| now >= began + INTERVAL) {
            (interval.began, interval.lines) = (Some(now), 0);
        }
        if interval.lines == LINES_MAX {
            interval.left_out += 1;
            return None;
        }
        interval.lines += 1;
        Some(std::mem::take(&mut interval.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_those_left_out_are_counted() {
        let (budget, begun) = (LineBudget::default(), Duration::from_secs(77));
        let lines = (0..1_000).filter(|_| budget.take(begun) == Some(0)).count();
        assert_eq!(lines, 100);
        assert_eq!(budget.take(begun + Duration::from_millis(9_999)), None);
        assert_eq!(budget.take(begun + Duration::from_secs(10)), Some(901));
        assert_eq!(budget.take(begun + Duration::from_secs(10)), Some(0));
    }
}

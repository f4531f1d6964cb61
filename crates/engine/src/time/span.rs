//! Arithmetic on uptimes and moments that may lie anywhere.

use semel_core::time::Time;
use std::time::Duration;

/// The fastest that a clock is slewed into place without a jump: 500 parts in a million.
const SLEW_PPM: u32 = 500;

/// How far a clock that is being slewed may have come, in whole milliseconds. Zero if it is too soon for one: then
/// what has passed goes on adding up.
pub(super) fn drift_max(from: Duration, to: Duration) -> i128 {
    millis(to.saturating_sub(from).saturating_mul(SLEW_PPM) / 1_000_000)
}

pub(super) fn millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX)
}

/// The moment so many milliseconds after the epoch, or the nearest one there is.
pub(super) fn moment(millis: i128) -> Time {
    Time::from_millis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX))
}

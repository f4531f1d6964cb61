//! Saturating arithmetic on uptimes and moments.

use semel_core::time::Time;
use std::time::Duration;

/// The fastest slew of a clock without a jump: 500 parts per million.
const SLEW_PPM: u32 = 500;

/// How far a slewed clock may have moved, in whole milliseconds. Zero if that is less than one; the elapsed time then
/// keeps accumulating.
pub(super) fn drift_max(from: Duration, to: Duration) -> i128 {
    millis(to.saturating_sub(from).saturating_mul(SLEW_PPM) / 1_000_000)
}

pub(super) fn millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX)
}

/// The moment `millis` after the epoch, or the nearest representable one.
pub(super) fn moment(millis: i128) -> Time {
    Time::from_millis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX))
}

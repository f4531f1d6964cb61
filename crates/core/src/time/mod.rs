//! Moments of the store's clock, and how far the current time can be trusted.
//!
//! One type for a moment, with arithmetic that saturates instead of wrapping. Nothing here reads a clock: time reaches
//! the core as an argument.

mod now;

pub use now::{Now, Trust};

use std::fmt;
use std::time::Duration;

/// A moment: whole milliseconds since the Unix epoch.
///
/// Moments come from the clock of the store that holds the records, so that every node judges a lease by the same
/// clock. Arithmetic saturates at both ends: an absurd duration from a configuration file leads to the far future,
/// never to the past.
///
/// ```
/// use semel_core::time::Time;
/// use std::time::Duration;
///
/// let claimed = Time::from_millis(1_000);
/// let lease = claimed + Duration::from_secs(30);
/// assert_eq!(lease.as_millis(), 31_000);
/// assert_eq!(lease.since(claimed), Duration::from_secs(30));
/// assert_eq!(claimed.since(lease), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The last representable moment.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this moment is; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl std::ops::Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_duration_saturates_instead_of_wrapping() {
        assert_eq!(Time::from_millis(5) + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_millis(5) - Duration::MAX, Time::from_millis(0));
    }

    #[test]
    fn subtraction_undoes_addition() {
        let t = Time::from_millis(10);
        assert_eq!((t + Duration::from_millis(7)) - Duration::from_millis(7), t);
        assert_eq!(format!("{t:?}"), "10ms");
    }
}

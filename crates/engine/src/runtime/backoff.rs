//! How long to wait before trying again.
//!
//! Random durations below a ceiling that doubles. The caller supplies the random bits and sleeps.

use std::time::Duration;

/// Exponential back-off with full jitter above a floor.
///
/// The n-th pause is uniform between `min` and a ceiling that starts at twice `min`, doubles every time and ends at
/// `max`. The full range keeps waiters of one event from retrying at the same time; never below `min`, because zero
/// would be a busy loop.
///
/// ```
/// use semel::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// let span = backoff.next_span(0x5eed); // in production: 128 fresh random bits
/// assert!((Duration::from_millis(50)..=Duration::from_millis(100)).contains(&span));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// From `min` up to `max` (at least `min`).
    pub fn new(min: Duration, max: Duration) -> Self {
        let max = max.max(min);
        Self { min, max, ceiling: min.saturating_mul(2).min(max) }
    }

    /// The next pause, chosen by 128 random `bits`.
    pub fn next_span(&mut self, bits: u128) -> Duration {
        let ceiling = self.ceiling;
        self.ceiling = ceiling.saturating_mul(2).min(self.max);
        let choices = ceiling.saturating_sub(self.min).as_nanos() + 1;
        // The bias of the remainder is below one in 2^32, because no duration has more than 2^94 nanoseconds.
        self.min.saturating_add(Duration::from_nanos_u128(bits % choices))
    }

    /// An endless iterator over the pauses, each chosen by a call of `bits`.
    pub fn spans(mut self, mut bits: impl FnMut() -> u128) -> impl Iterator<Item = Duration> {
        std::iter::repeat_with(move || self.next_span(bits()))
    }

    /// Starts again from `min`, after a success.
    pub fn reset(&mut self) {
        *self = Self::new(self.min, self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// The longest of the next spans.
    fn ceilings(backoff: &Backoff, number: usize) -> Vec<Duration> {
        let mut backoff = backoff.clone();
        let longest = |backoff: &mut Backoff| {
            let choices = backoff.ceiling.saturating_sub(backoff.min).as_nanos() + 1;
            backoff.next_span(choices - 1)
        };
        (0..number).map(|_| longest(&mut backoff)).collect()
    }

    #[test]
    fn the_ceiling_doubles_until_it_is_reached() {
        let backoff = Backoff::new(MS(100), MS(1_000));
        assert_eq!(ceilings(&backoff, 5), [MS(200), MS(400), MS(800), MS(1_000), MS(1_000)]);
    }

    #[test]
    fn every_delay_lies_between_its_minimum_and_maximum() {
        let backoff = Backoff::new(MS(100), MS(1_000));
        assert!(backoff.clone().spans(|| 0).take(9).all(|span| span == MS(100)));
        let mut bits = 1_u128;
        let drawn = backoff.spans(|| {
            bits = bits.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            bits >> 20
        });
        let drawn: Vec<_> = drawn.skip(4).take(2_000).collect();
        assert!(drawn.iter().all(|span| (MS(100)..=MS(1_000)).contains(span)));
        let low = drawn.iter().filter(|span| **span < MS(550)).count();
        assert!((800..1_200).contains(&low), "evenly over the whole range: {low}");
    }

    #[test]
    fn a_success_resets_the_backoff() {
        let mut backoff = Backoff::new(MS(100), MS(1_000));
        for _ in 0..5 {
            backoff.next_span(7);
        }
        assert_eq!(ceilings(&backoff, 1), [MS(1_000)]);
        backoff.reset();
        assert_eq!(ceilings(&backoff, 1), [MS(200)]);
    }

    #[test]
    fn unusual_settings_are_used_as_given() {
        assert_eq!(Backoff::new(MS(9), MS(5)).next_span(u128::MAX), MS(9));
        assert_eq!(Backoff::new(MS(0), MS(0)).next_span(u128::MAX), MS(0));
        let mut longest = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(longest.next_span(u128::MAX), Duration::MAX);
    }
}

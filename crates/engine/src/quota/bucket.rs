//! A token bucket, stored as the moment at which it is full again.
//!
//! The arithmetic of a rate, with the time as an argument.

use super::config::Rate;
use super::table::Tracked;
use std::time::Duration;

/// The time per token, and the time that a full bucket represents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Price {
    token: Duration,
    full: Duration,
}

impl From<Rate> for Price {
    fn from(rate: Rate) -> Self {
        // Rounded up to whole nanoseconds, so the rate is never exceeded.
        let nanos = rate.per.as_nanos().div_ceil(u128::from(rate.count.get()));
        let token = Duration::from_nanos_u128(nanos);
        Self { token, full: token.saturating_mul(rate.count.get()) }
    }
}

/// The state of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bucket {
    /// When it is full again if nothing more is taken. Later means emptier.
    full_at: Duration,
    /// When it was last full.
    busy_since: Duration,
}

/// A taken token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    price: Price,
    at: Duration,
}

impl Bucket {
    /// How long until a token is available; zero if one is.
    pub(super) fn wait(&self, price: Price, now: Duration) -> Duration {
        let after = self.full_at.max(now).saturating_add(price.token);
        after.saturating_sub(now.saturating_add(price.full))
    }

    /// Takes a token without checking: the caller has checked.
    pub(super) fn take(&mut self, price: Price, now: Duration) -> Taken {
        if self.full_at <= now {
            self.busy_since = now;
            self.full_at = now;
        }
        self.full_at = self.full_at.saturating_add(price.token);
        Taken { price, at: now.max(self.busy_since) }
    }

    /// Puts a token back, unless the bucket was full since then: time has already restored it.
    pub(super) fn put_back(&mut self, taken: Taken) {
        if taken.at >= self.busy_since {
            self.full_at = self.full_at.saturating_sub(taken.price.token);
        }
    }
}

impl Tracked for Bucket {
    type Load = Duration;

    fn load(&self) -> Duration {
        self.full_at
    }

    fn raise(&mut self, forgotten: &Self) {
        self.full_at = self.full_at.max(forgotten.full_at);
        self.busy_since = self.busy_since.max(forgotten.busy_since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn price(count: u32, per: Duration) -> Price {
        Price::from(Rate { count: NonZeroU32::new(count).expect("not zero"), per })
    }

    fn taken_at_once(bucket: &mut Bucket, price: Price, now: Duration) -> u32 {
        let mut tokens = 0;
        while bucket.wait(price, now).is_zero() {
            bucket.take(price, now);
            tokens += 1;
        }
        tokens
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_full_bucket_gives_a_burst_then_one_by_one() {
        let price = price(10, S(60));
        let mut bucket = Bucket::default();
        assert_eq!(taken_at_once(&mut bucket, price, S(1000)), 10);
        assert_eq!(bucket.wait(price, S(1000)), S(6));
        assert_eq!(bucket.wait(price, S(1005)), S(1));
        assert_eq!(taken_at_once(&mut bucket, price, S(1006)), 1);
        assert_eq!(taken_at_once(&mut bucket, price, S(1020)), 2);
        assert_eq!(taken_at_once(&mut bucket, price, S(9000)), 10, "no more than its count is saved up");
    }

    #[test]
    fn a_bucket_is_full_at_the_very_start_of_time() {
        assert_eq!(taken_at_once(&mut Bucket::default(), price(3, S(60)), S(0)), 3);
    }

    #[test]
    fn an_uneven_rate_never_gives_more() {
        for count in [3, 7, 999, 1_000_003] {
            let price = price(count, S(1));
            assert_eq!(taken_at_once(&mut Bucket::default(), price, S(5)), count);
        }
        let fastest = price(u32::MAX, Duration::from_nanos(1));
        assert_eq!(fastest.token, Duration::from_nanos(1));
    }

    #[test]
    fn a_token_put_back_can_be_taken_again() {
        let price = price(2, S(60));
        let mut bucket = Bucket::default();
        let first = bucket.take(price, S(10));
        bucket.take(price, S(10));
        assert!(!bucket.wait(price, S(10)).is_zero());
        bucket.put_back(first);
        assert_eq!(taken_at_once(&mut bucket, price, S(10)), 1);
    }

    #[test]
    fn a_refilled_token_is_not_refunded_again() {
        let price = price(2, S(60));
        let mut bucket = Bucket::default();
        let late = bucket.take(price, S(10));
        assert_eq!(taken_at_once(&mut bucket, price, S(100)), 2, "full again since");
        bucket.put_back(late);
        assert_eq!(taken_at_once(&mut bucket, price, S(100)), 0);
    }

    #[test]
    fn absurd_durations_saturate() {
        let price = price(u32::MAX, Duration::MAX);
        let mut bucket = Bucket::default();
        bucket.take(price, Duration::MAX);
        assert_eq!(bucket.full_at, Duration::MAX);
    }
}

//! Rate limits per address: a token bucket for each, in bounded memory. An address cannot reset its bucket by pushing
//! itself out of the table.

use semel::quota::Rate;
use semel_text::address::network;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many addresses are distinguished.
const ADDRESSES_MAX: usize = 1024;

/// A bucket per address, stored as the time at which it is full again.
pub(super) struct Limiter {
    /// The time that one token costs.
    token: Duration,
    /// The capacity of a bucket, as time.
    full: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    full_at: BTreeMap<IpAddr, Duration>,
    /// What an address that is not in the table starts from: the most that any evicted address had used up.
    floor: Duration,
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        let nanos = rate.per.as_nanos().div_ceil(u128::from(rate.count.get()));
        let token = Duration::from_nanos_u128(nanos);
        Self { token, full: token.saturating_mul(rate.count.get()), table: Mutex::default() }
    }

    /// Takes a token, or returns how long the next one takes.
    pub(super) fn take(&self, address: IpAddr, now: Duration) -> Result<(), Duration> {
        let address = network(address);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = table.full_at.get(&address).copied().unwrap_or(table.floor);
        if let Some(wait) = self.missing(full_at, now) {
            return Err(wait);
        }
        table.make_room_for(address, now);
        let full_at = full_at.max(now).saturating_add(self.token);
        table.full_at.insert(address, full_at);
        Ok(())
    }

    fn missing(&self, full_at: Duration, now: Duration) -> Option<Duration> {
        let after = full_at.max(now).saturating_add(self.token);
        let wait = after.saturating_sub(now.saturating_add(self.full));
        (!wait.is_zero()).then_some(wait)
    }
}

impl Table {
    fn make_room_for(&mut self, address: IpAddr, now: Duration) {
        if self.full_at.len() < ADDRESSES_MAX || self.full_at.contains_key(&address) {
            return;
        }
        // A full bucket need not be stored.
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() < ADDRESSES_MAX {
            return;
        }
        if let Some((first, full_at)) = self.full_at.iter().map(|(a, f)| (*a, *f)).min_by_key(|(_, f)| *f) {
            self.full_at.remove(&first);
            self.floor = self.floor.max(full_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn limiter(count: u32, seconds: u64) -> Limiter {
        let count = NonZeroU32::new(count).expect("not zero");
        Limiter::new(Rate { count, per: Duration::from_secs(seconds) })
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_bucket_refills_one_token_at_a_time() {
        let limiter = limiter(3, 30);
        assert_eq!([(); 3].map(|()| limiter.take(address(1), NOW)), [Ok(()); 3]);
        assert_eq!(limiter.take(address(1), NOW), Err(Duration::from_secs(10)));
        assert_eq!(limiter.take(address(2), NOW), Ok(()), "another's is another's");
        let later = NOW + Duration::from_secs(10);
        assert_eq!(limiter.take(address(1), later), Ok(()));
        assert_eq!(limiter.take(address(1), later), Err(Duration::from_secs(10)));
    }

    #[test]
    fn the_table_is_bounded_without_lifting_a_limit() {
        let limiter = limiter(1, 1_000);
        assert_eq!(limiter.take(address(0), NOW), Ok(()));
        for number in 1..10_000 {
            limiter.take(address(number), NOW).ok();
        }
        let kept = limiter.table.lock().expect("sound").full_at.len();
        assert_eq!(kept, ADDRESSES_MAX);
        assert!(limiter.take(address(0), NOW).is_err());
        // Once everybody has everything again, newcomers do too.
        assert_eq!(limiter.take(address(20_000), NOW + Duration::from_secs(1_000)), Ok(()));
    }

    #[test]
    fn one_household_is_one_address() {
        let limiter = limiter(1, 10);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(limiter.take(ip("2001:db8:1:2::3"), NOW), Ok(()));
        assert!(limiter.take(ip("2001:db8:1:2:ffff::4"), NOW).is_err());
        assert_eq!(limiter.take(ip("2001:db8:1:3::3"), NOW), Ok(()));
        assert_eq!(limiter.take(ip("10.0.0.1"), NOW), Ok(()));
        assert!(limiter.take(ip("::ffff:10.0.0.1"), NOW).is_err());
    }
}

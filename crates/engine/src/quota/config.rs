//! The limits that an operator can set, and their validation.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// A number of new keys within a period, also as a burst.
///
/// A bucket of `count` tokens that fills evenly within `per`: an idle caller may use `count` new keys in a burst, and
/// at most twice as many in any period of length `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: NonZeroU32,
    /// Within how long.
    pub per: Duration,
}

/// Rates on the new keys of some commands, such as those of one operation. All off by default.
///
/// They apply in addition to an engine's [`Quotas`]. They have no caps: a store counts records by caller, not by
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// New keys of one caller. Per node, like the other two.
    pub new_per_caller: Option<Rate>,
    /// New keys from one peer address (IPv6: from one /64 network).
    pub new_per_address: Option<Rate>,
    /// New keys of all callers together.
    pub new_in_total: Option<Rate>,
}

impl Rates {
    /// Whether nothing is limited.
    pub fn are_off(&self) -> bool {
        self.new_per_caller.is_none() && self.new_per_address.is_none() && self.new_in_total.is_none()
    }

    /// Validates the rates.
    pub fn check(&self) -> Result<(), QuotasError> {
        self.quotas(Quotas::default().tracked_max).check()
    }

    pub(super) fn quotas(&self, tracked_max: usize) -> Quotas {
        let Self { new_per_caller, new_per_address, new_in_total } = *self;
        Quotas { new_per_caller, new_per_address, new_in_total, tracked_max, ..Quotas::default() }
    }
}

/// The limits on new keys and on records kept. All off by default.
///
/// ```
/// use semel::quota::{Quotas, Rate};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let count = NonZeroU32::new(100).unwrap();
/// let quotas = Quotas {
///     new_per_caller: Some(Rate { count, per: Duration::from_mins(1) }),
///     records_in_total: Some(50_000_000),
///     ..Quotas::default()
/// };
/// quotas.check()?;
/// # Ok::<(), semel::quota::QuotasError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas {
    /// New keys of one caller. Per node.
    pub new_per_caller: Option<Rate>,
    /// New keys from one peer address (IPv6: from one /64 network). Per node.
    pub new_per_address: Option<Rate>,
    /// New keys of all callers together. Per node.
    pub new_in_total: Option<Rate>,
    /// Records of one caller in the store, including tombstones. Counted by the store, so it applies to all nodes
    /// together.
    pub records_per_caller: Option<u64>,
    /// New keys from one peer address within [`address_window`](Self::address_window). A record does not contain an
    /// address, so this replaces a count of records. Per node.
    pub records_per_address: Option<u32>,
    /// All records in the store, including tombstones. Counted by the store.
    pub records_in_total: Option<u64>,
    /// How long a new key counts against its address. Choose the longest retention (ttl and tombstone), so that it
    /// approximates the number of records; by default 31 days.
    pub address_window: Duration,
    /// How many callers, and how many addresses, are tracked. More callers cannot evade the limits: see the
    /// [module](super).
    pub tracked_max: usize,
    /// How old a count of a caller's records may be near the limit; far below it, ten times as old.
    pub recount_caller_after: Duration,
    /// How old a count of all records may be near the limit; far below it, ten times as old.
    pub recount_total_after: Duration,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            new_per_caller: None,
            new_per_address: None,
            new_in_total: None,
            records_per_caller: None,
            records_per_address: None,
            records_in_total: None,
            address_window: Duration::from_hours(31 * 24),
            tracked_max: 65_536,
            recount_caller_after: Duration::from_secs(1),
            recount_total_after: Duration::from_secs(10),
        }
    }
}

impl Quotas {
    /// The shortest [`address_window`](Self::address_window).
    pub const ADDRESS_WINDOW_MIN: Duration = Duration::from_mins(1);

    /// Whether nothing is limited.
    pub fn are_off(&self) -> bool {
        self.new_per_caller.is_none()
            && self.new_per_address.is_none()
            && self.new_in_total.is_none()
            && self.records_per_caller.is_none()
            && self.records_per_address.is_none()
            && self.records_in_total.is_none()
    }

    /// The name of a cap that needs exact counts from the store, if there is one.
    pub(crate) fn counted_by_the_store(&self) -> Option<&'static str> {
        let per_caller = self.records_per_caller.map(|_| "records_per_caller");
        per_caller.or_else(|| self.records_in_total.map(|_| "records_in_total"))
    }

    /// Validates the limits. Do not use limits that fail here.
    pub fn check(&self) -> Result<(), QuotasError> {
        let rates = [
            ("new_per_caller", self.new_per_caller),
            ("new_per_address", self.new_per_address),
            ("new_in_total", self.new_in_total),
        ];
        let in_no_time = |(_, rate): &&(_, Option<Rate>)| rate.is_some_and(|rate| rate.per.is_zero());
        let caps = [
            ("records_per_caller", self.records_per_caller),
            ("records_per_address", self.records_per_address.map(u64::from)),
            ("records_in_total", self.records_in_total),
        ];
        if let Some((name, _)) = rates.iter().find(in_no_time) {
            Err(QuotasError::RateInNoTime(name))
        } else if let Some((name, _)) = caps.iter().find(|(_, cap)| *cap == Some(0)) {
            Err(QuotasError::NothingAllowed(name))
        } else if self.tracked_max == 0 {
            Err(QuotasError::NobodyTracked)
        } else if self.address_window < Self::ADDRESS_WINDOW_MIN {
            Err(QuotasError::WindowTooShort)
        } else {
            Ok(())
        }
    }
}

/// Why limits are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotasError {
    /// The period of a rate is zero.
    RateInNoTime(&'static str),
    /// A cap of zero would refuse every new key.
    NothingAllowed(&'static str),
    /// No caller or address would be tracked.
    NobodyTracked,
    /// The window is too short to represent stored records.
    WindowTooShort,
    /// A cap on records needs a store that counts exactly.
    NotCounted(&'static str),
}

impl fmt::Display for QuotasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCounted(name) => write!(
                f,
                "{name}: this store cannot count its records exactly; limit the rate of new keys instead"
            ),
            Self::RateInNoTime(name) => {
                write!(f, "{name}: the period of the rate must be longer than zero")
            }
            Self::NothingAllowed(name) => {
                write!(f, "{name}: a cap of 0 would refuse every new key; leave it out for no cap")
            }
            Self::NobodyTracked => {
                f.write_str("tracked_max must be at least 1; otherwise all callers would share one limit")
            }
            Self::WindowTooShort => f.write_str(
                "address_window must be at least one minute; it should be as long as the longest retention",
            ),
        }
    }
}

impl std::error::Error for QuotasError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Quotas)) -> Result<(), QuotasError> {
        let mut quotas = Quotas::default();
        change(&mut quotas);
        quotas.check()
    }

    #[test]
    fn nothing_is_limited_until_at_least_one_limit_is_set() {
        assert!(Quotas::default().are_off());
        assert_eq!(Quotas::default().check(), Ok(()));
        let rate = Some(Rate { count: NonZeroU32::MIN, per: Duration::from_secs(1) });
        let limits: [fn(&mut Quotas, Option<Rate>); 6] = [
            |q, rate| q.new_per_caller = rate,
            |q, rate| q.new_per_address = rate,
            |q, rate| q.new_in_total = rate,
            |q, _| q.records_per_caller = Some(1),
            |q, _| q.records_per_address = Some(1),
            |q, _| q.records_in_total = Some(1),
        ];
        for limit in limits {
            let mut quotas = Quotas::default();
            limit(&mut quotas, rate);
            assert!(!quotas.are_off(), "{quotas:?}");
            assert_eq!(quotas.check(), Ok(()));
        }
    }

    #[test]
    fn each_invalid_limit_has_its_own_error() {
        let never = Some(Rate { count: NonZeroU32::MIN, per: Duration::ZERO });
        assert_eq!(with(|q| q.new_per_caller = never), Err(QuotasError::RateInNoTime("new_per_caller")));
        assert_eq!(with(|q| q.new_per_address = never), Err(QuotasError::RateInNoTime("new_per_address")));
        assert_eq!(with(|q| q.new_in_total = never), Err(QuotasError::RateInNoTime("new_in_total")));
        let zero = Err(QuotasError::NothingAllowed("records_per_caller"));
        assert_eq!(with(|q| q.records_per_caller = Some(0)), zero);
        let zero = Err(QuotasError::NothingAllowed("records_per_address"));
        assert_eq!(with(|q| q.records_per_address = Some(0)), zero);
        let zero = Err(QuotasError::NothingAllowed("records_in_total"));
        assert_eq!(with(|q| q.records_in_total = Some(0)), zero);
        assert_eq!(with(|q| q.tracked_max = 0), Err(QuotasError::NobodyTracked));
        let short = Duration::from_secs(59);
        assert_eq!(with(|q| q.address_window = short), Err(QuotasError::WindowTooShort));
        assert_eq!(with(|q| q.address_window = Quotas::ADDRESS_WINDOW_MIN), Ok(()));
        let text = QuotasError::NothingAllowed("records_in_total").to_string();
        assert!(text.starts_with("records_in_total: "), "{text}");
    }
}

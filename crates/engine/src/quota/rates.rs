//! Rates on the new keys of some commands, besides the engine's own limits.
//!
//! They need no counts from the store.

use super::config::{Quotas, QuotasError, Rates};
use super::ledger::Ledger;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Counts new keys under their own [`Rates`]; see [`Intent::limited_by`](crate::Intent::limited_by).
///
/// Cheap to clone; all clones share their counts. A new keeper starts with nothing used up.
///
/// ```
/// use semel::quota::{Rate, RateKeeper, Rates};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let ten = Rate { count: NonZeroU32::new(10).unwrap(), per: Duration::from_mins(1) };
/// let exports = RateKeeper::new(Rates { new_per_caller: Some(ten), ..Rates::default() })?;
/// # Ok::<(), semel::quota::QuotasError>(())
/// ```
#[derive(Clone)]
pub struct RateKeeper {
    rates: Rates,
    /// The lock is held only for a few map operations, never across an await.
    pub(super) ledger: Arc<Mutex<Ledger>>,
}

impl RateKeeper {
    /// A keeper of these rates, with nothing used up. Tracks as many callers and addresses as [`Quotas`] do by
    /// default. Fails like [`Rates::check`].
    pub fn new(rates: Rates) -> Result<Self, QuotasError> {
        Self::tracking(rates, Quotas::default().tracked_max)
    }

    /// The same, tracking at most `tracked_max` callers, and as many addresses.
    pub fn tracking(rates: Rates, tracked_max: usize) -> Result<Self, QuotasError> {
        let quotas = rates.quotas(tracked_max);
        quotas.check()?;
        Ok(Self { rates, ledger: Arc::new(Mutex::new(Ledger::new(&quotas))) })
    }

    /// The rates.
    pub const fn rates(&self) -> &Rates {
        &self.rates
    }
}

impl fmt::Debug for RateKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateKeeper").field(&self.rates).finish()
    }
}

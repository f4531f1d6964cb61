//! Rates on the new keys of some commands, besides the engine's own limits.
//!
//! Contents: who holds them. Never here: a question to the store; there is nothing here that it counts.

use super::config::{Quotas, QuotasError, Rates};
use super::ledger::Ledger;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Keeps count of new keys under [`Rates`] of their own; see [`Intent::limited_by`](crate::Intent::limited_by).
///
/// Cheap to clone; every clone counts the same keys. Anyone who makes another one hands out everything anew.
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
    /// Held for a few map operations only, never across an await.
    pub(super) ledger: Arc<Mutex<Ledger>>,
}

impl RateKeeper {
    /// A keeper of these rates, with nothing used up, that tells as many callers and addresses apart as
    /// [`Quotas`] do by default. Fails as [`Rates::check`] does.
    pub fn new(rates: Rates) -> Result<Self, QuotasError> {
        Self::tracking(rates, Quotas::default().tracked_max)
    }

    /// The same, where at most `tracked_max` callers, and as many addresses, are distinguished at once.
    pub fn tracking(rates: Rates, tracked_max: usize) -> Result<Self, QuotasError> {
        let quotas = rates.quotas(tracked_max);
        quotas.check()?;
        Ok(Self { rates, ledger: Arc::new(Mutex::new(Ledger::new(&quotas))) })
    }

    /// What is kept to.
    pub const fn rates(&self) -> &Rates {
        &self.rates
    }
}

impl fmt::Debug for RateKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateKeeper").field(&self.rates).finish()
    }
}

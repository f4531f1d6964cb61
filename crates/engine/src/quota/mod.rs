//! Quotas: limits on new keys and on records.
//!
//! Limits per caller, per peer address and in total, each as a rate of new keys and as a cap on records. Retries are
//! never limited: a known key is never refused because of a quota.
//!
//! # How the engine uses it
//!
//! Only an insert shows whether a key is new. So:
//!
//! 1. Call [`QuotaKeeper::admit`] before an insert. A [`Permit`] is charged on every level, or on none.
//! 2. If the store answers that the key existed, or that nothing was written, [`Permit::refund`]. In every other case
//!    (inserted; *ambiguous*; the task was lost), drop the permit; it stays charged.
//! 3. [`Exceeded`] is not a refusal yet: it means *do not insert*. The engine reads the record. If there is one, the
//!    request is a retry; only if there is none, it is refused.
//!
//! # Limits of single operations
//!
//! An intent can have its own [`RateKeeper`](crate::Intent::limited_by) in addition to the engine's limits. Both are
//! checked in one step; if one refuses, neither is charged.
//!
//! # What is forgotten, and what that changes
//!
//! At most [`Quotas::tracked_max`] callers, and as many addresses, are distinguished. The entry with the least usage
//! is dropped first, and a caller without an entry starts with the highest usage of all dropped entries. So dropping
//! an entry never lifts a limit: not an attacker's own (by filling the table with made-up callers), not that of an
//! address (another table), not the total (no table). Newcomers pay the price during an attack: if *all* tracked
//! callers have used up some of their limit, a newcomer starts with the usage of the least of them.
//!
//! # What is per node
//!
//! Rates, and all limits on addresses. Caps per caller and in total are counted by the store and apply to all nodes
//! together, except for keys that other nodes admitted since the last count ([`Quotas::recount_caller_after`],
//! [`Quotas::recount_total_after`]; ten times that below half of the cap).

mod bucket;
mod config;
mod ledger;
mod measure;
mod rates;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod window;

pub use config::{Quotas, QuotasError, Rate, Rates};
pub use measure::Measure;
pub use rates::RateKeeper;

pub(crate) use measure::Keepers;

use ledger::{Charges, Judged, Ledger};
use semel_core::id::CallerHash;
use semel_core::store::{self, Count, Store};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which limit refused a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// [`Quotas::new_per_caller`].
    NewPerCaller,
    /// [`Quotas::new_per_address`].
    NewPerAddress,
    /// [`Quotas::new_in_total`].
    NewInTotal,
    /// [`Quotas::records_per_caller`].
    RecordsPerCaller,
    /// [`Quotas::records_per_address`].
    RecordsPerAddress,
    /// [`Quotas::records_in_total`].
    RecordsInTotal,
}

impl Limit {
    /// The limit's name in configuration, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewPerCaller => "new_per_caller",
            Self::NewPerAddress => "new_per_address",
            Self::NewInTotal => "new_in_total",
            Self::RecordsPerCaller => "records_per_caller",
            Self::RecordsPerAddress => "records_per_address",
            Self::RecordsInTotal => "records_in_total",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A new key would exceed a limit. Nothing was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit that lasts the longest.
    pub which: Limit,
    /// When to retry: exact for rates and addresses, if nobody else is faster. For caps that the store counts, nobody
    /// knows when a record will be removed, so this is an estimate. Never zero; a protocol with whole seconds has to
    /// round up.
    pub retry_after: Duration,
    /// Whether it is a limit of a [`RateKeeper`], and not of the engine.
    pub is_of_operation: bool,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_of_operation { " of this operation" } else { "" };
        write!(f, "too many new keys{whose} ({}); try again in {:?}", self.which, self.retry_after)
    }
}

impl Exceeded {
    fn of_operation(self) -> Self {
        Self { is_of_operation: true, ..self }
    }
}

impl std::error::Error for Exceeded {}

/// A count that the store has to make before a new key can be admitted: [`Store::count`] with these two arguments.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    what: Count,
    at_most: u64,
    asked_at: Duration,
    mark: u64,
    serial: u64,
}

impl Question {
    /// What to count.
    pub const fn what(&self) -> Count {
        self.what
    }

    /// Where counting may stop.
    pub const fn at_most(&self) -> u64 {
        self.at_most
    }

    /// The question with its answer.
    pub const fn answered(self, count: u64) -> Answer {
        Answer { question: self, count }
    }
}

/// What the store counted.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    question: Question,
    count: u64,
}

/// The decision about a new key.
#[derive(Debug)]
pub enum Admission {
    /// It may be inserted.
    Granted(Permit),
    /// It must not be inserted. Nothing was charged.
    Refused(Exceeded),
    /// The store has to count first; then call again with all answers so far. Nothing was charged.
    Ask(Question),
}

/// Why there is no permit.
#[derive(Debug)]
pub enum Denied {
    /// A limit is reached.
    Exceeded(Exceeded),
    /// The store could not count. Nothing was written.
    Store(store::Error),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exceeded(exceeded) => exceeded.fmt(f),
            Self::Store(error) => write!(f, "the records that a quota limits could not be counted: {error}"),
        }
    }
}

impl std::error::Error for Denied {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exceeded(exceeded) => Some(exceeded),
            Self::Store(error) => Some(error),
        }
    }
}

/// Permission to insert one new key. After a drop it stays charged, because the key may be in the store.
#[must_use = "a permit that is dropped stays charged; refund it where nothing was inserted"]
pub struct Permit(Vec<Charge>);

/// What a permit was charged, and where.
struct Charge {
    ledger: Arc<Mutex<Ledger>>,
    charges: Charges,
}

impl Permit {
    /// Nothing was inserted: every level gets its charge back.
    pub fn refund(mut self) {
        self.settle(true);
    }

    fn settle(&mut self, refunded: bool) {
        for held in self.0.drain(..) {
            lock(&held.ledger).settle(&held.charges, refunded);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.settle(false);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|held| &held.charges)).finish()
    }
}

/// Counts new keys; see the [module](self) for how to use it.
pub struct QuotaKeeper {
    /// `None` if nothing is limited. The lock is held only for a few map operations, never across an await.
    ledger: Option<Arc<Mutex<Ledger>>>,
    /// Charge while the store counts all records, which can take long: requests that arrive meanwhile use the same
    /// answer.
    counting_all: tokio::sync::Mutex<()>,
}

impl QuotaKeeper {
    /// A keeper of these limits, with nothing used up. Fails like [`Quotas::check`].
    pub fn new(quotas: &Quotas) -> Result<Self, QuotasError> {
        quotas.check()?;
        let ledger = (!quotas.are_off()).then(|| Arc::new(Mutex::new(Ledger::new(quotas))));
        Ok(Self { ledger, counting_all: tokio::sync::Mutex::new(()) })
    }

    /// Asks for a new key of `caller` from `address` (`None` if the command did not come over a network: then the
    /// limits per address do not apply). `now` is an uptime. `answers` are the store's counts for this request.
    pub fn admit(
        &self,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
        answers: &[Answer],
    ) -> Admission {
        self.admit_under(None, caller, address, now, answers)
    }

    /// [`admit`](Self::admit) for a command with its own `rates`. Both are charged, or neither.
    pub fn admit_under(
        &self,
        rates: Option<&RateKeeper>,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
        answers: &[Answer],
    ) -> Admission {
        let network = address.map(ledger::network);
        // Always lock in this order, and never two of the second kind, so there is no deadlock. Hold both until both
        // are charged, so that nobody takes the room in between.
        let mut own = self.ledger.as_ref().map(|ledger| (ledger, lock(ledger)));
        let mut further = rates.map(|rates| (&rates.ledger, lock(&rates.ledger)));
        let by_own = own.as_mut().map(|(_, ledger)| ledger.judge(caller, network, now, answers));
        let by_further = further.as_mut().map(|(_, ledger)| ledger.judge(caller, network, now, &[]));
        let question = match (by_own, by_further) {
            (Some(Judged::Refused(own)), Some(Judged::Refused(further))) => {
                let is_longer = further.retry_after > own.retry_after;
                return Admission::Refused(if is_longer { further.of_operation() } else { own });
            }
            (Some(Judged::Refused(own)), _) => return Admission::Refused(own),
            // Before a count: it is not needed for a request that is refused anyway.
            (_, Some(Judged::Refused(further))) => return Admission::Refused(further.of_operation()),
            (Some(Judged::Ask(what, at_most)), _) => Some((what, at_most)),
            _ => None,
        };
        if let (Some((what, at_most)), Some((_, ledger))) = (question, &mut own) {
            return Admission::Ask(ledger.ask(what, at_most, now));
        }
        let held = own.into_iter().chain(further).map(|(ledger, mut locked)| {
            let charges = locked.charge(caller, network, now);
            Charge { ledger: Arc::clone(ledger), charges }
        });
        Admission::Granted(Permit(held.collect()))
    }

    /// The store did not answer `question`: the next request counts again.
    pub fn unanswered(&self, question: &Question) {
        if let Some(ledger) = &self.ledger {
            lock(ledger).unanswered(question);
        }
    }

    /// [`admit`](Self::admit), with counts from `store` if needed. Without caps, or with a recent count, the store is
    /// not called. If it cannot count, there is no permit.
    pub async fn admit_counting(
        &self,
        store: &dyn Store,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
    ) -> Result<Permit, Denied> {
        let count = |what, at_most| -> store::Pending<'_, u64> {
            Box::pin(async move { store.count(what, at_most).await.map(|counted| counted.count) })
        };
        self.admit_with(&count, None, caller, address, now).await
    }

    /// [`admit_counting`](Self::admit_counting) [under](Self::admit_under) `rates`, with another way to ask the store.
    pub(crate) async fn admit_with<'c>(
        &self,
        count: &(dyn Fn(Count, u64) -> store::Pending<'c, u64> + Sync),
        rates: Option<&RateKeeper>,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
    ) -> Result<Permit, Denied> {
        let mut answers = Vec::new();
        let mut turn = None;
        loop {
            let question = match self.admit_under(rates, caller, address, now, &answers) {
                Admission::Granted(permit) => return Ok(permit),
                Admission::Refused(exceeded) => return Err(Denied::Exceeded(exceeded)),
                Admission::Ask(question) => question,
            };
            let mut asking = Asking { keeper: self, question: Some(question) };
            if question.what == Count::Records && turn.is_none() {
                // The previous holder of the lock may have the answer by now.
                drop(asking);
                turn = Some(self.counting_all.lock().await);
                continue;
            }
            let counted = count(question.what, question.at_most).await.map_err(Denied::Store)?;
            asking.question = None;
            answers.push(question.answered(counted));
        }
    }
}

impl fmt::Debug for QuotaKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaKeeper").field("limits_anything", &self.ledger.is_some()).finish_non_exhaustive()
    }
}

/// A running count; counts as unanswered if the store fails or the task is dropped.
struct Asking<'a> {
    keeper: &'a QuotaKeeper,
    question: Option<Question>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(question) = &self.question {
            self.keeper.unanswered(question);
        }
    }
}

/// A panic under the lock leaves at worst one incomplete charge.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

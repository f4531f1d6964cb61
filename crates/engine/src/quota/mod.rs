//! Quotas: how many new keys may be minted, and how many records kept.
//!
//! **Contents**: limits per caller, per peer address and in total, each as a rate of new keys and as a cap on
//! records. **Never here**: a limit on retries. A key that the store knows is never refused for a quota.
//!
//! # How the engine asks
//!
//! Whether a key is new is known only once the store was asked to insert it. So:
//!
//! 1. Before an insert, [`QuotaKeeper::admit`]. A [`Permit`] is charged on every level at once, or on none.
//! 2. If the store answers that the key existed, or that nothing was written, [`Permit::refund`]. In every other case
//!    (inserted; *ambiguous*; the task was lost) the permit is just dropped, and stays charged.
//! 3. [`Exceeded`] does not yet mean a refusal: it means *do not insert*. The engine reads the record; if there is
//!    one, the request goes on as a retry, and only if there is none it is refused.
//!
//! # Limits of single operations
//!
//! An intent can be [limited](crate::Intent::limited_by) by a [`RateKeeper`] besides: it is asked together with the
//! engine's own limits, in one step. What one of the two refuses is charged by neither.
//!
//! # What is forgotten, and what that changes
//!
//! At most [`Quotas::tracked_max`] callers, and as many addresses, are distinguished. The one with the least used up
//! goes first, and anyone who has no entry starts from the most that anyone forgotten had used up. Forgetting
//! therefore never lifts a limit: not an attacker's own (by filling the table with made-up callers), not that of an
//! address (another table), not the total (no table at all). The price is paid by newcomers while an attack lasts:
//! once *all* tracked callers have used up some of their limit, a newcomer starts with as much used up as the least
//! of them.
//!
//! # What is per node
//!
//! Rates, and everything about addresses: each node keeps its own. Caps per caller and in total are counted by the
//! store and hold over all nodes, up to what the other nodes let in since the last count
//! ([`Quotas::recount_caller_after`], [`Quotas::recount_total_after`]; ten times that below half of the cap).

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

/// A new key would be one too many. Nothing was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit that will hold the longest.
    pub which: Limit,
    /// When a new key may be let in again: exactly for rates and addresses, if nobody else is faster. If the store
    /// counts records nobody knows when one will go, and this is when it is worth asking again. Never zero; a
    /// protocol that tells whole seconds rounds up.
    pub retry_after: Duration,
    /// Whether it is a limit of a [`RateKeeper`], and not of the engine.
    pub is_of_operation: bool,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_of_operation { " of this operation" } else { "" };
        write!(f, "too many new keys{whose} ({}): try again in {:?}", self.which, self.retry_after)
    }
}

impl Exceeded {
    fn of_operation(self) -> Self {
        Self { is_of_operation: true, ..self }
    }
}

impl std::error::Error for Exceeded {}

/// What the store must be asked before a new key can be let in: [`Store::count`] of these two.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    what: Count,
    at_most: u64,
    asked_at: Duration,
    mark: u64,
    serial: u64,
}

impl Question {
    /// What is to be counted.
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

/// What came of asking for a new key.
#[derive(Debug)]
pub enum Admission {
    /// It may be inserted.
    Granted(Permit),
    /// It may not. Nothing was charged.
    Refused(Exceeded),
    /// The store must be asked first; then ask again, with all answers so far. Nothing was charged.
    Ask(Question),
}

/// Why there is no permit.
#[derive(Debug)]
pub enum Denied {
    /// A limit is reached.
    Exceeded(Exceeded),
    /// The store could not count, so that nobody knows. Nothing was written.
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

/// Leave to insert one new key. Dropped, it stays charged: the key may be in the store.
#[must_use = "a permit that is dropped stays charged; refund it where nothing was inserted"]
pub struct Permit(Vec<Held>);

/// What a permit was charged, and where.
struct Held {
    ledger: Arc<Mutex<Ledger>>,
    charges: Charges,
}

impl Permit {
    /// Nothing was inserted: every level gets back what it was charged.
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

/// Keeps count of new keys; see the [module](self) for how it is asked.
pub struct QuotaKeeper {
    /// `None` if nothing is limited. Held for a few map operations only, never across an await.
    ledger: Option<Arc<Mutex<Ledger>>>,
    /// Held while the store counts all records, which can take long: anyone who comes meanwhile uses that answer.
    counting_all: tokio::sync::Mutex<()>,
}

impl QuotaKeeper {
    /// A keeper of these limits, with nothing used up. Fails as [`Quotas::check`] does.
    pub fn new(quotas: &Quotas) -> Result<Self, QuotasError> {
        quotas.check()?;
        let ledger = (!quotas.are_off()).then(|| Arc::new(Mutex::new(Ledger::new(quotas))));
        Ok(Self { ledger, counting_all: tokio::sync::Mutex::new(()) })
    }

    /// Asks for a new key of `caller` from `address` (none if the command came by no network: then the limits per
    /// address do not apply). `now` is an uptime. `answers` are what the store said to this request's questions.
    pub fn admit(
        &self,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
        answers: &[Answer],
    ) -> Admission {
        self.admit_under(None, caller, address, now, answers)
    }

    /// [`admit`](Self::admit), where the command is limited by `rates` besides. Both are charged, or neither.
    pub fn admit_under(
        &self,
        rates: Option<&RateKeeper>,
        caller: CallerHash,
        address: Option<IpAddr>,
        now: Duration,
        answers: &[Answer],
    ) -> Admission {
        let network = address.map(ledger::network);
        // Always in this order, and never two of the second kind: nobody waits for whom he holds up. Both are held
        // until both are charged, so that nobody else takes in between what there was room for.
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
            // Before the store is asked: anyone who is refused anyway need not have it count.
            (_, Some(Judged::Refused(further))) => return Admission::Refused(further.of_operation()),
            (Some(Judged::Ask(what, at_most)), _) => Some((what, at_most)),
            _ => None,
        };
        if let (Some((what, at_most)), Some((_, ledger))) = (question, &mut own) {
            return Admission::Ask(ledger.ask(what, at_most, now));
        }
        let held = own.into_iter().chain(further).map(|(ledger, mut locked)| {
            let charges = locked.charge(caller, network, now);
            Held { ledger: Arc::clone(ledger), charges }
        });
        Admission::Granted(Permit(held.collect()))
    }

    /// The store did not answer `question`: the next request asks again.
    pub fn unanswered(&self, question: &Question) {
        if let Some(ledger) = &self.ledger {
            lock(ledger).unanswered(question);
        }
    }

    /// [`admit`](Self::admit), asking `store` whatever must be known. If nothing is capped, or a count is fresh, the
    /// store is not asked. If it cannot answer, there is no permit.
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
                // Anyone who held the turn before may have the answer by now.
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

/// A question under way: unanswered, should the store fail or the task be dropped.
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

/// A panic while the lock was held leaves at worst one charge half made.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

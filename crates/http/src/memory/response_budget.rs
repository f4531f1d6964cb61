//! Memory for responses: while they are read and stored, and while their clients read them.
//!
//! One budget for all responses under a layer. A quarter of it is reserved for short responses, so that long ones and
//! slow readers cannot use it up. Nobody waits while holding a response that is not counted.

use super::budget::BudgetExhausted;
use super::unread_responses::{Registered, UnreadResponses};
use super::waiting_bytes::Pieces;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};

/// What every request with a key takes before it runs.
pub(crate) const FIRST_BYTES: usize = 8 * 1024;
/// A response may grow to this size within the quarter for short ones, as long as half of that is free.
const SHORT_KIB: usize = 64;
/// How long a request waits for its first memory. Nothing has run yet.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// How long a growing response waits in total. Its effect has happened, and its attempt has only one spare second
/// before its deadline.
const GROWTH_WAIT: Duration = Duration::from_millis(500);

/// The budget of all responses of a layer.
#[derive(Debug, Clone)]
pub(crate) struct ResponseBudget {
    short: Arc<Semaphore>,
    short_kib_max: usize,
    long: Arc<Semaphore>,
    long_kib_max: usize,
    /// Complete responses that wait for their clients.
    unread: UnreadResponses,
    first_wait: Duration,
    growth_wait: Duration,
}

impl ResponseBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        let all = kib(bytes).min(Semaphore::MAX_PERMITS);
        let short_kib_max = (all / 4).max(kib(FIRST_BYTES));
        let long_kib_max = all.saturating_sub(short_kib_max).max(1);
        Self {
            short: Arc::new(Semaphore::new(short_kib_max)),
            short_kib_max,
            long: Arc::new(Semaphore::new(long_kib_max)),
            long_kib_max,
            unread: UnreadResponses::default(),
            first_wait: FIRST_WAIT,
            growth_wait: GROWTH_WAIT,
        }
    }

    /// Whether it is as large as `other`.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        (self.short_kib_max, self.long_kib_max) == (other.short_kib_max, other.long_kib_max)
    }

    /// Memory for the beginning of a response to `client`.
    pub(crate) async fn reserve(&self, client: Option<IpAddr>) -> Result<ResponseMemory, BudgetExhausted> {
        let first = u32::try_from(kib(FIRST_BYTES)).unwrap_or(u32::MAX);
        if self.short.available_permits() < kib(FIRST_BYTES) {
            self.unread.evict_for(client, FIRST_BYTES);
        }
        let permit = Arc::clone(&self.short).acquire_many_owned(first);
        let Ok(Ok(permit)) = timeout(self.first_wait, permit).await else { return Err(BudgetExhausted) };
        Ok(ResponseMemory { short: Some(permit), ..self.memory(client) })
    }

    /// No memory yet, for a response to `client`.
    pub(crate) fn memory(&self, client: Option<IpAddr>) -> ResponseMemory {
        ResponseMemory { budget: self.clone(), client, short: None, long: None }
    }

    /// Registers a complete response that waits for `client`.
    pub(crate) fn register(
        &self,
        client: Option<IpAddr>,
        pieces: Arc<Mutex<Pieces>>,
        is_stored: bool,
    ) -> Registered {
        self.unread.register(client, pieces, is_stored)
    }
}

/// How long one response may wait for memory, from its first wait on.
pub(crate) struct GrowthTimer {
    wait: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The memory of one response, until this is dropped.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    budget: ResponseBudget,
    client: Option<IpAddr>,
    short: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

impl ResponseMemory {
    /// The time that one response has to grow.
    pub(crate) fn growth_timer(&self) -> GrowthTimer {
        GrowthTimer { wait: self.budget.growth_wait, sleep: None }
    }

    /// Grows it to `bytes`, if there is memory now. A response larger than the whole budget takes all of it.
    pub(crate) fn try_grow_to(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let Some(more) = self.missing(bytes) else { return Ok(()) };
        let take = || Arc::clone(&self.budget.long).try_acquire_many_owned(more);
        let permit = take().or_else(|_| {
            self.evict_for(more);
            take()
        });
        permit.map(|permit| self.add(permit)).map_err(|_| BudgetExhausted)
    }

    /// The same, and waits for as long as `timer` lasts.
    pub(crate) async fn grow_to(
        &mut self,
        bytes: usize,
        timer: &mut GrowthTimer,
    ) -> Result<(), BudgetExhausted> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        let Some(more) = self.missing(bytes) else { return Ok(()) };
        let permit = Arc::clone(&self.budget.long).acquire_many_owned(more);
        let waited = timer.sleep.get_or_insert_with(|| Box::pin(sleep(timer.wait)));
        let permit = tokio::select! {
            biased;
            permit = permit => permit,
            () = waited.as_mut() => return Err(BudgetExhausted),
        };
        permit.map(|permit| self.add(permit)).map_err(|_| BudgetExhausted)
    }

    /// Drops unread responses of the client that has most, in favour of this one.
    fn evict_for(&self, kib: u32) {
        let missing = (kib as usize).saturating_sub(self.budget.long.available_permits());
        self.budget.unread.evict_for(self.client, missing * 1024);
    }

    pub(crate) fn budget(&self) -> &ResponseBudget {
        &self.budget
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Frees everything beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let spare = self.kib().saturating_sub(kib(bytes));
        drop(self.split_kib(spare));
    }

    /// Splits off enough for `bytes`, or everything.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        self.split_kib(kib(bytes))
    }

    fn split_kib(&mut self, kib: usize) -> Self {
        let part = |permit: &mut Option<OwnedSemaphorePermit>, kib: usize| {
            let held = permit.as_mut()?;
            held.split(kib.min(held.num_permits()))
        };
        let long = part(&mut self.long, kib);
        let rest = kib - long.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        Self { budget: self.budget.clone(), client: self.client, short: part(&mut self.short, rest), long }
    }

    /// How much to take from the memory for long responses; none if it has enough, or if the memory for short ones
    /// suffices.
    fn missing(&mut self, bytes: usize) -> Option<u32> {
        let wanted = kib(bytes);
        let mut more = wanted.checked_sub(self.kib()).filter(|more| *more > 0)?;
        let budget = &self.budget;
        if wanted <= SHORT_KIB && budget.short.available_permits() >= budget.short_kib_max / 2 + more {
            let count = u32::try_from(more).unwrap_or(u32::MAX);
            if let Ok(permit) = Arc::clone(&budget.short).try_acquire_many_owned(count) {
                match &mut self.short {
                    Some(held) => held.merge(permit),
                    none => *none = Some(permit),
                }
                return None;
            }
        }
        let held = self.long.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        more = more.min(budget.long_kib_max - held);
        (more > 0).then(|| u32::try_from(more).unwrap_or(u32::MAX))
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.long {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }

    fn kib(&self) -> usize {
        let count = |permit: &Option<OwnedSemaphorePermit>| {
            permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
        };
        count(&self.short) + count(&self.long)
    }
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    /// 16 KiB for short responses, 48 KiB for long ones.
    fn budget() -> ResponseBudget {
        let (first_wait, growth_wait) = (Duration::ZERO, Duration::ZERO);
        ResponseBudget { first_wait, growth_wait, ..ResponseBudget::new(64 * KIB) }
    }

    #[tokio::test]
    async fn long_responses_leave_memory_for_the_first_bytes_of_others() {
        let budget = budget();
        let mut long = budget.reserve(None).await.expect("the first");
        assert_eq!(long.try_grow_to(56 * KIB), Ok(()));
        let mut other = budget.reserve(None).await.expect("the rest for short ones");
        assert_eq!(other.try_grow_to(9 * KIB), Err(BudgetExhausted));
        assert_eq!(budget.reserve(None).await.err(), Some(BudgetExhausted));
        drop(long);
        assert_eq!(other.try_grow_to(40 * KIB), Ok(()));
    }

    #[tokio::test]
    async fn a_response_larger_than_the_whole_budget_takes_all_of_it() {
        let budget = budget();
        let mut alone = budget.reserve(None).await.expect("the first");
        assert_eq!(alone.grow_to(1024 * KIB, &mut budget.memory(None).growth_timer()).await, Ok(()));
        assert_eq!(budget.memory(None).try_grow_to(65 * KIB), Err(BudgetExhausted));
        assert_eq!(
            alone.grow_to(2048 * KIB, &mut budget.memory(None).growth_timer()).await,
            Ok(()),
            "it has all of it"
        );
    }

    #[tokio::test]
    async fn split_or_shrunk_memory_is_released_separately() {
        let budget = budget();
        let mut memory = budget.reserve(None).await.expect("the first");
        assert_eq!(memory.try_grow_to(56 * KIB), Ok(()));
        let part = memory.split(10 * KIB);
        assert_eq!((memory.kib(), part.kib()), (46, 10));
        memory.shrink_to(20 * KIB);
        assert_eq!((memory.kib(), budget.long.available_permits()), (20, 26));
        drop(part);
        assert_eq!(budget.long.available_permits(), 36);
        assert_eq!(memory.split(1024 * KIB).kib(), 20, "no more than it has");
        assert_eq!((budget.long.available_permits(), budget.short.available_permits()), (48, 16));
    }

    #[tokio::test]
    async fn a_growing_response_has_one_deadline_for_all_waits() {
        let budget = ResponseBudget { growth_wait: Duration::from_mins(1), ..budget() };
        let mut long = budget.memory(None);
        assert_eq!(long.try_grow_to(65 * KIB), Ok(()));
        let mut other = budget.memory(None);
        let (mut timer, mut over) =
            (budget.memory(None).growth_timer(), GrowthTimer { wait: Duration::ZERO, sleep: None });
        assert_eq!(other.grow_to(65 * KIB, &mut over).await, Err(BudgetExhausted));
        let (grown, ()) = tokio::join!(other.grow_to(65 * KIB, &mut timer), async {
            drop(std::mem::replace(&mut long, budget.memory(None)));
        });
        assert_eq!(grown, Ok(()));
    }
}

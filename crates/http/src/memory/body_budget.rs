//! Memory for the bodies of requests that are read before they run.
//!
//! One budget for all requests of a layer, used while bytes arrive and freed with the body; and permits for decoding,
//! which needs memory while it runs. All waits are limited. The settings of a route limit a single body; this limits
//! all bodies together.

use super::budget::{Budget, BudgetExhausted, Reservation};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a body waits for memory. Waiting bodies keep what they have, so they must not wait for each other for
/// long.
const WAIT: Duration = Duration::from_secs(2);
/// After this part of the wait, others are revoked. Most bodies are read within it.
const GRACE: Duration = Duration::from_millis(200);

/// The budget of all bodies of a layer.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget {
    budget: Budget,
    /// As many as there are processors: more would not be faster, and need more memory.
    decode_permits: Arc<Semaphore>,
    wait: Duration,
}

/// A permit to decode a body, until this is dropped.
#[derive(Debug)]
pub(crate) struct DecodePermit {
    _permit: OwnedSemaphorePermit,
    _memory: BodyMemory,
}

impl BodyBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        let decode_permits = Semaphore::new(processors());
        Self { budget: Budget::new(kib(bytes).max(1)), decode_permits: Arc::new(decode_permits), wait: WAIT }
    }

    /// Whether it is as large as `other`.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        self.budget.kib_max == other.budget.kib_max
    }

    /// A permit to decode a body to at most `bytes`, and their memory.
    pub(crate) async fn decode_permit(
        &self,
        client: Option<IpAddr>,
        bytes: usize,
    ) -> Result<DecodePermit, BudgetExhausted> {
        let permit = timeout(self.wait, Arc::clone(&self.decode_permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(BudgetExhausted) };
        let mut memory = self.memory(client);
        memory.grow_to(bytes).await?;
        memory.keep()?;
        Ok(DecodePermit { _permit: permit, _memory: memory })
    }

    /// Empty memory for one body of `client`. It may be revoked until it [is kept](BodyMemory::keep).
    pub(crate) fn memory(&self, client: Option<IpAddr>) -> BodyMemory {
        BodyMemory { reservation: self.budget.reserve(client), kib_max: self.budget.kib_max, wait: self.wait }
    }
}

/// The memory of one body, until this is dropped.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    reservation: Reservation,
    kib_max: u32,
    wait: Duration,
}

impl BodyMemory {
    /// Grows it to `bytes`, which may take a while. A body larger than the whole budget takes all of it.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.reservation.grow_to(kib(bytes).min(self.kib_max), GRACE, self.wait).await
    }

    /// Completes when it is revoked.
    pub(crate) async fn revoked(&self) {
        self.reservation.revoked().await;
    }

    /// The body has been read: from now on it cannot be revoked. Fails if it was.
    pub(crate) fn keep(&self) -> Result<(), BudgetExhausted> {
        self.reservation.keep()
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_reserved_as_bytes_arrive_and_released_afterwards() {
        let budget = BodyBudget { wait: Duration::ZERO, ..BodyBudget::new(4096) };
        let (mut one, mut other) = (budget.memory(None), budget.memory(None));
        assert_eq!(one.grow_to(1).await, Ok(()));
        assert_eq!(other.grow_to(3 * 1024).await, Ok(()));
        assert_eq!(one.grow_to(1024).await, Ok(()), "it has that much");
        assert_eq!(one.grow_to(1025).await, Err(BudgetExhausted));
        drop(other);
        assert_eq!(one.grow_to(1025).await, Ok(()));
        assert_eq!(budget.memory(None).grow_to(1 << 20).await, Err(BudgetExhausted));
        drop(one);
        assert_eq!(
            budget.memory(None).grow_to(1 << 20).await,
            Ok(()),
            "alone, a larger one takes everything"
        );
    }

    #[tokio::test]
    async fn decoding_is_limited_by_processors_and_memory() {
        let budget = BodyBudget { wait: Duration::ZERO, ..BodyBudget::new(1 << 20) };
        let mut decode_permits = Vec::new();
        for _ in 0..processors() {
            decode_permits.push(budget.decode_permit(None, 1024).await.expect("free"));
        }
        assert_eq!(budget.decode_permit(None, 1024).await.err(), Some(BudgetExhausted), "one too many");
        decode_permits.pop();
        assert_eq!(
            budget.decode_permit(None, 2 << 20).await.err(),
            Some(BudgetExhausted),
            "more than is left of the budget"
        );
        drop(decode_permits);
        let alone = budget.decode_permit(None, 2 << 20).await.expect("everything");
        assert_eq!(
            budget.memory(None).grow_to(1).await,
            Err(BudgetExhausted),
            "encoded and decoded bodies share it"
        );
        drop(alone);
        assert_eq!(budget.memory(None).grow_to(1).await, Ok(()));
    }

    #[tokio::test]
    async fn a_waiting_body_gets_released_memory() {
        let budget = BodyBudget::new(1024);
        let mut one = budget.memory(None);
        one.grow_to(1024).await.expect("memory");
        let mut other = budget.memory(None);
        let waiting = tokio::spawn(async move { other.grow_to(1).await });
        tokio::task::yield_now().await;
        drop(one);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}

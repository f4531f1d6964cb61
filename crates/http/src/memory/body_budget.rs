//! Memory for the bodies of requests that are read before they run.
//!
//! One budget for all requests of a layer, used while bytes arrive and freed with the body; and permits for decoding,
//! which needs memory while it runs. All waits are limited. The terms of a route limit a single body; this limits all
//! bodies together.

use super::budget::{Budget, Share};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a body waits for memory. Waiting bodies keep what they have, so they must not wait for each other for
/// long.
const WAIT: Duration = Duration::from_secs(2);
/// After this part of the wait, others are revoked. Most bodies are read within it.
const MOMENT: Duration = Duration::from_millis(200);

/// The budget of all bodies of a layer.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    budget: Budget,
    /// As many as there are processors: more would not be faster, and need more memory.
    turns: Arc<Semaphore>,
    wait: Duration,
}

/// A permit to decode a body, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedSemaphorePermit,
    _memory: BodyMemory,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        let turns = Semaphore::new(processors());
        Self { budget: Budget::new(kib(bytes).max(1)), turns: Arc::new(turns), wait: WAIT }
    }

    /// Whether it is as large as `other`.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        self.budget.kib_max == other.budget.kib_max
    }

    /// A permit to decode a body to at most `bytes`, and their memory.
    pub(crate) async fn turn(&self, client: Option<IpAddr>, bytes: usize) -> Result<Turn, NoRoom> {
        let turn = timeout(self.wait, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(NoRoom) };
        let mut memory = self.memory(client);
        memory.grow_to(bytes).await?;
        memory.stay()?;
        Ok(Turn { _turn: turn, _memory: memory })
    }

    /// Empty memory for one body of `client`. It may be revoked until it [stays](BodyMemory::stay).
    pub(crate) fn memory(&self, client: Option<IpAddr>) -> BodyMemory {
        BodyMemory { share: self.budget.share(client), kib_max: self.budget.kib_max, wait: self.wait }
    }
}

/// The memory of one body, until this is dropped.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    share: Share,
    kib_max: u32,
    wait: Duration,
}

/// There was no memory in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there was no memory in time")
    }
}

impl std::error::Error for NoRoom {}

impl BodyMemory {
    /// Grows it to `bytes`, which may take a while. A body larger than the whole budget takes all of it.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.share.grow_to(kib(bytes).min(self.kib_max), MOMENT, self.wait).await
    }

    /// Completes when it is revoked.
    pub(crate) async fn revoked(&self) {
        self.share.revoked().await;
    }

    /// The body has been read: from now on it cannot be revoked. Fails if it was.
    pub(crate) fn stay(&self) -> Result<(), NoRoom> {
        self.share.stay()
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
        let room = Room { wait: Duration::ZERO, ..Room::new(4096) };
        let (mut one, mut other) = (room.memory(None), room.memory(None));
        assert_eq!(one.grow_to(1).await, Ok(()));
        assert_eq!(other.grow_to(3 * 1024).await, Ok(()));
        assert_eq!(one.grow_to(1024).await, Ok(()), "it has that much");
        assert_eq!(one.grow_to(1025).await, Err(NoRoom));
        drop(other);
        assert_eq!(one.grow_to(1025).await, Ok(()));
        assert_eq!(room.memory(None).grow_to(1 << 20).await, Err(NoRoom));
        drop(one);
        assert_eq!(room.memory(None).grow_to(1 << 20).await, Ok(()), "alone, a larger one takes everything");
    }

    #[tokio::test]
    async fn decoding_is_limited_by_processors_and_memory() {
        let room = Room { wait: Duration::ZERO, ..Room::new(1 << 20) };
        let mut turns = Vec::new();
        for _ in 0..processors() {
            turns.push(room.turn(None, 1024).await.expect("a turn"));
        }
        assert_eq!(room.turn(None, 1024).await.err(), Some(NoRoom), "one too many");
        turns.pop();
        assert_eq!(room.turn(None, 2 << 20).await.err(), Some(NoRoom), "more than is left of the room");
        drop(turns);
        let alone = room.turn(None, 2 << 20).await.expect("everything");
        assert_eq!(room.memory(None).grow_to(1).await, Err(NoRoom), "encoded and decoded bodies share it");
        drop(alone);
        assert_eq!(room.memory(None).grow_to(1).await, Ok(()));
    }

    #[tokio::test]
    async fn a_waiting_body_gets_released_memory() {
        let room = Room::new(1024);
        let mut one = room.memory(None);
        one.grow_to(1024).await.expect("room");
        let mut other = room.memory(None);
        let waiting = tokio::spawn(async move { other.grow_to(1).await });
        tokio::task::yield_now().await;
        drop(one);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}

//! Room for the bodies of requests that are read before they run.
//!
//! What lives here: one budget for all requests under a layer, taken as bytes come and given back with the body; and turns for
//! decoding, which takes room for as long as it lasts. What must
//! never: a wait without end. Each body is bounded by its route's terms; without this, their number would not be.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a body waits for room. Bodies that wait hold what they have: they must not wait for each other for long.
const WAIT: Duration = Duration::from_secs(2);

/// What all bodies under one layer share.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    kib_max: u32,
    /// As many as there are processors: more at once are not done sooner, and hold more.
    turns: Arc<Semaphore>,
    wait: Duration,
}

/// Leave to decode a body, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedSemaphorePermit,
    _place: Place,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        let kib_max = kib(bytes).max(1);
        let (free, turns) = (Semaphore::new(kib_max as usize), Semaphore::new(processors()));
        Self { free: Arc::new(free), kib_max, turns: Arc::new(turns), wait: WAIT }
    }

    /// Whether it is as large as `other`.
    pub(crate) fn is_as_large_as(&self, other: &Self) -> bool {
        self.kib_max == other.kib_max
    }

    /// A turn at decoding a body of which at most `bytes` come, and room for these.
    pub(crate) async fn turn(&self, bytes: usize) -> Result<Turn, NoRoom> {
        let turn = timeout(self.wait, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(NoRoom) };
        let mut place = self.place();
        place.grow_to(bytes).await?;
        Ok(Turn { _turn: turn, _place: place })
    }

    /// A place for one body, as yet without bytes.
    pub(crate) fn place(&self) -> Place {
        Place { room: self.clone(), kib: 0, permit: None }
    }
}

/// What one body holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Room,
    kib: u32,
    permit: Option<OwnedSemaphorePermit>,
}

/// There was no room in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there was no room in time")
    }
}

impl std::error::Error for NoRoom {}

impl Place {
    /// Makes it large enough for `bytes`, which may take a while. A body larger than all the room there is takes all of it.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let kib = kib(bytes).min(self.room.kib_max);
        let more = kib.saturating_sub(self.kib);
        if more == 0 {
            return Ok(());
        }
        let free = Arc::clone(&self.room.free).acquire_many_owned(more);
        let Ok(Ok(permit)) = timeout(self.room.wait, free).await else { return Err(NoRoom) };
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        self.kib = kib;
        Ok(())
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
    async fn room_is_taken_as_bytes_come_and_given_back_at_the_end() {
        let room = Room { wait: Duration::ZERO, ..Room::new(4096) };
        let (mut one, mut other) = (room.place(), room.place());
        assert_eq!(one.grow_to(1).await, Ok(()));
        assert_eq!(other.grow_to(3 * 1024).await, Ok(()));
        assert_eq!(one.grow_to(1024).await, Ok(()), "it has that much");
        assert_eq!(one.grow_to(1025).await, Err(NoRoom));
        drop(other);
        assert_eq!(one.grow_to(1025).await, Ok(()));
        assert_eq!(room.place().grow_to(1 << 20).await, Err(NoRoom));
        drop(one);
        assert_eq!(room.place().grow_to(1 << 20).await, Ok(()), "alone, a larger one takes all there is");
    }

    #[tokio::test]
    async fn as_many_decode_at_once_as_there_are_processors_and_within_the_same_room() {
        let room = Room { wait: Duration::ZERO, ..Room::new(1 << 20) };
        let mut turns = Vec::new();
        for _ in 0..processors() {
            turns.push(room.turn(1024).await.expect("a turn"));
        }
        assert_eq!(room.turn(1024).await.err(), Some(NoRoom), "one too many");
        turns.pop();
        assert_eq!(room.turn(2 << 20).await.err(), Some(NoRoom), "more than is left of the room");
        drop(turns);
        let alone = room.turn(2 << 20).await.expect("all there is");
        assert_eq!(room.place().grow_to(1).await, Err(NoRoom), "bodies and what comes of them share it");
        drop(alone);
        assert_eq!(room.place().grow_to(1).await, Ok(()));
    }

    #[tokio::test]
    async fn a_body_that_waits_gets_the_room_that_another_leaves() {
        let room = Room::new(1024);
        let mut one = room.place();
        one.grow_to(1024).await.expect("room");
        let mut other = room.place();
        let waiting = tokio::spawn(async move { other.grow_to(1).await });
        tokio::task::yield_now().await;
        drop(one);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
    }
}

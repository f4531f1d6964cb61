//! Memory for the heads of requests: one budget for all connections of a socket. A request that does not fit is
//! refused at once, before anything runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Free for each head; enough for nearly all of them.
const FREE_BYTES: usize = 8 * 1024;

/// The budget that all heads share.
#[derive(Debug, Clone)]
pub(crate) struct HeadRoom(Arc<AtomicUsize>);

/// One head's share, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeadSlot {
    room: HeadRoom,
    bytes: usize,
}

/// There is no room for a head of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoHeadRoom;

impl HeadRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// An empty share for one head.
    pub(crate) fn slot(&self) -> HeadSlot {
        HeadSlot { room: self.clone(), bytes: 0 }
    }
}

impl HeadSlot {
    /// Grows it for a head of `bytes`.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), NoHeadRoom> {
        let wanted = bytes.saturating_sub(FREE_BYTES);
        if let Some(more) = wanted.checked_sub(self.bytes) {
            let take = |free: usize| free.checked_sub(more);
            let taken = self.room.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
            taken.map_err(|_| NoHeadRoom)?;
        } else {
            self.room.0.fetch_add(self.bytes - wanted, Ordering::AcqRel);
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Drop for HeadSlot {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_heads_share_the_limit() {
        let room = HeadRoom::new(10_000);
        let (mut long, mut other) = (room.slot(), room.slot());
        assert_eq!(long.resize(FREE_BYTES + 9_000), Ok(()));
        assert_eq!(other.resize(FREE_BYTES + 1_001), Err(NoHeadRoom));
        assert_eq!(other.resize(FREE_BYTES), Ok(()));
        assert_eq!(long.resize(FREE_BYTES + 4_000), Ok(()), "unused room is returned");
        assert_eq!(other.resize(FREE_BYTES + 6_000), Ok(()));
        drop(long);
        assert_eq!(other.resize(FREE_BYTES + 10_000), Ok(()));
    }
}

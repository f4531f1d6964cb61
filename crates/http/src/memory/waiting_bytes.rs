//! The bytes of a response that wait for its client.
//!
//! They are sent in pieces, each with its memory. Memory is freed only when the bytes are gone, also if a server has
//! taken them and its client has not.

use super::response_budget::ResponseMemory;
use super::unread_responses::Registered;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of a piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Waiting bytes.
pub(crate) enum WaitingBytes {
    /// Not counted.
    Uncounted(Pieces),
    /// Counted, and may be dropped in favour of others.
    Counted { pieces: Arc<Mutex<Pieces>>, _registered: Registered },
}

/// The waiting bytes and their memory.
#[derive(Default)]
pub(crate) struct Pieces {
    queue: VecDeque<Bytes>,
    left: usize,
    memory: Option<ResponseMemory>,
    was_given_up: bool,
}

/// The rest of a response was dropped: others need the memory, and its client has not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the rest of a response was dropped, because its client did not read it and others need the memory",
        )
    }
}

impl std::error::Error for GivenUp {}

/// A piece and its memory. Both are freed when the last part of it has been written or dropped.
struct Piece {
    data: Bytes,
    _memory: ResponseMemory,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Pieces {
    fn new(pieces: impl IntoIterator<Item = Bytes>, memory: Option<ResponseMemory>) -> Self {
        let queue: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let left = queue.iter().map(Bytes::len).sum();
        Self { queue, left, memory, was_given_up: false }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Drops what is left, and frees its memory.
    pub(crate) fn give_up(&mut self) {
        *self = Self { was_given_up: true, ..Self::default() };
    }

    fn next_piece(&mut self) -> Option<Result<Bytes, GivenUp>> {
        if self.was_given_up {
            return Some(Err(GivenUp));
        }
        let mut data = self.queue.pop_front()?;
        if let Some(memory) = &mut self.memory {
            if data.len() > PIECE_BYTES {
                // Copied: a single long buffer would be freed only after its last byte.
                let pieces: Vec<_> = data.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect();
                drop(data);
                pieces.into_iter().rev().for_each(|piece| self.queue.push_front(piece));
                data = self.queue.pop_front()?;
            }
            self.left -= data.len();
            let memory = memory.split(data.len());
            return Some(Ok(Bytes::from_owner(Piece { data, _memory: memory })));
        }
        self.left -= data.len();
        Some(Ok(data))
    }
}

impl WaitingBytes {
    /// Bytes in `memory`. `is_stored`: a retry can get them again.
    pub(crate) fn counted(
        pieces: impl IntoIterator<Item = Bytes>,
        memory: ResponseMemory,
        is_stored: bool,
    ) -> Self {
        let (budget, client) = (memory.budget().clone(), memory.client());
        let pieces = Arc::new(Mutex::new(Pieces::new(pieces, Some(memory))));
        let registered = budget.register(client, Arc::clone(&pieces), is_stored);
        Self::Counted { pieces, _registered: registered }
    }

    fn with<T>(&mut self, use_it: impl FnOnce(&mut Pieces) -> T) -> T {
        match self {
            Self::Uncounted(pieces) => use_it(pieces),
            Self::Counted { pieces, .. } => use_it(&mut lock(pieces)),
        }
    }

    fn look<T>(&self, look: impl FnOnce(&Pieces) -> T) -> T {
        match self {
            Self::Uncounted(pieces) => look(pieces),
            Self::Counted { pieces, .. } => look(&lock(pieces)),
        }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.look(Pieces::len)
    }

    /// Whether nothing is left, and nothing was dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.look(|pieces| pieces.left == 0 && !pieces.was_given_up)
    }

    /// All of them, if no piece was taken yet.
    pub(crate) fn data(&self) -> Option<Bytes> {
        self.look(|pieces| match pieces.queue.len() {
            0 => Some(Bytes::new()),
            1 => pieces.queue.front().cloned(),
            _ => None,
        })
    }

    /// The next piece.
    pub(crate) fn next_piece(&mut self) -> Option<Result<Bytes, GivenUp>> {
        self.with(Pieces::next_piece)
    }
}

impl From<Bytes> for WaitingBytes {
    fn from(data: Bytes) -> Self {
        Self::Uncounted(Pieces::new([data], None))
    }
}

pub(crate) fn lock(pieces: &Mutex<Pieces>) -> MutexGuard<'_, Pieces> {
    // Nothing can panic in the middle of a change.
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::response_budget::ResponseBudget;
    use super::*;

    #[test]
    fn memory_is_released_as_each_piece_is_dropped() {
        let budget = ResponseBudget::new(1 << 20);
        let is_free = |bytes: usize| budget.memory(None).try_grow_to(bytes).is_ok();
        let mut memory = budget.memory(None);
        assert_eq!(memory.try_grow_to(700 << 10), Ok(()));
        let data: Vec<u8> = (0..700 << 10).map(|at: u32| at.to_le_bytes()[1]).collect();
        let mut held = WaitingBytes::counted([Bytes::from(data.clone())], memory, true);
        let (mut received, mut taken) = (Vec::new(), Vec::new());
        while let Some(Ok(piece)) = held.next_piece() {
            assert!(piece.len() <= PIECE_BYTES);
            received.extend_from_slice(&piece);
            taken.push(piece);
        }
        assert!(received == data && held.is_empty());
        drop(held);
        assert!(!is_free(100 << 10), "a server has them, but their client does not");
        let part = taken.pop().expect("a piece").slice(10..20);
        taken.truncate(8);
        assert!(is_free(100 << 10) && !is_free(300 << 10));
        drop((part, taken));
        assert!(is_free(700 << 10));
    }
}

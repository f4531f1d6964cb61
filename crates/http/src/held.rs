//! The bytes of a response that wait for its client.
//!
//! What lives here: handing them out in pieces, each with the room that it takes. What must never: room given back while the
//! bytes are still there, also where a server has taken them and its client has not.

use crate::response_room::ResponsePlace;
use bytes::Bytes;
use std::collections::VecDeque;

/// What is handed out at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Bytes that wait, and the room that they take until they are gone.
pub(crate) struct Held {
    pieces: VecDeque<Bytes>,
    left: usize,
    /// None where nobody counts them.
    place: Option<ResponsePlace>,
}

/// A piece and its room. Both go when the last part of it has been written or dropped.
struct Piece {
    data: Bytes,
    _place: ResponsePlace,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Held {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Bytes>, place: Option<ResponsePlace>) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let left = pieces.iter().map(Bytes::len).sum();
        Self { pieces, left, place }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// All of them, where nothing was handed out yet.
    pub(crate) fn data(&self) -> Option<Bytes> {
        match self.pieces.len() {
            0 => Some(Bytes::new()),
            1 => self.pieces.front().cloned(),
            _ => None,
        }
    }

    /// The next piece.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        let mut data = self.pieces.pop_front()?;
        if let Some(place) = &mut self.place {
            if data.len() > PIECE_BYTES {
                // In memory of their own: of one long buffer nothing would be free before its last byte is gone.
                let pieces: Vec<_> = data.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect();
                drop(data);
                pieces.into_iter().rev().for_each(|piece| self.pieces.push_front(piece));
                data = self.pieces.pop_front()?;
            }
            self.left -= data.len();
            let place = place.split(data.len());
            return Some(Bytes::from_owner(Piece { data, _place: place }));
        }
        self.left -= data.len();
        Some(data)
    }
}

impl From<Bytes> for Held {
    fn from(data: Bytes) -> Self {
        Self::new([data], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_room::ResponseRoom;

    #[test]
    fn room_is_given_back_piece_by_piece_as_the_pieces_are_dropped() {
        let room = ResponseRoom::new(1 << 20);
        let is_free = |bytes: usize| room.place().try_grow_to(bytes).is_ok();
        let mut place = room.place();
        assert_eq!(place.try_grow_to(700 << 10), Ok(()));
        let data: Vec<u8> = (0..700 << 10).map(|at: u32| at.to_le_bytes()[1]).collect();
        let mut held = Held::new([Bytes::from(data.clone())], Some(place));
        let (mut came, mut taken) = (Vec::new(), Vec::new());
        while let Some(piece) = held.next_piece() {
            assert!(piece.len() <= PIECE_BYTES);
            came.extend_from_slice(&piece);
            taken.push(piece);
        }
        assert!(came == data && held.is_empty());
        drop(held);
        assert!(!is_free(100 << 10), "a server has them, and their client has not");
        let part = taken.pop().expect("a piece").slice(10..20);
        taken.truncate(8);
        assert!(is_free(100 << 10) && !is_free(300 << 10));
        drop((part, taken));
        assert!(is_free(700 << 10));
    }
}

//! The memory for what is read and sent at the admin address, in pieces. Bodies of requests and long responses have a
//! budget each.

use super::problem::Problem;
use bytes::Bytes;
use semel_http::Code;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The size of a piece.
pub(super) const PIECE: usize = 256 << 10;
/// How many pieces a budget has at least. Each body takes one or more, so this also limits how many are being read at once.
const PIECES: usize = 256;
/// How long a body waits for its next piece. Those that wait keep what they have, so they must not wait for each other
/// for long.
const WAIT: Duration = Duration::from_secs(2);

type Held = Arc<Mutex<BTreeMap<Arc<str>, usize>>>;

/// A budget of memory.
pub(super) struct Budget {
    pieces: usize,
    free: Arc<Semaphore>,
    /// How many pieces each token holds. Entries without pieces are removed.
    held: Held,
}

/// Pieces of a budget, until this is dropped.
pub(super) struct Pieces {
    permit: OwnedSemaphorePermit,
    share: Option<Share>,
}

/// The pieces that a token holds or waits for, until this is dropped.
struct Share {
    name: Arc<str>,
    held: Held,
    count: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = held.get_mut(&self.name) {
            *left = left.saturating_sub(self.count);
            if *left == 0 {
                held.remove(&self.name);
            }
        }
    }
}

impl Budget {
    /// 64 MiB, or twice `longest` bytes if that is more: one holder can take half, so that it cannot keep all others from
    /// sending anything, and that is enough for one body.
    pub(super) fn for_bodies_of(longest: usize) -> Self {
        let pieces = PIECES.max(2 * longest.div_ceil(PIECE)).min(Semaphore::MAX_PERMITS);
        Self { pieces, free: Arc::new(Semaphore::new(pieces)), held: Held::default() }
    }

    /// Takes one piece for `holder`, and waits for it for a while. `None`: nobody is distinguished.
    pub(super) async fn first(&self, holder: Option<&Arc<str>>) -> Result<Pieces, Problem> {
        let share = holder.map(|name| self.share(name)).transpose()?;
        match timeout(WAIT, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Pieces { permit, share }),
            Ok(Err(_)) | Err(_) => Err(busy("The bodies of other requests take all the memory for them.")),
        }
    }

    fn share(&self, name: &Arc<str>) -> Result<Share, Problem> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.get(name).copied().unwrap_or_default();
        if count >= self.pieces / 2 {
            return Err(busy("Other requests with this token take half of the memory for them all."));
        }
        held.insert(Arc::clone(name), count + 1);
        drop(held);
        Ok(Share { name: Arc::clone(name), held: Arc::clone(&self.held), count: 1 })
    }

    /// Takes one more piece.
    pub(super) async fn next(&self, pieces: &mut Pieces) -> Result<(), Problem> {
        let holder = pieces.share.as_ref().map(|share| Arc::clone(&share.name));
        let mut more = self.first(holder.as_ref()).await?;
        if let (Some(all), Some(share)) = (&mut pieces.share, &mut more.share) {
            all.count += std::mem::take(&mut share.count);
        }
        pieces.permit.merge(more.permit);
        Ok(())
    }

    /// Takes the pieces for `length` bytes that are there already, or nothing.
    pub(super) fn at_once(&self, length: usize) -> Option<Pieces> {
        let count = u32::try_from(length.div_ceil(PIECE).min(self.pieces)).ok()?;
        let permit = Arc::clone(&self.free).try_acquire_many_owned(count).ok()?;
        Some(Pieces { permit, share: None })
    }
}

impl Pieces {
    pub(super) fn count(&self) -> usize {
        self.permit.num_permits()
    }

    /// The bytes, which keep these pieces until they are sent.
    pub(super) fn around(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(BytesInPieces { bytes, _pieces: self })
    }
}

struct BytesInPieces {
    bytes: Bytes,
    _pieces: Pieces,
}

impl AsRef<[u8]> for BytesInPieces {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// There is no room for a request.
fn busy(why: &str) -> Problem {
    semel_http::Problem::new(Code::Busy, format!("{why} Nothing was done.")).retryable_after(WAIT).into()
}

/// There is no room for a response. What was requested may have been done.
pub(super) fn unsent(why: &str) -> Problem {
    let detail = format!("{why} What you requested is done, if it was to change anything. Ask again later.");
    semel_http::Problem::new(Code::Busy, detail).retryable_after(WAIT).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_holder_leaves_half_to_the_others() {
        let budget = Budget::for_bodies_of(0);
        let (bob, alice): (Arc<str>, Arc<str>) = ("bob".into(), "alice".into());
        let mut taken = Vec::new();
        while let Ok(piece) = budget.first(Some(&bob)).await {
            taken.push(piece);
        }
        assert_eq!(taken.len(), PIECES / 2);
        let mut hers = budget.first(Some(&alice)).await.expect("there is room");
        budget.next(&mut hers).await.expect("and more");
        assert_eq!(hers.count(), 2);
        assert!(budget.next(&mut taken[0]).await.is_err(), "a longer body takes as much as a second one");
        taken.truncate(PIECES / 2 - 1);
        budget.next(&mut taken[0]).await.expect("one was given back");
        // One that goes away while it waits takes nothing with it.
        let rest = budget.at_once((PIECES / 2 - 2) * PIECE).expect("room");
        assert!(timeout(WAIT / 2, budget.first(Some(&alice))).await.is_err(), "it waits");
        drop((taken, hers, rest));
        assert!(budget.held.lock().expect("whole").is_empty());
        assert_eq!(budget.free.available_permits(), PIECES);
    }

    #[tokio::test(start_paused = true)]
    async fn one_body_of_the_longest_size_fits() {
        let budget = Budget::for_bodies_of(64 << 20);
        let bob: Arc<str> = "bob".into();
        let mut body = budget.first(Some(&bob)).await.expect("there is room");
        while body.count() * PIECE < 64 << 20 {
            budget.next(&mut body).await.expect("there is room");
        }
        assert!(budget.next(&mut body).await.is_err());
        assert_eq!(budget.free.available_permits(), 256);
    }

    #[test]
    fn bytes_keep_their_pieces_until_the_last_part_is_sent() {
        let budget = Budget::for_bodies_of(0);
        let pieces = budget.at_once(3 * PIECE + 1).expect("room");
        let mut bytes = pieces.around(Bytes::from(vec![b'x'; 3 * PIECE + 1]));
        let last = bytes.split_off(3 * PIECE);
        drop(bytes);
        assert_eq!(budget.free.available_permits(), PIECES - 4);
        assert_eq!(&*last, b"x");
        drop(last);
        assert_eq!(budget.free.available_permits(), PIECES);
        let _all = budget.at_once(usize::MAX).expect("one that is longer than all fits alone");
        assert!(budget.at_once(1).is_none());
    }
}

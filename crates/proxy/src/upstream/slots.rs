//! Limits how many requests run at once. Some slots are reserved, so that protected requests do not wait for
//! long-running unprotected ones, and no client can take every slot.

use semel_http::fairness::{self, Holdings};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The slots for HTTP/1 requests.
#[derive(Debug)]
pub(super) struct Slots {
    protected: SlotPair,
    /// The slots that unprotected requests may take.
    open: SlotPair,
    counts: Arc<Mutex<Holdings<IpAddr>>>,
    total: usize,
}

/// Slots, and those that clients with more than a few may take.
#[derive(Debug)]
struct SlotPair {
    all: Arc<Semaphore>,
    for_many: Arc<Semaphore>,
}

/// A slot, free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _permits: Vec<OwnedSemaphorePermit>,
    _counted: Option<Counted>,
}

/// A slot counted for its client.
#[derive(Debug)]
struct Counted {
    client: IpAddr,
    counts: Arc<Mutex<Holdings<IpAddr>>>,
}

impl SlotPair {
    fn new(max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            for_many: Arc::new(Semaphore::new(max - fairness::reserved(max))),
        }
    }
}

impl Slots {
    /// `max` slots, a quarter of them reserved for protected requests.
    pub(super) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        let (protected, open) = (SlotPair::new(max), SlotPair::new(max - max / 4));
        Self { protected, open, counts: Arc::default(), total: max }
    }

    /// The semaphores that a request needs, narrower ones first.
    fn wanted(&self, is_protected: bool, client: Option<IpAddr>) -> impl Iterator<Item = &Arc<Semaphore>> {
        let client_count = client.map_or(0, |client| lock(&self.counts).of(&client));
        let has_many = !fairness::has_few(client_count, self.total);
        let pair = if is_protected { &self.protected } else { &self.open };
        let for_many = has_many.then_some(&pair.for_many);
        let open = (!is_protected).then_some(&self.open.all);
        for_many.into_iter().chain(open).chain([&self.protected.all])
    }

    fn counted(&self, client: Option<IpAddr>) -> Option<Counted> {
        let client = client?;
        lock(&self.counts).add(client, 1);
        Some(Counted { client, counts: Arc::clone(&self.counts) })
    }

    /// One that is free now.
    pub(super) fn at_hand(&self, is_protected: bool, client: Option<IpAddr>) -> Option<Slot> {
        let permits =
            self.wanted(is_protected, client).map(|slots| Arc::clone(slots).try_acquire_owned().ok());
        let permits = permits.collect::<Option<_>>()?;
        Some(Slot { _permits: permits, _counted: self.counted(client) })
    }

    /// One, as soon as it is free.
    pub(super) async fn wait(
        &self,
        is_protected: bool,
        client: Option<IpAddr>,
    ) -> Result<Slot, AcquireError> {
        let mut permits = Vec::with_capacity(2);
        for slots in self.wanted(is_protected, client) {
            permits.push(Arc::clone(slots).acquire_owned().await?);
        }
        Ok(Slot { _permits: permits, _counted: self.counted(client) })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        lock(&self.counts).remove(&self.client, 1);
    }
}

fn lock(counts: &Mutex<Holdings<IpAddr>>) -> MutexGuard<'_, Holdings<IpAddr>> {
    // Every change is whole.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const OTHER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    fn take(slots: &Slots, is_protected: bool, client: Option<IpAddr>) -> Vec<Slot> {
        std::iter::from_fn(|| slots.at_hand(is_protected, client)).collect()
    }

    #[test]
    fn one_client_leaves_places_for_those_that_have_few() {
        let slots = Slots::new(128);
        // 96 for unprotected requests; the last 12 are for clients with fewer than two, as this one is at first.
        let unprotected = take(&slots, false, ONE);
        assert_eq!(unprotected.len(), 86);
        assert_eq!(take(&slots, false, OTHER).len(), 2);
        assert_eq!(take(&slots, true, ONE).len(), 42, "what is left of 128");
        drop(unprotected);
        assert!(lock(&slots.counts).is_empty(), "who has none is not remembered");
        assert_eq!(take(&slots, true, ONE).len(), 114, "two of which it had before it had a few");
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_that_another_gives_back() {
        let slots = Slots::new(4);
        let held = take(&slots, false, None);
        assert_eq!(held.len(), 3, "the last is for protected requests");
        let (waited, ()) = tokio::join!(slots.wait(false, ONE), async { drop(held) });
        assert!(waited.is_ok());
    }
}

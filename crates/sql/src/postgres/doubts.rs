//! Writes whose answer was lost.
//!
//! If a commit waits for its standby and an operator cancels the wait or restarts the server, the commit
//! becomes visible although the standby does not have it. Reading such a write proves nothing until a later
//! commit of this store has reached the standby: standbys receive everything in order.

use semel_core::id::OperationId;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are remembered; the oldest are dropped first.
const REMEMBERED_MAX: usize = 65_536;

/// The last column of every statement that writes: lets the server send warnings until the transaction ends, where a
/// role or database hides them. A commit whose wait for the standby was cancelled is acknowledged with a warning only.
pub(super) const WITH_WARNINGS: &str = "CASE WHEN pg_catalog.current_setting('client_min_messages') = 'error' \
     THEN pg_catalog.set_config('client_min_messages', 'warning', true) END";

/// Writes a meaningless entry to the log, so that the commit waits for the standby. Raises
/// `synchronous_commit` if it is lower, as writes do. These are the columns of a statement that reads nothing
/// else, or reads something first.
pub(super) fn confirmation() -> String {
    format!(
        "pg_catalog.set_config('synchronous_commit', \
         CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on' \
         ELSE pg_catalog.current_setting('synchronous_commit') END, true), \
         pg_catalog.pg_logical_emit_message(true, 'semel', '')::text, {WITH_WARNINGS}"
    )
}

/// The commands whose last write may not have reached the standby.
#[derive(Default)]
pub(super) struct Doubts {
    held: Mutex<State>,
}

#[derive(Default)]
struct State {
    ids: HashSet<OperationId>,
    in_order: VecDeque<OperationId>,
}

impl Doubts {
    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: OperationId) {
        let mut held = self.held();
        if !held.ids.insert(id) {
            return;
        }
        held.in_order.push_back(id);
        if held.in_order.len() > REMEMBERED_MAX
            && let Some(oldest) = held.in_order.pop_front()
        {
            held.ids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, id: OperationId) -> bool {
        self.held().ids.contains(&id)
    }
}

/// Whether a write was sent, or given up before that.
#[derive(Debug, Clone, Default)]
pub(super) struct Sending(Arc<AtomicU8>);

impl Sending {
    const QUEUED: u8 = 0;
    const SENT: u8 = 1;
    const GIVEN_UP: u8 = 2;

    /// Whether the write may be sent, now or again: its caller has not given it up before.
    pub(super) fn begin(&self) -> bool {
        self.change(Self::SENT) != Self::GIVEN_UP
    }

    /// Whether it is given up before it was sent. From now on it will not be.
    fn give_up(&self) -> bool {
        self.change(Self::GIVEN_UP) != Self::SENT
    }

    /// Returns the state that counts: the first change of a queued write does.
    fn change(&self, to: u8) -> u8 {
        match self.0.compare_exchange(Self::QUEUED, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => to,
            Err(decided) => decided,
        }
    }
}

/// A write that was handed over and not answered yet. If it is dropped unanswered after it was sent, the write is in
/// doubt.
pub(super) struct Unanswered<'a> {
    doubts: Option<&'a Doubts>,
    id: OperationId,
    sending: Sending,
}

impl<'a> Unanswered<'a> {
    pub(super) fn of(doubts: &'a Doubts, id: OperationId, sending: Sending) -> Self {
        Self { doubts: Some(doubts), id, sending }
    }

    /// It was answered. The answer already says whether it is in doubt.
    pub(super) fn answered(mut self) {
        self.doubts = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(doubts) = self.doubts
            && !self.sending.give_up()
        {
            doubts.add(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_never_sent_is_not_in_doubt_and_is_not_sent_later() {
        let (doubts, id) = (Doubts::default(), OperationId::from_bytes([7; 16]));
        let queued = Sending::default();
        drop(Unanswered::of(&doubts, id, queued.clone()));
        assert!(!doubts.contains(id) && !queued.begin());
        let sent = Sending::default();
        assert!(sent.begin() && sent.begin(), "it may be sent again");
        drop(Unanswered::of(&doubts, id, sent));
        assert!(doubts.contains(id));
    }

    #[test]
    fn the_oldest_doubts_are_dropped_first() {
        let id = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            OperationId::from_bytes(bytes)
        };
        let doubts = Doubts::default();
        for number in (0..=REMEMBERED_MAX).chain([1, 2]) {
            doubts.add(id(number));
        }
        assert!(!doubts.contains(id(0)) && doubts.contains(id(1)) && doubts.contains(id(REMEMBERED_MAX)));
        assert_eq!(doubts.held().in_order.len(), REMEMBERED_MAX);
    }
}

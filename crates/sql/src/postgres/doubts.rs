//! Writes whose answer was lost.
//!
//! If a commit waits for its standby and an operator cancels the wait or restarts the server, the commit
//! becomes visible although the standby does not have it. Reading such a write proves nothing until a later
//! commit of this store has reached the standby: standbys receive everything in order.

use semel_core::id::OperationId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered; the oldest are dropped first.
const REMEMBERED_MAX: usize = 65_536;

/// Writes a meaningless entry to the log, so that the commit waits for the standby. Raises
/// `synchronous_commit` if it is lower, as writes do. These are the columns of a statement that reads nothing
/// else, or reads something first.
pub(super) const CONFIRMATION: &str = "pg_catalog.set_config('synchronous_commit', \
     CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on' \
     ELSE pg_catalog.current_setting('synchronous_commit') END, true), \
     pg_catalog.pg_logical_emit_message(true, 'semel', '')::text";

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

/// A write that was handed over and not answered yet. If it is dropped unanswered, the write is in doubt.
pub(super) struct Unanswered<'a> {
    doubts: Option<&'a Doubts>,
    id: OperationId,
}

impl<'a> Unanswered<'a> {
    pub(super) fn of(doubts: &'a Doubts, id: OperationId) -> Self {
        Self { doubts: Some(doubts), id }
    }

    /// It was answered. The answer already says whether it is in doubt.
    pub(super) fn answered(mut self) {
        self.doubts = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(doubts) = self.doubts {
            doubts.add(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

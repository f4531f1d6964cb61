//! Writes whose answer was lost.
//!
//! A commit that waits for its standby is made visible if somebody ends the wait, or restarts the server, although the standby
//! does not have it yet. What is read of such a write proves nothing until a later commit of this store has reached the standby
//! too: standbys receive everything in order.

use semel_core::id::OperationId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered; the oldest go first.
const REMEMBERED_MAX: usize = 65_536;

/// Writes something to the log that means nothing, so that the commit waits for the standby. Raises `synchronous_commit` where it is
/// lower, as writes do. The columns of a statement that reads nothing else, or of one that reads something first.
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

/// A write that was handed over and not answered yet. If its caller goes away, or nobody is left to answer, it is in doubt.
pub(super) struct Unanswered<'a> {
    doubts: Option<&'a Doubts>,
    id: OperationId,
}

impl<'a> Unanswered<'a> {
    pub(super) fn of(doubts: &'a Doubts, id: OperationId) -> Self {
        Self { doubts: Some(doubts), id }
    }

    /// It was answered. Whoever answered has said whether it is in doubt.
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
    fn the_oldest_are_forgotten_first() {
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

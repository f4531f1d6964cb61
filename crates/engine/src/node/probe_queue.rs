//! The queue of probes.
//!
//! One queue per reconciler, and limits on concurrent probes per reconciler and in total. A record is never probed
//! twice at the same time, and a reconciler that never answers does not block others.

use super::reconcilers::Reconcile;
use crate::settings::Probe;
use semel_core::id::CommandId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The most waiting probes per reconciler; more are left to the next sweep.
const WAITING_MAX: usize = 10_000;

/// The most waiting probes in total. The first probe of a reconciler may exceed it, up to twice this number.
const WAITING_TOTAL_MAX: usize = 2 * WAITING_MAX;

/// Waiting probes, the oldest first, and running probes.
#[derive(Default)]
pub(crate) struct ProbeQueue {
    open: BTreeSet<CommandId>,
    /// In round-robin order.
    by_reconciler: VecDeque<ReconcilerProbes>,
    running: usize,
}

/// The probes of one reconciler.
struct ReconcilerProbes {
    reconciler: Arc<dyn Reconcile>,
    waiting: VecDeque<CommandId>,
    running: usize,
}

/// A running probe. It counts until it is [answered](ProbeQueue::answered).
pub(crate) struct Probing {
    pub(crate) id: CommandId,
    /// Its reconciler.
    reconciler: Arc<dyn Reconcile>,
}

impl ProbeQueue {
    /// Queues a probe for `reconciler`, unless it is already queued or too many are waiting.
    pub(crate) fn put(&mut self, id: CommandId, reconciler: Arc<dyn Reconcile>) {
        if self.open.contains(&id) {
            return;
        }
        let found = self.by_reconciler.iter().position(|probes| Arc::ptr_eq(&probes.reconciler, &reconciler));
        let of_the_same = found.map_or(0, |at| self.by_reconciler[at].waiting.len());
        let in_total = self.open.len() - self.running;
        let in_total_max = if of_the_same == 0 { 2 * WAITING_TOTAL_MAX } else { WAITING_TOTAL_MAX };
        if of_the_same >= WAITING_MAX || in_total >= in_total_max {
            return;
        }
        let at = found.unwrap_or_else(|| {
            self.by_reconciler.push_back(ReconcilerProbes {
                reconciler,
                waiting: VecDeque::new(),
                running: 0,
            });
            self.by_reconciler.len() - 1
        });
        self.by_reconciler[at].waiting.push_back(id);
        self.open.insert(id);
    }

    /// The next probe that may run. A reconciler without a running probe may always start one, up to twice the total
    /// limit; others need room in their own limit and in the total. Reconcilers take turns.
    ///
    /// If every probe has a new reconciler, only twice the total limit applies.
    pub(crate) fn next(&mut self, bounds: &Probe) -> Option<Probing> {
        if self.running >= bounds.at_once_total_max.saturating_mul(2).max(1) {
            return None;
        }
        let is_room = self.running < bounds.at_once_total_max;
        let has_place =
            |probes: &ReconcilerProbes| probes.running == 0 || is_room && probes.running < bounds.at_once_max;
        let at =
            self.by_reconciler.iter().position(|probes| !probes.waiting.is_empty() && has_place(probes))?;
        let mut probes = self.by_reconciler.remove(at)?;
        let id = probes.waiting.pop_front()?;
        let reconciler = Arc::clone(&probes.reconciler);
        probes.running += 1;
        self.running += 1;
        self.by_reconciler.push_back(probes);
        Some(Probing { id, reconciler })
    }

    /// The probe has ended, and can be queued again.
    pub(crate) fn answered(&mut self, question: &Probing) {
        self.open.remove(&question.id);
        let at = self
            .by_reconciler
            .iter()
            .position(|probes| Arc::ptr_eq(&probes.reconciler, &question.reconciler));
        let Some(at) = at else { return };
        self.running -= 1;
        let probes = &mut self.by_reconciler[at];
        probes.running -= 1;
        if probes.running == 0 && probes.waiting.is_empty() {
            self.by_reconciler.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::reconcilers::{Case, Finding};

    fn new_reconciler() -> Arc<dyn Reconcile> {
        Arc::new(|_: Case| std::future::ready(Finding::NoAnswer))
    }

    fn id(which: u16) -> CommandId {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&which.to_be_bytes());
        CommandId::from_bytes(bytes)
    }

    /// Starts as many probes as possible, and returns them.
    fn start_all(queue: &mut ProbeQueue, bounds: &Probe) -> Vec<Probing> {
        std::iter::from_fn(|| queue.next(bounds)).collect()
    }

    fn of(reconciler: &Arc<dyn Reconcile>, started: &[Probing]) -> Vec<CommandId> {
        started.iter().filter(|one| Arc::ptr_eq(&one.reconciler, reconciler)).map(|one| one.id).collect()
    }

    const BOUNDS: Probe = Probe { at_once_max: 4, at_once_total_max: 6, ..Probe::DEFAULT };

    #[test]
    fn a_reconciler_that_never_answers_leaves_room_for_others() {
        let (slow, quick) = (new_reconciler(), new_reconciler());
        let mut queue = ProbeQueue::default();
        (0..100).for_each(|which| queue.put(id(which), Arc::clone(&slow)));
        assert_eq!(start_all(&mut queue, &BOUNDS).len(), 4);
        (100..110).for_each(|which| queue.put(id(which), Arc::clone(&quick)));
        assert_eq!(of(&quick, &start_all(&mut queue, &BOUNDS)), [id(100), id(101)], "six places in total");
    }

    #[test]
    fn at_the_total_limit_each_reconciler_still_gets_one_probe() {
        let (slow, slower, quick) = (new_reconciler(), new_reconciler(), new_reconciler());
        let mut queue = ProbeQueue::default();
        (0..50).for_each(|which| queue.put(id(which), Arc::clone(&slow)));
        (50..100).for_each(|which| queue.put(id(which), Arc::clone(&slower)));
        let taken = start_all(&mut queue, &BOUNDS);
        assert_eq!((of(&slow, &taken).len(), of(&slower, &taken).len()), (3, 3), "in turns");
        (100..103).for_each(|which| queue.put(id(which), Arc::clone(&quick)));
        for which in 100..103 {
            let started = start_all(&mut queue, &BOUNDS);
            assert_eq!(started.iter().map(|one| one.id).collect::<Vec<_>>(), [id(which)]);
            for one in &started {
                queue.answered(one);
            }
        }
    }

    #[test]
    fn new_reconcilers_for_every_probe_stay_within_twice_the_total() {
        let mut queue = ProbeQueue::default();
        (0..u16::MAX).for_each(|which| queue.put(id(which), new_reconciler()));
        assert_eq!(queue.open.len(), 2 * WAITING_TOTAL_MAX);
        let mut taken = start_all(&mut queue, &BOUNDS);
        assert_eq!(taken.len(), 12);
        queue.answered(&taken.swap_remove(0));
        assert_eq!(start_all(&mut queue, &BOUNDS).len(), 1, "the next one's turn");
    }

    #[test]
    fn a_doubt_has_one_probe_at_a_time() {
        let reconciler = new_reconciler();
        let mut queue = ProbeQueue::default();
        queue.put(id(1), Arc::clone(&reconciler));
        queue.put(id(1), Arc::clone(&reconciler));
        let first = start_all(&mut queue, &BOUNDS);
        queue.put(id(1), new_reconciler());
        assert_eq!((first.len(), start_all(&mut queue, &BOUNDS).len()), (1, 0));
        queue.answered(&first[0]);
        assert!(queue.by_reconciler.is_empty() && queue.open.is_empty() && queue.running == 0);
        queue.put(id(1), reconciler);
        assert_eq!(start_all(&mut queue, &BOUNDS).len(), 1);
    }

    #[test]
    fn too_many_probes_of_one_reconciler_delay_no_other() {
        let (many, one) = (new_reconciler(), new_reconciler());
        let mut queue = ProbeQueue::default();
        (0..u16::MAX).for_each(|which| queue.put(id(which), Arc::clone(&many)));
        assert_eq!(queue.open.len(), WAITING_MAX);
        queue.put(id(u16::MAX), Arc::clone(&one));
        assert_eq!(of(&one, &start_all(&mut queue, &BOUNDS)), [id(u16::MAX)]);
    }
}

//! The queue of probes.
//!
//! Contents: one queue per reconciler, and limits on concurrent probes per reconciler and in total. A record is never
//! probed twice at the same time, and a reconciler that never answers does not block others.

use crate::reconcile::Reconcile;
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
    shares: VecDeque<Share>,
    under_way: usize,
}

/// The probes of one reconciler.
struct Share {
    asked: Arc<dyn Reconcile>,
    waiting: VecDeque<CommandId>,
    under_way: usize,
}

/// A running probe. It counts until it is [answered](ProbeQueue::answered).
pub(crate) struct Probing {
    pub(crate) id: CommandId,
    /// Its reconciler.
    asked: Arc<dyn Reconcile>,
}

impl ProbeQueue {
    /// Queues a probe for `asked`, unless it is already queued or too many are waiting.
    pub(crate) fn put(&mut self, id: CommandId, asked: Arc<dyn Reconcile>) {
        if self.open.contains(&id) {
            return;
        }
        let found = self.shares.iter().position(|share| Arc::ptr_eq(&share.asked, &asked));
        let of_the_same = found.map_or(0, |at| self.shares[at].waiting.len());
        let in_total = self.open.len() - self.under_way;
        let in_total_max = if of_the_same == 0 { 2 * WAITING_TOTAL_MAX } else { WAITING_TOTAL_MAX };
        if of_the_same >= WAITING_MAX || in_total >= in_total_max {
            return;
        }
        let at = found.unwrap_or_else(|| {
            self.shares.push_back(Share { asked, waiting: VecDeque::new(), under_way: 0 });
            self.shares.len() - 1
        });
        self.shares[at].waiting.push_back(id);
        self.open.insert(id);
    }

    /// The next probe that may run. A reconciler without a running probe may always start one, up to twice the total
    /// limit; others need room in their own limit and in the total. Reconcilers take turns.
    ///
    /// If every probe has a new reconciler, only twice the total limit applies.
    pub(crate) fn next(&mut self, bounds: &Probe) -> Option<Probing> {
        if self.under_way >= bounds.at_once_total_max.saturating_mul(2).max(1) {
            return None;
        }
        let is_room = self.under_way < bounds.at_once_total_max;
        let has_place =
            |share: &Share| share.under_way == 0 || is_room && share.under_way < bounds.at_once_max;
        let at = self.shares.iter().position(|share| !share.waiting.is_empty() && has_place(share))?;
        let mut share = self.shares.remove(at)?;
        let id = share.waiting.pop_front()?;
        let asked = Arc::clone(&share.asked);
        share.under_way += 1;
        self.under_way += 1;
        self.shares.push_back(share);
        Some(Probing { id, asked })
    }

    /// The probe has ended, and can be queued again.
    pub(crate) fn answered(&mut self, question: &Probing) {
        self.open.remove(&question.id);
        let at = self.shares.iter().position(|share| Arc::ptr_eq(&share.asked, &question.asked));
        let Some(at) = at else { return };
        self.under_way -= 1;
        let share = &mut self.shares[at];
        share.under_way -= 1;
        if share.under_way == 0 && share.waiting.is_empty() {
            self.shares.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::{Case, Finding};

    fn somebody() -> Arc<dyn Reconcile> {
        Arc::new(|_: Case| std::future::ready(Finding::NoAnswer))
    }

    fn id(which: u16) -> CommandId {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&which.to_be_bytes());
        CommandId::from_bytes(bytes)
    }

    /// Gives out all places that there are, and tells whose they are.
    fn given(questions: &mut ProbeQueue, bounds: &Probe) -> Vec<Probing> {
        std::iter::from_fn(|| questions.next(bounds)).collect()
    }

    fn of(asked: &Arc<dyn Reconcile>, given: &[Probing]) -> Vec<CommandId> {
        given.iter().filter(|one| Arc::ptr_eq(&one.asked, asked)).map(|one| one.id).collect()
    }

    const BOUNDS: Probe = Probe { at_once_max: 4, at_once_total_max: 6, ..Probe::DEFAULT };

    #[test]
    fn one_who_never_answers_has_its_own_share_and_no_more() {
        let (slow, quick) = (somebody(), somebody());
        let mut questions = ProbeQueue::default();
        (0..100).for_each(|which| questions.put(id(which), Arc::clone(&slow)));
        assert_eq!(given(&mut questions, &BOUNDS).len(), 4);
        (100..110).for_each(|which| questions.put(id(which), Arc::clone(&quick)));
        assert_eq!(of(&quick, &given(&mut questions, &BOUNDS)), [id(100), id(101)], "six places in total");
    }

    #[test]
    fn at_the_total_limit_each_reconciler_still_gets_one_probe() {
        let (slow, slower, quick) = (somebody(), somebody(), somebody());
        let mut questions = ProbeQueue::default();
        (0..50).for_each(|which| questions.put(id(which), Arc::clone(&slow)));
        (50..100).for_each(|which| questions.put(id(which), Arc::clone(&slower)));
        let taken = given(&mut questions, &BOUNDS);
        assert_eq!((of(&slow, &taken).len(), of(&slower, &taken).len()), (3, 3), "in turns");
        (100..103).for_each(|which| questions.put(id(which), Arc::clone(&quick)));
        for which in 100..103 {
            let given = given(&mut questions, &BOUNDS);
            assert_eq!(given.iter().map(|one| one.id).collect::<Vec<_>>(), [id(which)]);
            for one in &given {
                questions.answered(one);
            }
        }
    }

    #[test]
    fn new_reconcilers_for_every_probe_stay_within_twice_the_total() {
        let mut questions = ProbeQueue::default();
        (0..u16::MAX).for_each(|which| questions.put(id(which), somebody()));
        assert_eq!(questions.open.len(), 2 * WAITING_TOTAL_MAX);
        let mut taken = given(&mut questions, &BOUNDS);
        assert_eq!(taken.len(), 12);
        questions.answered(&taken.swap_remove(0));
        assert_eq!(given(&mut questions, &BOUNDS).len(), 1, "the next one's turn");
    }

    #[test]
    fn a_doubt_is_asked_about_once_at_a_time_and_again_after_that() {
        let asked = somebody();
        let mut questions = ProbeQueue::default();
        questions.put(id(1), Arc::clone(&asked));
        questions.put(id(1), Arc::clone(&asked));
        let first = given(&mut questions, &BOUNDS);
        questions.put(id(1), somebody());
        assert_eq!((first.len(), given(&mut questions, &BOUNDS).len()), (1, 0));
        questions.answered(&first[0]);
        assert!(questions.shares.is_empty() && questions.open.is_empty() && questions.under_way == 0);
        questions.put(id(1), asked);
        assert_eq!(given(&mut questions, &BOUNDS).len(), 1);
    }

    #[test]
    fn too_many_questions_to_one_keep_none_to_another_from_being_put() {
        let (many, one) = (somebody(), somebody());
        let mut questions = ProbeQueue::default();
        (0..u16::MAX).for_each(|which| questions.put(id(which), Arc::clone(&many)));
        assert_eq!(questions.open.len(), WAITING_MAX);
        questions.put(id(u16::MAX), Arc::clone(&one));
        assert_eq!(of(&one, &given(&mut questions, &BOUNDS)), [id(u16::MAX)]);
    }
}

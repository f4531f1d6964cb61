//! Whose turn it is to sweep.
//!
//! What lives here: how the nodes on a store come to leave sweeping to one of them. The first of those that are registered sweeps; the
//! others look at the record that is overdue for longest, and step in where it stays the same. What must never: a promise that rests on
//! it. Each step of a sweep is a compare-and-swap, so that any number of nodes may sweep at once.

use crate::sweep::Swept;
use semel_core::id::CommandId;
use semel_core::time::Time;
use std::time::Duration;

/// For how many rounds the node that comes second waits, and how many more each after it.
const ROUNDS: u32 = 3;
/// Nobody waits for longer than this many nodes.
const RANK_MAX: u32 = 4;
/// For how many rounds a node that stepped in sweeps before it looks again whether another one does.
const STEPPED_IN_FOR: u32 = 60;

/// The record that is overdue for longest.
pub(crate) type Head = (CommandId, Option<Time>);

/// What a node remembers of its last rounds.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What was overdue for longest at the last look, and since when, by uptime.
    head: Option<(Head, Duration)>,
    /// Until when this node sweeps in the place of one that does not.
    stepped_in_until: Option<Duration>,
}

impl Turn {
    /// Whether the node sweeps without a look. `rank`: how many registered nodes come before it.
    pub(crate) fn is_due(&self, rank: usize, now: Duration) -> bool {
        rank == 0 || self.stepped_in_until.is_some_and(|until| now < until)
    }

    /// Takes note of a look, and tells whether nobody else seems to sweep.
    pub(crate) fn look(&mut self, head: Option<Head>, rank: usize, now: Duration, every: Duration) -> bool {
        self.stepped_in_until = None;
        let Some(head) = head else {
            self.head = None;
            return false;
        };
        let since = match self.head {
            Some((known, since)) if known == head => since,
            // Another one: whatever was first before has been dealt with.
            _ => now,
        };
        self.head = Some((head, since));
        let rank = u32::try_from(rank).unwrap_or(RANK_MAX).clamp(1, RANK_MAX);
        let is_late = now.saturating_sub(since) >= every * ROUNDS * rank;
        if is_late {
            self.head = None;
            self.stepped_in_until = Some(now + every * STEPPED_IN_FOR);
        }
        is_late
    }

    /// Takes note of a sweep. A node that stepped in steps back where another one was mostly there before it.
    pub(crate) fn swept(&mut self, swept: &Swept) {
        let done = swept.lapsed + swept.redated + swept.expired + swept.purged;
        if swept.forestalled > done {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(1);

    fn head(number: u8) -> Head {
        (CommandId::from_bytes([number; 32]), Some(Time::from_millis(number.into())))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_node_sweeps_and_the_others_look() {
        let mut turn = Turn::default();
        assert!(turn.is_due(0, at(0)) && !turn.is_due(1, at(0)));
        // Somebody sweeps: there is always another record that is overdue for longest.
        for second in 0..100 {
            assert!(!turn.look(Some(head(second)), 1, at(second.into()), EVERY));
        }
        assert!(!turn.look(None, 1, at(100), EVERY));
        assert!(!turn.look(Some(head(99)), 1, at(200), EVERY), "it was away meanwhile");
    }

    #[test]
    fn a_record_that_nobody_deals_with_has_one_node_after_the_other_step_in() {
        for (rank, waits) in [(1, 3), (2, 6), (4, 12), (900, 12)] {
            let mut turn = Turn::default();
            let steps_in = (0..=20).find(|second| turn.look(Some(head(7)), rank, at(*second), EVERY));
            assert_eq!(steps_in, Some(waits), "{rank}");
            assert!(turn.is_due(rank, at(waits + 59)) && !turn.is_due(rank, at(waits + 60)));
        }
    }

    #[test]
    fn whoever_finds_the_work_done_steps_back() {
        let mut turn = Turn::default();
        assert!(!turn.look(Some(head(7)), 1, at(0), EVERY) && turn.look(Some(head(7)), 1, at(3), EVERY));
        turn.swept(&Swept { expired: 5, forestalled: 5, ..Swept::default() });
        assert!(turn.is_due(1, at(4)));
        turn.swept(&Swept { expired: 1, forestalled: 9, ..Swept::default() });
        assert!(!turn.is_due(1, at(5)));
    }
}

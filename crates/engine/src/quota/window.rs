//! How many new keys there were within a window, in coarse slots.
//!
//! A count that drops keys older than the window, never earlier and at most a sixteenth of the window later. The time
//! is an argument.

use super::table::Tracked;
use std::time::Duration;

/// Sixteen whole slots make a window; the seventeenth is the current one.
const SLOTS: usize = 17;

/// How long a slot is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    slot_nanos: u128,
}

impl Span {
    pub(super) fn of(window: Duration) -> Self {
        Self { slot_nanos: window.as_nanos().div_ceil(SLOTS as u128 - 1).max(1) }
    }

    /// The number of the slot that `now` lies in.
    pub(super) fn slot(self, now: Duration) -> u128 {
        now.as_nanos() / self.slot_nanos
    }

    /// When the slot of this number no longer counts.
    fn leaves_at(self, slot: u128) -> Duration {
        let nanos = (slot + SLOTS as u128).saturating_mul(self.slot_nanos);
        Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos()))
    }
}

/// New keys by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    /// The newest slot that was counted in.
    newest: u128,
    /// Counts, each at its slot's number modulo `SLOTS`.
    slots: [u32; SLOTS],
}

impl Window {
    /// The count at `slot`.
    pub(super) fn count(&self, slot: u128) -> u64 {
        self.at(slot).slots.iter().copied().map(u64::from).sum()
    }

    /// How long until the count is below `cap`; zero if it is now.
    pub(super) fn wait(&self, cap: u32, span: Span, now: Duration) -> Duration {
        let current = self.at(span.slot(now));
        let mut left = current.count(current.newest);
        let oldest = current.newest.saturating_sub(SLOTS as u128 - 1);
        let mut until = now;
        for slot in oldest..=current.newest {
            if left < u64::from(cap) {
                break;
            }
            left -= u64::from(current.slots[index(slot)]);
            until = span.leaves_at(slot);
        }
        until.saturating_sub(now)
    }

    /// Counts one more, and returns its slot.
    pub(super) fn add(&mut self, slot: u128) -> u128 {
        *self = self.at(slot);
        let count = &mut self.slots[index(self.newest)];
        *count = count.saturating_add(1);
        self.newest
    }

    /// Counts one less in `slot`, unless the slot has left the window.
    pub(super) fn take_back(&mut self, slot: u128) {
        if slot + SLOTS as u128 > self.newest {
            let count = &mut self.slots[index(slot)];
            *count = count.saturating_sub(1);
        }
    }

    /// The window moved forward to `slot`. It never moves back.
    pub(super) fn at(mut self, slot: u128) -> Self {
        if slot >= self.newest + SLOTS as u128 {
            self.slots = [0; SLOTS];
        } else {
            for left in self.newest + 1..=slot {
                self.slots[index(left)] = 0;
            }
        }
        self.newest = self.newest.max(slot);
        self
    }
}

fn index(slot: u128) -> usize {
    usize::try_from(slot % SLOTS as u128).unwrap_or(0)
}

impl Tracked for Window {
    type Load = u64;

    fn load(&self) -> u64 {
        self.count(self.newest)
    }

    fn raise(&mut self, forgotten: &Self) {
        let newest = self.newest.max(forgotten.newest);
        let forgotten = forgotten.at(newest);
        *self = self.at(newest);
        for (mine, theirs) in self.slots.iter_mut().zip(forgotten.slots) {
            *mine = (*mine).max(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_key_counts_one_window_plus_at_most_a_sixteenth() {
        let span = Span::of(S(160));
        for minted in [0, 5, 9, 10, 1234] {
            let mut window = Window::default();
            window.add(span.slot(S(minted)));
            assert_eq!(window.count(span.slot(S(minted + 160))), 1, "{minted}");
            assert_eq!(window.count(span.slot(S(minted + 170))), 0, "{minted}");
        }
    }

    #[test]
    fn the_wait_ends_exactly_when_there_is_room() {
        let span = Span::of(S(160));
        let mut window = Window::default();
        for minted in [3, 14, 15, 57] {
            window.add(span.slot(S(minted)));
        }
        assert_eq!(window.wait(5, span, S(60)), S(0));
        for (cap, leaves) in [(4, 170), (3, 180), (2, 180), (1, 220)] {
            let wait = window.wait(cap, span, S(60));
            assert_eq!(S(60) + wait, S(leaves), "{cap}");
            assert!(window.count(span.slot(S(60) + wait)) < u64::from(cap));
            assert!(window.count(span.slot(S(59) + wait)) >= u64::from(cap));
        }
    }

    #[test]
    fn a_refunded_key_no_longer_counts_and_is_refunded_once() {
        let span = Span::of(S(160));
        let mut window = Window::default();
        let slot = window.add(span.slot(S(5)));
        window.add(span.slot(S(15)));
        window.take_back(slot);
        assert_eq!(window.count(span.slot(S(15))), 1);
        window.add(span.slot(S(5 + 170)));
        window.take_back(slot);
        assert_eq!(window.count(span.slot(S(5 + 170))), 2);
    }

    #[test]
    fn a_late_count_goes_to_the_current_slot() {
        let mut window = Window::default();
        window.add(40);
        window.add(3);
        assert_eq!(window.count(40), 2);
    }
}

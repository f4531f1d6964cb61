//! The estimated number of records: what the store counted, plus what was admitted since.
//!
//! When a count is too old, and what is added to it. The estimate is never too low for this node's own keys. Keys that
//! other nodes admitted since the count are not known here.

use super::table::Tracked;
use std::time::Duration;

/// Below half of its cap a count may be this many times older.
const FAR_FACTOR: u32 = 10;

/// A cap, and the maximum age of a count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cap {
    pub(super) records: u64,
    pub(super) recount_after: Duration,
}

/// A count of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    pub(super) count: u64,
    /// How many of this node's keys the store certainly counted.
    pub(super) mark: u64,
    pub(super) asked_at: Duration,
}

/// Whether one more record fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapDecision {
    Room,
    Full,
    /// The store has to count first.
    Ask,
}

/// An estimate of a number of records.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Admitted keys whose insert is over.
    settled: u64,
    /// Admitted keys whose insert may still be running.
    unsettled: u64,
    base: Option<Base>,
    /// Since when a count is running.
    asking_since: Option<Duration>,
}

impl Tally {
    /// Whether one more fits; `answered` if the store counted for this request.
    pub(super) fn decide(&self, cap: Cap, now: Duration, answered: bool) -> CapDecision {
        let Some(base) = self.base else { return CapDecision::Ask };
        let records = self.estimate(base);
        let factor = if records < cap.records / 2 { FAR_FACTOR } else { 1 };
        let stale = now.saturating_sub(base.asked_at) >= cap.recount_after.saturating_mul(factor);
        // While one request counts, others use the last count: a slow count must not run several times.
        let asking = |since| now.saturating_sub(since) < cap.recount_after.saturating_mul(FAR_FACTOR);
        if stale && !answered && !self.asking_since.is_some_and(asking) {
            CapDecision::Ask
        } else if records < cap.records {
            CapDecision::Room
        } else {
            CapDecision::Full
        }
    }

    fn estimate(&self, base: Base) -> u64 {
        let since = self.settled.saturating_sub(base.mark);
        base.count.saturating_add(since).saturating_add(self.unsettled)
    }

    /// Notes that a count is running, and returns its mark.
    pub(super) fn ask(&mut self, now: Duration) -> u64 {
        self.asking_since = Some(now);
        self.settled
    }

    /// No count is running any more.
    pub(super) fn unanswered(&mut self) {
        self.asking_since = None;
    }

    /// Stores a count, unless a later one is known.
    pub(super) fn counted(&mut self, base: Base) {
        self.asking_since = None;
        if self.base.is_none_or(|known| known.asked_at <= base.asked_at) {
            self.base = Some(base);
        }
    }

    /// One more was admitted.
    pub(super) fn let_in(&mut self) {
        self.unsettled += 1;
    }

    /// An insert is over; `refunded` if nothing was inserted.
    pub(super) fn settle(&mut self, refunded: bool) {
        self.unsettled = self.unsettled.saturating_sub(1);
        self.settled += u64::from(!refunded);
    }
}

impl Tracked for Tally {
    /// Whether an insert may be running.
    type Load = bool;

    fn load(&self) -> bool {
        self.unsettled > 0
    }

    /// Nothing to keep: the store counts again.
    fn raise(&mut self, _: &Self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const CAP: Cap = Cap { records: 10, recount_after: Duration::from_secs(1) };

    fn counted(count: u64, at: u64) -> Tally {
        let mut tally = Tally::default();
        let mark = tally.ask(S(at));
        tally.counted(Base { count, mark, asked_at: S(at) });
        tally
    }

    #[test]
    fn a_missing_count_is_requested() {
        assert_eq!(Tally::default().decide(CAP, S(0), false), CapDecision::Ask);
    }

    #[test]
    fn only_an_old_count_is_refreshed() {
        assert_eq!(counted(9, 5).decide(CAP, S(5), false), CapDecision::Room);
        assert_eq!(counted(9, 5).decide(CAP, S(6), false), CapDecision::Ask);
        assert_eq!(counted(10, 5).decide(CAP, S(5), false), CapDecision::Full);
        assert_eq!(counted(10, 5).decide(CAP, S(6), false), CapDecision::Ask);
        assert_eq!(counted(10, 5).decide(CAP, S(6), true), CapDecision::Full);
    }

    #[test]
    fn far_below_the_cap_a_count_may_be_somewhat_older() {
        assert_eq!(counted(4, 5).decide(CAP, S(14), false), CapDecision::Room);
        assert_eq!(counted(4, 5).decide(CAP, S(15), false), CapDecision::Ask);
        assert_eq!(counted(5, 5).decide(CAP, S(14), false), CapDecision::Ask);
    }

    #[test]
    fn admissions_since_the_count_are_added() {
        let mut tally = counted(8, 5);
        tally.let_in();
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Room);
        tally.let_in();
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Full);
        tally.settle(false);
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Full);
        tally.settle(true);
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Room, "nothing was inserted after all");
    }

    #[test]
    fn an_insert_during_a_count_is_added_to_it() {
        let mut tally = counted(0, 1);
        tally.let_in();
        tally.let_in();
        tally.settle(false);
        let mark = tally.ask(S(5));
        tally.let_in();
        tally.settle(false);
        tally.settle(false);
        // The store saw the first key; whether it saw the second or the third is not known.
        tally.counted(Base { count: 7, mark, asked_at: S(5) });
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Room, "7 + 2 < 10");
        tally.let_in();
        assert_eq!(tally.decide(CAP, S(5), false), CapDecision::Full);
    }

    #[test]
    fn one_request_counts_at_a_time_unless_its_answer_is_lost() {
        let mut tally = counted(9, 5);
        tally.ask(S(6));
        assert_eq!(tally.decide(CAP, S(15), false), CapDecision::Room);
        assert_eq!(tally.decide(CAP, S(16), false), CapDecision::Ask);
        tally.ask(S(16));
        tally.unanswered();
        assert_eq!(tally.decide(CAP, S(16), false), CapDecision::Ask);
    }

    #[test]
    fn an_outdated_count_changes_nothing() {
        let mut tally = counted(10, 7);
        tally.counted(Base { count: 0, mark: 0, asked_at: S(6) });
        assert_eq!(tally.decide(CAP, S(7), false), CapDecision::Full);
    }
}

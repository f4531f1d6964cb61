//! Counts of the applications' inboxes, in a store whose database has them.

use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many inboxes a census lists; the marks of all others are one total.
pub const INBOXES_MAX: usize = 1_000;

/// The marks of one consumer group on one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxMarks {
    /// How many messages are marked as processed.
    pub marks: u64,
    /// How many of them are older than the requested window and wait for a purge.
    pub overdue: u64,
    /// When the oldest was processed.
    pub oldest: Time,
    /// When the newest was processed.
    pub newest: Time,
}

/// How long an inbox remembers processed messages by default.
pub const INBOX_WINDOW: Duration = Duration::from_hours(7 * 24);

/// What the inboxes in a store's database contain. Duplicates are not included: they write nothing, and each consumer
/// counts its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxCensus {
    /// The database's time when it was counted.
    pub now: Time,
    /// By consumer group and topic, [`INBOXES_MAX`] at most.
    pub inboxes: BTreeMap<(String, String), InboxMarks>,
    /// The marks of all inboxes beyond those.
    pub other_marks: u64,
}

impl InboxCensus {
    /// Nothing counted yet.
    pub fn empty(now: Time) -> Self {
        Self { now, inboxes: BTreeMap::new(), other_marks: 0 }
    }

    /// Adds marks of one inbox to those added before.
    pub fn add(&mut self, group: String, topic: String, more: InboxMarks) {
        let inbox = (group, topic);
        if let Some(marks) = self.inboxes.get_mut(&inbox) {
            marks.marks += more.marks;
            marks.overdue += more.overdue;
            marks.oldest = marks.oldest.min(more.oldest);
            marks.newest = marks.newest.max(more.newest);
        } else if self.inboxes.len() < INBOXES_MAX {
            self.inboxes.insert(inbox, more);
        } else {
            self.other_marks += more.marks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(marks: u64, oldest: u64, newest: u64) -> InboxMarks {
        let (oldest, newest) = (Time::from_millis(oldest), Time::from_millis(newest));
        InboxMarks { marks, overdue: 1, oldest, newest }
    }

    #[test]
    fn parts_of_one_inbox_are_one_inbox() {
        let mut census = InboxCensus::empty(Time::from_millis(9));
        census.add("a".to_owned(), "t".to_owned(), marks(2, 5, 6));
        census.add("a".to_owned(), "t".to_owned(), marks(3, 4, 5));
        let whole = InboxMarks { overdue: 2, ..marks(5, 4, 6) };
        assert_eq!(census.inboxes, BTreeMap::from([(("a".to_owned(), "t".to_owned()), whole)]));
    }

    #[test]
    fn a_flood_of_topics_is_one_number() {
        let mut census = InboxCensus::empty(Time::from_millis(9));
        for topic in 0..INBOXES_MAX + 7 {
            census.add("a".to_owned(), topic.to_string(), marks(2, 5, 6));
        }
        assert_eq!((census.inboxes.len(), census.other_marks), (INBOXES_MAX, 14));
    }
}

//! The latest changes of a record.
//!
//! A bounded list for operators who have to resolve a record. No decision depends on it: a record without history
//! behaves the same.

use crate::state_name::StateName;
use crate::time::Time;

/// The longest name of a worker or operator that is stored; longer text is truncated.
pub const WHO_BYTES_MAX: usize = 64;
/// The longest reason that is stored; longer text is truncated. It has room for an operator's action and a reason of
/// 256 bytes.
pub const WHY_BYTES_MAX: usize = 320;

/// One change of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The record's attempt after the change.
    pub attempt: u32,
    /// The record's state after the change.
    pub to: StateName,
    /// When, by the store's clock.
    pub at: Time,
    /// Which worker, sweeper, reconciler or operator did it.
    pub who: Box<str>,
    /// Why, in a few words; empty if the state explains itself.
    pub why: Box<str>,
}

/// The latest entries of a record, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct History {
    pub(crate) dropped: u32,
    pub(crate) entries: Vec<Entry>,
}

impl History {
    /// The stored entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many older entries were dropped to keep the history short.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Adds an entry and drops the oldest ones beyond `entries_max`. The first entry is dropped last: how a command
    /// began explains more than its seventh renewed doubt.
    pub(crate) fn push(&mut self, mut entry: Entry, entries_max: u8) {
        if entries_max == 0 {
            return;
        }
        cut(&mut entry.who, WHO_BYTES_MAX);
        cut(&mut entry.why, WHY_BYTES_MAX);
        self.entries.push(entry);
        while self.entries.len() > usize::from(entries_max) {
            let oldest_but_the_first = usize::from(entries_max > 1);
            self.entries.remove(oldest_but_the_first);
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Replaces the last entry, whose change was never stored.
    pub(crate) fn replace_last(&mut self, entry: Entry, entries_max: u8) {
        self.entries.pop();
        self.push(entry, entries_max);
    }
}

/// Marks where text was cut off.
const ELLIPSIS: &str = "…";

/// Shortens `text` to the limit, between two words if possible, and marks that something is missing.
fn cut(text: &mut Box<str>, bytes_max: usize) {
    if text.len() <= bytes_max {
        return;
    }
    let fits = &text[..text.floor_char_boundary(bytes_max - ELLIPSIS.len())];
    let ends_word = text[fits.len()..].starts_with(' ');
    let words = if ends_word { fits } else { fits.rsplit_once(' ').map_or(fits, |(words, _)| words) };
    *text = format!("{}{ELLIPSIS}", words.trim_end()).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(attempt: u32) -> Entry {
        let at = Time::from_millis(u64::from(attempt));
        Entry { attempt, to: StateName::Processing, at, who: "w".into(), why: "".into() }
    }

    fn kept(pushes: u32, entries_max: u8) -> (Vec<u32>, u32) {
        let mut history = History::default();
        for attempt in 1..=pushes {
            history.push(entry(attempt), entries_max);
        }
        (history.entries().iter().map(|entry| entry.attempt).collect(), history.dropped())
    }

    #[test]
    fn the_history_keeps_its_first_and_latest_events() {
        assert_eq!(kept(3, 4), (vec![1, 2, 3], 0));
        assert_eq!(kept(6, 4), (vec![1, 4, 5, 6], 2));
        assert_eq!(kept(6, 2), (vec![1, 6], 4));
        assert_eq!(kept(6, 1), (vec![6], 5));
        assert_eq!(kept(6, 0), (vec![], 0), "a history without entries drops none");
    }

    #[test]
    fn long_names_and_reasons_are_cut_between_words() {
        let kept = |text: String| {
            let mut history = History::default();
            history.push(Entry { who: text.clone().into(), why: text.into(), ..entry(1) }, 4);
            let entry = &history.entries()[0];
            (entry.who.to_string(), entry.why.to_string())
        };
        let (who, why) = kept("eleven two ".repeat(40));
        assert_eq!(who, format!("{}eleven…", "eleven two ".repeat(5)));
        assert!(why.ends_with(" two eleven…") && why.len() <= WHY_BYTES_MAX, "{why}");
        // Without a space between two characters.
        let (who, why) = kept("é".repeat(300));
        assert_eq!((who.len(), why.len()), (63, 319));
        assert!(who.ends_with("é…") && why.ends_with("é…"));
        let whole = "é".repeat(32);
        assert_eq!(kept(whole.clone()).0, whole);
    }
}

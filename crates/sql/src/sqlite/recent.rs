//! The last writes of this store.
//!
//! Contents: the row number and the written bytes of claims that wait for their outcome. A swap then need not
//! find, read and decode the row: one statement changes it if the bytes are still the same. Nothing is
//! answered from memory: that statement compares all bytes with the file, and only committed writes are
//! remembered.

use super::row::Row;
use semel_core::id::CommandId;
use semel_core::machine::Unchanged;
use std::collections::{HashMap, VecDeque};

/// How many claims are remembered; far more than most services run at a time.
const COUNT_MAX: usize = 4096;
/// Larger entries are not remembered: they are rare, and reading them costs little compared to writing.
const ENTRY_BYTES_MAX: usize = 2048;

/// A row as this store wrote it.
#[derive(Debug)]
pub(super) struct RememberedRow {
    pub(super) number: i64,
    pub(super) row: Row,
}

impl RememberedRow {
    /// Whether the written bytes meet the condition `expect`.
    fn meets(&self, expect: &Unchanged) -> bool {
        self.row.unchanged.as_ref() == Some(expect)
    }
}

#[derive(Debug, Default)]
pub(super) struct Recent {
    known: HashMap<CommandId, RememberedRow>,
    /// In the order of arrival. Taken ones are skipped.
    order: VecDeque<CommandId>,
    /// Written in a transaction that is still open.
    pending: Vec<(CommandId, RememberedRow)>,
}

impl Recent {
    /// A transaction begins. Uncommitted writes of the previous one are forgotten.
    pub(super) fn begin(&mut self) {
        self.pending.clear();
    }

    /// Notes a write that will probably be swapped. It counts after the commit.
    pub(super) fn note(&mut self, id: CommandId, number: i64, row: &Row) {
        if row.is_unfinished() && row.entry.len() <= ENTRY_BYTES_MAX {
            self.pending.push((id, RememberedRow { number, row: row.clone() }));
        }
    }

    /// The noted writes are committed.
    pub(super) fn committed(&mut self) {
        for (id, known) in self.pending.drain(..) {
            if self.known.insert(id, known).is_none() {
                self.order.push_back(id);
            }
        }
        // Twice as many, so that finished ones do not push out waiting ones.
        while self.known.len() > COUNT_MAX || self.order.len() > 2 * COUNT_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.known.remove(&oldest);
        }
    }

    /// Takes what this store wrote under that ID, if it meets `expect`. It is removed, because the caller
    /// changes the row.
    pub(super) fn take(&mut self, id: &CommandId, expect: &Unchanged) -> Option<RememberedRow> {
        self.known.remove(id).filter(|known| known.meets(expect))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::row;
    use semel_core::record::{StateName, Token};

    fn id(number: usize) -> CommandId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        CommandId::from_bytes(bytes)
    }

    fn expect(version: u64) -> Unchanged {
        Unchanged { version, token: Token::from_random(7), state: StateName::Processing }
    }

    fn written(state: StateName, version: u64) -> Row {
        Row { state: row::state(state), unchanged: Some(expect(version)), ..Row::marker() }
    }

    #[test]
    fn uncommitted_entries_are_not_cached() {
        let mut recent = Recent::default();
        recent.begin();
        recent.note(id(1), 1, &written(StateName::Processing, 1));
        assert!(recent.take(&id(1), &expect(1)).is_none(), "not before the commit");
        recent.begin();
        recent.committed();
        assert!(recent.take(&id(1), &expect(1)).is_none(), "not after a roll-back");
    }

    #[test]
    fn a_cached_entry_is_returned_once_on_exact_match() {
        let mut recent = Recent::default();
        for number in 1..=2 {
            recent.note(id(number), 5, &written(StateName::Processing, 1));
        }
        recent.committed();
        assert!(recent.take(&id(1), &expect(2)).is_none());
        assert_eq!(recent.take(&id(2), &expect(1)).map(|known| known.number), Some(5));
        assert!(recent.take(&id(2), &expect(1)).is_none());
    }

    #[test]
    fn final_entries_are_not_cached_and_the_cache_is_bounded() {
        let mut recent = Recent::default();
        recent.note(id(0), 1, &written(StateName::Succeeded, 1));
        recent.note(id(0), 1, &Row { entry: vec![0; ENTRY_BYTES_MAX + 1], ..written(StateName::Claimed, 1) });
        recent.committed();
        assert!(recent.known.is_empty());
        for number in 0..3 * COUNT_MAX {
            recent.note(id(number), 1, &written(StateName::Claimed, 1));
            recent.committed();
            drop(recent.take(&id(number), &expect(1)));
            recent.note(id(number), 1, &written(StateName::Claimed, 2));
            recent.committed();
        }
        assert!(recent.known.len() <= COUNT_MAX && recent.order.len() <= 2 * COUNT_MAX);
    }
}

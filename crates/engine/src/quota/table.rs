//! A bounded table in which a newcomer never has a better position than a dropped entry.
//!
//! Which entry is dropped when the table is full, and the initial value of a key without an entry. Dropping an entry
//! never lifts a limit.
//!
//! The entry with the least load is dropped first (of those, the least recently used), and its usage goes into one
//! *floor*, from which every key without an entry starts. So a caller that has used up its limit cannot escape it:
//! its entry is dropped only if no other has less usage, and then it starts from the floor. Flooding the table harms
//! newcomers only as far as *every* entry in it is used up.

use std::collections::{BTreeMap, BTreeSet};

/// A value in the table.
pub(super) trait Tracked: Clone + Default {
    /// The usage; the least is dropped first.
    type Load: Ord + Copy;

    /// The usage.
    fn load(&self) -> Self::Load;

    /// Adds the usage of a dropped entry.
    fn raise(&mut self, forgotten: &Self);
}

struct Cell<V> {
    value: V,
    /// A unique number: a new entry of the same key has another one.
    serial: u64,
    used: u64,
}

/// A bounded table; see the [module](self).
pub(super) struct Table<K, V: Tracked> {
    cells: BTreeMap<K, Cell<V>>,
    order: BTreeSet<(V::Load, u64, K)>,
    floor: V,
    cells_max: usize,
    clock: u64,
}

impl<K: Ord + Copy, V: Tracked> Table<K, V> {
    /// A table of at most `cells_max` entries, and at least one.
    pub(super) fn new(cells_max: usize) -> Self {
        let cells_max = cells_max.max(1);
        Self { cells: BTreeMap::new(), order: BTreeSet::new(), floor: V::default(), cells_max, clock: 0 }
    }

    /// The value for `key`, also if it has no entry. Creates no entry: a refused request must not drop others.
    pub(super) fn peek(&self, key: &K) -> V {
        if let Some(cell) = self.cells.get(key) {
            return cell.value.clone();
        }
        let mut start = self.floor.clone();
        if self.cells.len() >= self.cells_max
            && let Some((_, _, first)) = self.order.first()
            && let Some(cell) = self.cells.get(first)
        {
            start.raise(&cell.value);
        }
        start
    }

    /// Changes the value for `key`, and returns its entry's serial.
    pub(super) fn change<R>(&mut self, key: K, change: impl FnOnce(&mut V) -> R) -> (u64, R) {
        self.clock += 1;
        let mut cell = self.take_out(&key).unwrap_or_else(|| {
            self.make_room();
            Cell { value: self.floor.clone(), serial: self.clock, used: 0 }
        });
        cell.used = self.clock;
        let answer = change(&mut cell.value);
        let serial = cell.serial;
        self.put(key, cell);
        (serial, answer)
    }

    /// Changes the entry of `key` if it still has this serial. Does not count as a use.
    pub(super) fn amend(&mut self, key: K, serial: u64, change: impl FnOnce(&mut V)) {
        if self.cells.get(&key).is_none_or(|cell| cell.serial != serial) {
            return;
        }
        if let Some(mut cell) = self.take_out(&key) {
            change(&mut cell.value);
            self.put(key, cell);
        }
    }

    /// Changes every entry and the floor.
    pub(super) fn change_all(&mut self, change: impl Fn(&mut V)) {
        change(&mut self.floor);
        self.order.clear();
        for (key, cell) in &mut self.cells {
            change(&mut cell.value);
            self.order.insert((cell.value.load(), cell.used, *key));
        }
    }

    fn take_out(&mut self, key: &K) -> Option<Cell<V>> {
        let cell = self.cells.remove(key)?;
        self.order.remove(&(cell.value.load(), cell.used, *key));
        Some(cell)
    }

    fn put(&mut self, key: K, cell: Cell<V>) {
        self.order.insert((cell.value.load(), cell.used, key));
        self.cells.insert(key, cell);
    }

    fn make_room(&mut self) {
        while self.cells.len() >= self.cells_max
            && let Some((_, _, key)) = self.order.pop_first()
        {
            if let Some(cell) = self.cells.remove(&key) {
                self.floor.raise(&cell.value);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.cells.len(), self.order.len());
        self.cells.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count that only grows.
    #[derive(Clone, Default, PartialEq, Debug)]
    struct Used(u32);

    impl Tracked for Used {
        type Load = u32;

        fn load(&self) -> u32 {
            self.0
        }

        fn raise(&mut self, forgotten: &Self) {
            self.0 = self.0.max(forgotten.0);
        }
    }

    fn use_up(table: &mut Table<u32, Used>, key: u32, by: u32) -> u64 {
        table.change(key, |used| used.0 += by).0
    }

    #[test]
    fn the_entry_with_least_use_then_oldest_is_evicted() {
        let mut table = Table::new(3);
        for (key, by) in [(1, 5), (2, 1), (3, 1)] {
            use_up(&mut table, key, by);
        }
        use_up(&mut table, 4, 2);
        assert_eq!(table.len(), 3);
        assert_eq!(table.cells.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn a_newcomer_starts_with_what_the_forgotten_had_used_up() {
        let mut table = Table::new(2);
        use_up(&mut table, 1, 5);
        assert_eq!(table.peek(&3), Used(0), "there is room");
        use_up(&mut table, 2, 3);
        assert_eq!(table.peek(&3), Used(3), "it would evict the second");
        assert_eq!(table.peek(&2), Used(3));
        use_up(&mut table, 3, 1);
        assert_eq!(table.peek(&3), Used(4));
        assert_eq!(table.peek(&2), Used(4), "a returning key has no better position");
        assert_eq!(table.peek(&1), Used(5));
    }

    #[test]
    fn a_small_table_never_gives_a_key_a_better_position() {
        let mut table = Table::new(4);
        let mut truth: BTreeMap<u32, u32> = BTreeMap::new();
        let mut state = 12_345_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (state >> 16) % 12;
            use_up(&mut table, key, (state >> 8) % 3);
            *truth.entry(key).or_default() += (state >> 8) % 3;
            assert!(truth.iter().all(|(key, used)| table.peek(key).0 >= *used));
            assert!(table.len() <= 4);
        }
    }

    #[test]
    fn a_recreated_entry_ignores_updates_for_the_old_one() {
        let mut table = Table::new(1);
        let old = use_up(&mut table, 1, 5);
        table.amend(1, old, |used| used.0 -= 1);
        assert_eq!(table.peek(&1), Used(4));
        use_up(&mut table, 2, 1);
        let new = use_up(&mut table, 1, 1);
        assert_ne!(old, new);
        table.amend(1, old, |used| used.0 = 0);
        assert_eq!(table.peek(&1), Used(6));
    }

    #[test]
    fn changing_every_entry_keeps_the_order_by_load() {
        let mut table = Table::new(2);
        use_up(&mut table, 1, 5);
        use_up(&mut table, 2, 3);
        table.change_all(|used| used.0 = 10 - used.0);
        use_up(&mut table, 3, 0);
        assert_eq!(table.cells.keys().copied().collect::<Vec<_>>(), [2, 3]);
    }
}

//! The names of savepoints: few, so that the statistics of a server do not count each one as another statement.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of a savepoint: its level among those that are open on its connection. No other open one has it, so that
/// each guard ends its own.
pub struct SavepointName {
    /// The address of the connection. It cannot move, because the guard of the savepoint borrows it.
    connection: usize,
    level: u32,
    is_free: bool,
}

#[derive(Debug, Default)]
struct Levels {
    open: u32,
    /// The level of the last one, and those of calls that were dropped: they may still be on the server.
    last: u32,
}

static LEVELS: Mutex<BTreeMap<usize, Levels>> = Mutex::new(BTreeMap::new());

fn levels() -> MutexGuard<'static, BTreeMap<usize, Levels>> {
    LEVELS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SavepointName {
    /// The next level.
    pub(super) fn on<C>(connection: &C) -> Self {
        let connection = ptr::from_ref(connection).addr();
        let mut all = levels();
        let levels = all.entry(connection).or_default();
        levels.open += 1;
        levels.last += 1;
        Self { connection, level: levels.last, is_free: false }
    }

    /// The savepoint does not exist any more: the name can be used again at once, and not only after the outermost
    /// one has ended.
    pub(super) fn set_free(&mut self) {
        self.is_free = true;
    }
}

impl Drop for SavepointName {
    fn drop(&mut self) {
        let mut all = levels();
        let Some(levels) = all.get_mut(&self.connection) else { return };
        levels.open -= 1;
        if self.is_free && levels.last == self.level {
            levels.last -= 1;
        }
        if levels.open == 0 {
            all.remove(&self.connection);
        }
    }
}

impl fmt::Display for SavepointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "semel_pattern_{}", self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_level_and_is_used_again_after_its_end() {
        let connections = [0_u8; 2];
        for _ in 0..3 {
            let outer = SavepointName::on(&connections[0]);
            let mut inner = SavepointName::on(&connections[0]);
            let other = SavepointName::on(&connections[1]);
            assert_eq!(
                [&outer, &inner, &other].map(ToString::to_string),
                ["semel_pattern_1", "semel_pattern_2", "semel_pattern_1"]
            );
            inner.set_free();
            drop(inner);
            assert_eq!(SavepointName::on(&connections[0]).to_string(), "semel_pattern_2");
        }
    }

    #[test]
    fn the_name_of_a_dropped_call_is_not_used_before_the_outermost_has_ended() {
        let connection = 0_u8;
        let outer = SavepointName::on(&connection);
        drop(SavepointName::on(&connection));
        assert_eq!(SavepointName::on(&connection).to_string(), "semel_pattern_3");
        drop(outer);
        assert_eq!(SavepointName::on(&connection).to_string(), "semel_pattern_1");
    }
}

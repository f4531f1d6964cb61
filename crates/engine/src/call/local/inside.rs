//! Detects calls to the engine from inside the work of a local command.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs the work of a local command on the thread that every write of the store needs. Until it returns, the engine
/// refuses commands from this thread, because it would wait for itself.
pub fn inside_work<T>(work: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_INSIDE.set(self.0);
        }
    }
    let _leave = Leave(IS_INSIDE.replace(true));
    work()
}

pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_inside_is_false_after_a_panic() {
        assert!(!is_inside() && inside_work(is_inside));
        drop(std::panic::catch_unwind(|| inside_work(|| panic!("for the test"))));
        assert!(!is_inside());
    }
}

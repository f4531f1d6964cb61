//! Work that runs on a thread that the engine itself waits for.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs the work of a local command on this thread, which every write of the engine's store needs. Until it returns,
/// the engine takes no command that is handed to it here: it would wait for itself.
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
    fn a_panic_leaves_too() {
        assert!(!is_inside() && inside_work(is_inside));
        drop(std::panic::catch_unwind(|| inside_work(|| panic!("for the test"))));
        assert!(!is_inside());
    }
}

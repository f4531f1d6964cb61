//! An error that repeats until somebody acts: it is logged once in full, and then counted.

use std::sync::{Mutex, PoisonError};

/// After this many failures with the same error, a short line says that it lasts.
const REMINDER: u64 = 60;

/// One kind of error.
#[derive(Debug, Default)]
pub(super) struct Repeated(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    error: String,
    /// Failures since the last success.
    failures: u64,
    /// Failures since the error was last logged in full.
    repeats: u64,
}

/// The line that a failure causes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The error in full: it is new.
    First,
    /// It lasts: how many failures there were.
    Still(u64),
}

impl Repeated {
    /// It failed with this error. Returns the line to write, if there is one.
    pub(super) fn again(&self, error: &str) -> Option<Line> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures += 1;
        if state.failures == 1 || state.error != error {
            error.clone_into(&mut state.error);
            state.repeats = 0;
            return Some(Line::First);
        }
        state.repeats += 1;
        state.repeats.is_multiple_of(REMINDER).then_some(Line::Still(state.failures))
    }

    /// It succeeded. Returns how often it had failed.
    pub(super) fn over(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *state).failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_and_then_counted() {
        let repeated = Repeated::default();
        assert_eq!(repeated.again("down"), Some(Line::First));
        let lines: Vec<_> = (0..150).filter_map(|_| repeated.again("down")).collect();
        assert_eq!(lines, [Line::Still(61), Line::Still(121)]);
        assert_eq!(repeated.again("full"), Some(Line::First), "another error is new");
        assert_eq!(repeated.over(), 152);
        assert_eq!(repeated.over(), 0);
        assert_eq!(repeated.again("full"), Some(Line::First), "after a success, the same error is new");
    }
}

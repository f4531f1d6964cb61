//! Why a value that somebody wrote is refused: in the file, in a flag, or in a variable.

use std::fmt;
use thiserror::Error;

/// What is wrong with a value, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}{}{}", if fix.is_some() { ": " } else { "" }, fix.as_deref().unwrap_or_default())]
pub struct InvalidValue {
    /// What is wrong.
    pub problem: String,
    /// What to write, unless that follows from the problem.
    pub fix: Option<String>,
}

impl InvalidValue {
    pub(crate) fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { problem: problem.into(), fix: Some(fix.into()) }
    }

    /// For a problem that says everything.
    pub(crate) fn without_fix(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), fix: None }
    }

    /// The error of another crate, whose sentence ends with the fix.
    pub(crate) fn of_sentence(error: impl fmt::Display) -> Self {
        let text = error.to_string();
        let (problem, fix) = match text.rsplit_once(": write ") {
            Some((problem, fix)) => (problem, Some(format!("write {fix}"))),
            None => match text.rsplit_once(". ").or_else(|| text.rsplit_once("; ")) {
                Some((problem, fix)) => (problem, Some(fix.to_owned())),
                None => (&*text, None),
            },
        };
        Self { problem: problem.to_owned(), fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_is_separated_from_its_reason() {
        let split = |text: &str| InvalidValue::of_sentence(text);
        let written = InvalidValue::new("`24` is not a duration", "write a whole number with ms");
        assert_eq!(split("`24` is not a duration: write a whole number with ms"), written);
        assert_eq!(InvalidValue::of_sentence(&written), written);
        assert_eq!(
            split("Too wide: all of it. Name less"),
            InvalidValue::new("Too wide: all of it", "Name less")
        );
        assert_eq!(split("`9d` is too long"), InvalidValue::without_fix("`9d` is too long"));
    }
}

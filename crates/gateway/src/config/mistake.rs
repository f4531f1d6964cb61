//! A mistake in a file, with its position, its reason and its fix. It never contains a secret, because mistakes are
//! printed, logged and pasted into tickets.

use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// A position in a file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    pub(super) fn of(text: &str, span: &Range<usize>) -> Self {
        let before = &text[..text.floor_char_boundary(span.start)];
        let line_at = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_at..].chars().count() + 1 }
    }
}

/// Where something is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SettingLocation {
    /// The position in the file.
    pub(super) at: Option<Position>,
    /// The flag or the environment variable that overrides the file.
    pub(super) given_by: Option<String>,
}

impl SettingLocation {
    /// A mistake at this place.
    pub(super) fn mistake(self, problem: impl Into<String>, fix: impl Into<String>) -> ConfigError {
        ConfigError { at: self.at, given_by: self.given_by, problem: problem.into(), fix: fix.into() }
    }
}

/// One mistake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// Its position in the file, if it has one.
    pub at: Option<Position>,
    /// The flag or the environment variable that is the cause, such as `--ttl` or `SEMEL_TTL`; `None` for the file.
    pub given_by: Option<String>,
    /// What is wrong, and why that matters.
    pub problem: String,
    /// How to fix it.
    pub fix: String,
}

impl ConfigError {
    /// Where it is: in a flag, a variable, or the file named `file`.
    pub fn place<'a>(&'a self, file: &'a str) -> &'a str {
        self.given_by.as_deref().unwrap_or(file)
    }

    /// The message, for the file named `file`.
    pub fn message(&self, file: &str) -> String {
        let Self { at, problem, fix, .. } = self;
        match at {
            Some(Position { line, column }) => format!("{file}:{line}:{column}: {problem}\n    fix: {fix}"),
            None => format!("{}: {problem}\n    fix: {fix}", self.place(file)),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.at {
            write!(f, "line {line}, column {column}: ")?;
        }
        if let Some(given_by) = &self.given_by {
            write!(f, "{given_by}: ")?;
        }
        write!(f, "{}; fix: {}", self.problem, self.fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_characters_from_one() {
        let text = "a = 1\nü = \"é\"\nb = 2";
        let at = text.find('2').expect("there");
        assert_eq!(Position::of(text, &(0..1)), Position { line: 1, column: 1 });
        assert_eq!(Position::of(text, &(at..at + 1)), Position { line: 3, column: 5 });
        let quoted = text.find('"').expect("there");
        assert_eq!(Position::of(text, &(quoted..quoted)), Position { line: 2, column: 5 });
        assert_eq!(Position::of(text, &(99..99)).line, 3, "past the end is the end");
    }
}

//! A violation of a rule: its location, and the fix.

use std::fmt;

/// A broken rule: its location, and the fix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    file: String,
    line: Option<usize>,
    advice: String,
}

impl Violation {
    /// At a line, counted from one; zero means the whole file.
    pub(crate) fn at(file: impl Into<String>, line: usize, advice: impl Into<String>) -> Self {
        Self { file: file.into(), line: (line > 0).then_some(line), advice: advice.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.advice),
            None => write!(f, "{}: {}", self.file, self.advice),
        }
    }
}

/// The violations as text, for the rules' own tests.
#[cfg(test)]
pub(crate) fn messages(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

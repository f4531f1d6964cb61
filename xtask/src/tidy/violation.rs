//! A violation of a rule: its position, and what to do.

use std::fmt;

/// A broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    file: String,
    line: Option<usize>,
    advice: String,
}

impl Violation {
    /// At a line, counted from one; zero stands for the file as a whole.
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

/// The violations of a rule on a sample, as text, for the rules' own tests.
#[cfg(test)]
pub(crate) fn told(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

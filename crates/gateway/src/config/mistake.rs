//! What is wrong with a file.
//!
//! What lives here: a mistake with its place, its reason and what mends it. What must never: the value of a secret; a
//! mistake is printed, logged and pasted into tickets.

use std::fmt;
use std::ops::Range;

/// Where something stands in a file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    pub(super) fn of(text: &str, span: &Range<usize>) -> Self {
        let before = &text[..text.floor_char_boundary(span.start)];
        let line_at = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_at..].chars().count() + 1 }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands; nowhere in the file where a flag or a variable is the cause.
    pub at: Option<Place>,
    /// What is wrong, and why that matters.
    pub what: String,
    /// What mends it.
    pub mend: String,
}

impl Mistake {
    /// As it is told of the file that is called `file`.
    pub fn told(&self, file: &str) -> String {
        let Self { at, what, mend } = self;
        match at {
            Some(Place { line, column }) => format!("{file}:{line}:{column}: {what}\n    fix: {mend}"),
            None => format!("{file}: {what}\n    fix: {mend}"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.at {
            write!(f, "line {line}, column {column}: ")?;
        }
        write!(f, "{}; fix: {}", self.what, self.mend)
    }
}

/// Parts a sentence that ends with its remedy, as parsers and checks of this crate write them, into the two.
pub(super) fn parted(told: &str) -> (String, String) {
    let (what, mend) = told
        .rsplit_once(": write ")
        .map(|(what, mend)| (what, format!("write {mend}")))
        .or_else(|| told.rsplit_once(". ").map(|(what, mend)| (what, mend.to_owned())))
        .or_else(|| told.rsplit_once("; ").map(|(what, mend)| (what, mend.to_owned())))
        .unwrap_or((told, "write another value; `semel config default` tells what it means".to_owned()));
    (what.to_owned(), mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_characters_from_one() {
        let text = "a = 1\nü = \"é\"\nb = 2";
        let at = text.find('2').expect("there");
        assert_eq!(Place::of(text, &(0..1)), Place { line: 1, column: 1 });
        assert_eq!(Place::of(text, &(at..at + 1)), Place { line: 3, column: 5 });
        let quoted = text.find('"').expect("there");
        assert_eq!(Place::of(text, &(quoted..quoted)), Place { line: 2, column: 5 });
        assert_eq!(Place::of(text, &(99..99)).line, 3, "past the end is the end");
    }

    #[test]
    fn a_remedy_is_told_apart_from_its_reason() {
        assert_eq!(
            parted("`24` is not a duration: write a whole number with ms"),
            ("`24` is not a duration".to_owned(), "write a whole number with ms".to_owned())
        );
        assert_eq!(
            parted("Too wide: all of it. Name less"),
            ("Too wide: all of it".into(), "Name less".into())
        );
    }
}

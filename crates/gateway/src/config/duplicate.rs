//! Where a key was set before that is set twice.

use super::mistake::Position;
use std::ops::Range;

/// The line on which the key at `span` was set first, in the same table. A parser reports only the second.
pub(super) fn first_line(text: &str, span: &Range<usize>) -> Option<usize> {
    let name = text.get(span.clone())?.trim();
    let second = Position::of(text, span).line;
    let lines: Vec<&str> = text.lines().take(second).collect();
    let is_header = |line: &str| line.trim_start().starts_with('[');
    if lines.last().is_some_and(|line| is_header(line)) {
        let header = lines.last()?.trim();
        return lines[..second - 1].iter().position(|line| line.trim() == header).map(|at| at + 1);
    }
    let table = lines[..second - 1].iter().rposition(|line| is_header(line)).map_or(0, |at| at + 1);
    let is_key =
        |line: &&str| line.split_once('=').is_some_and(|(key, _)| key.trim().trim_matches('"') == name);
    lines[table..second - 1].iter().position(is_key).map(|at| table + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, of: &str) -> Option<usize> {
        let at = text.rfind(of).expect("there");
        first_line(text, &(at..at + of.len()))
    }

    #[test]
    fn the_first_of_two_is_found_in_the_same_table() {
        assert_eq!(first("a = 1\na = 2\n", "a"), Some(1));
        assert_eq!(first("[x]\nttl = 1\n[y]\nb = 1\n\nttl = 2\nttl = 3\n", "ttl"), Some(6));
        assert_eq!(first("[x]\nttl = 1\n[y]\nttl = 2\n", "ttl"), None, "another table");
        assert_eq!(first("[x]\na = 1\n[y]\n[x]\n", "x"), Some(1));
    }
}

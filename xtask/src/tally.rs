//! Counts tests by the `test result:` lines of test programs.

use std::fmt;

/// How many tests passed, failed and were ignored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Tally {
    /// Adds one line of output, if it is a test program's result.
    pub(crate) fn read_line(&mut self, line: &str) {
        let plain = without_colour(line);
        let Some(result) = plain.trim().strip_prefix("test result: ") else { return };
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(status)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match status {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Tests that really ran.
    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.ignored > 0 {
            write!(f, ", {} skipped", self.ignored)?;
        }
        Ok(())
    }
}

/// The line without terminal colour sequences, which `CARGO_TERM_COLOR=always` adds.
fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut inside = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => inside = true,
            'm' if inside => inside = false,
            _ if inside => {}
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.read_line(line);
        }
        tally
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let sum = tally(&[
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 0.00s",
            "test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ]);
        assert_eq!(sum, Tally { passed: 43, failed: 2, ignored: 1 });
        assert_eq!(sum.ran(), 45);
    }

    #[test]
    fn other_lines_are_not_counted() {
        let lines = ["test a ... ok", "7 passed; 1 failed", "error: test failed", ""];
        assert_eq!(tally(&lines), Tally::default());
    }

    #[test]
    fn colour_does_not_hide_a_result() {
        let line = "test result: \u{1b}[32mok\u{1b}[0m. 5 passed; 0 failed; 0 ignored";
        assert_eq!(tally(&[line]).passed, 5);
    }

    #[test]
    fn the_last_line_names_skipped_tests_if_any() {
        assert_eq!(Tally { passed: 5, failed: 1, ignored: 0 }.to_string(), "5 passed, 1 failed");
        assert_eq!(Tally { passed: 5, failed: 0, ignored: 2 }.to_string(), "5 passed, 0 failed, 2 skipped");
    }
}

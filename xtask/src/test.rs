//! `cargo xtask test`: everything that CI runs; with `--fast`, only the quick part. Each step can also be run
//! alone.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::cargo;
use crate::command::Failure;
use crate::report::{Report, Verdict};
use crate::selection::Selection;
use crate::services::TestServers;
use crate::tally::Tally;
use crate::tidy;
use crate::tools::Tools;
use crate::tools::deny::Missing;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let selection = Selection::parse(arguments)?;
    let mut report = Report::default();
    // A fast run does not build tools.
    tidy::check(&mut report, if selection == Selection::All { Missing::Build } else { Missing::Skip });
    let mut command = cargo::cargo();
    // A fast run uses servers and tools as it finds them; a full one fails if one of them is missing.
    let mut servers = TestServers::default();
    if selection == Selection::All {
        let tools = Tools::default();
        report.step("tools", || tools.step());
        report.step("services", || servers.up());
        tools.hand_to(&mut command);
        servers.hand_to(&mut command);
    }
    let mut tally = Tally::default();
    report.step("tests", || match run_tests(command, selection, &mut tally) {
        Ok(finished) => judge(finished, tally),
        Err(error) => Verdict::Failed(vec![format!("cargo test: {error}")]),
    });
    servers.down();
    let last = last_line(tally, report.failed());
    println!("\n{report}{}", report.skipped());
    if let Some(left_out) = selection.left_out() {
        println!("\n{left_out}\n");
    }
    println!("{last}");
    if last.failed == 0 { Ok(()) } else { Err(Failure::Reported) }
}

/// Runs the selected tests, passes their output on and counts them. Returns whether cargo succeeded.
fn run_tests(mut command: Command, selection: Selection, tally: &mut Tally) -> io::Result<bool> {
    command.args(selection.cargo_arguments().map_err(io::Error::other)?).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            io::stdout().write_all(&line)?;
            tally.read_line(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    Ok(child.wait()?.success())
}

fn judge(finished: bool, tally: Tally) -> Verdict {
    if tally.ran() == 0 {
        return Verdict::Failed(vec!["no test ran: a suite that tests nothing proves nothing".to_owned()]);
    }
    if finished && tally.failed == 0 { Verdict::Passed } else { Verdict::Failed(Vec::new()) }
}

/// The tests' counts. Each failed step without a failed test counts as one more failure, so that a failed run
/// never ends with "0 failed".
fn last_line(tests: Tally, failed_steps: usize) -> Tally {
    let counted = usize::from(tests.failed > 0);
    Tally { failed: tests.failed + failed_steps.saturating_sub(counted), ..tests }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Tally = Tally { passed: 9, failed: 0, ignored: 1 };
    const BAD: Tally = Tally { passed: 7, failed: 2, ignored: 0 };

    #[test]
    fn a_run_without_tests_fails() {
        assert!(matches!(judge(true, Tally::default()), Verdict::Failed(_)));
        let only_ignored = Tally { ignored: 3, ..Tally::default() };
        assert!(matches!(judge(true, only_ignored), Verdict::Failed(_)));
    }

    #[test]
    fn tests_pass_only_if_cargo_and_the_counts_agree() {
        assert_eq!(judge(true, GOOD), Verdict::Passed);
        assert_eq!(judge(false, GOOD), Verdict::Failed(Vec::new()), "a test program that died");
        assert_eq!(judge(true, BAD), Verdict::Failed(Vec::new()));
    }

    #[test]
    fn a_failed_run_never_ends_in_zero_failed() {
        assert_eq!(last_line(GOOD, 0), GOOD);
        assert_eq!(last_line(GOOD, 1).failed, 1, "a lint, or a test program that died");
        assert_eq!(last_line(BAD, 1).failed, 2, "the step is accounted for by its tests");
        assert_eq!(last_line(BAD, 3).failed, 4);
    }
}

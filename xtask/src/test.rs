//! `cargo xtask test`: everything that CI runs; with `--fast`, only the quick part. Each step can also be run
//! alone.

use std::io;
use std::process::Command;

use crate::cargo;
use crate::failure::Failure;
use crate::programs::{self, Results};
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
    // A fast run uses servers and tools as it finds them; a full one fails if one of them is missing.
    let mut servers = TestServers::default();
    let tools = Tools::default();
    if selection == Selection::All {
        report.step("tools", || tools.step());
        report.step("services", || servers.up());
    }
    let prepare = |command: &mut Command| {
        if selection == Selection::All {
            tools.hand_to(command);
            servers.hand_to(command);
        }
    };
    let mut tally = Tally::default();
    report.step("tests", || match run_tests(selection, prepare) {
        Ok(results) => {
            tally = results.tally;
            judge(results)
        }
        Err(error) => Verdict::Failed(vec![error.to_string()]),
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

/// Builds and runs the selected tests.
fn run_tests(selection: Selection, prepare: impl Fn(&mut Command) + Sync) -> io::Result<Results> {
    let mut command = cargo::cargo();
    command.args(selection.cargo_arguments().map_err(io::Error::other)?);
    let mut programs = programs::build(command, &cargo::root())?;
    for program in &mut programs {
        program.limit(|name| selection.arguments(name));
    }
    let mut results = programs::run(programs, &prepare);
    if selection == Selection::All {
        let mut examples = cargo::cargo();
        examples.args(["test", "--workspace", "--no-fail-fast", "--doc"]);
        prepare(&mut examples);
        results.run("examples in doc comments", examples);
    }
    Ok(results)
}

fn judge(results: Results) -> Verdict {
    if results.tally.ran() == 0 {
        return Verdict::Failed(vec!["no test ran: a suite that tests nothing proves nothing".to_owned()]);
    }
    let is_good = results.failed.is_empty() && results.tally.failed == 0;
    if is_good { Verdict::Passed } else { Verdict::Failed(results.failed) }
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

    fn results(tally: Tally, failed: &[&str]) -> Results {
        Results { tally, failed: failed.iter().map(|&line| line.to_owned()).collect() }
    }

    #[test]
    fn a_run_without_tests_fails() {
        assert!(matches!(judge(Results::default()), Verdict::Failed(_)));
        let only_ignored = Tally { ignored: 3, ..Tally::default() };
        assert!(matches!(judge(results(only_ignored, &[])), Verdict::Failed(_)));
    }

    #[test]
    fn tests_pass_only_if_all_programs_and_the_counts_agree() {
        assert_eq!(judge(results(GOOD, &[])), Verdict::Passed);
        assert_eq!(judge(results(GOOD, &["it died"])), Verdict::Failed(vec!["it died".to_owned()]));
        assert_eq!(judge(results(BAD, &[])), Verdict::Failed(Vec::new()));
    }

    #[test]
    fn a_failed_run_never_ends_in_zero_failed() {
        assert_eq!(last_line(GOOD, 0), GOOD);
        assert_eq!(last_line(GOOD, 1).failed, 1, "a lint, or a test program that died");
        assert_eq!(last_line(BAD, 1).failed, 2, "the step is accounted for by its tests");
        assert_eq!(last_line(BAD, 3).failed, 4);
    }
}

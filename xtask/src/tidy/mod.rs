//! `cargo xtask tidy`: the project's rules. Each is a file with a test that shows it failing, and each
//! reports all violations.

mod ambient;
mod arrows;
mod cycles;
mod decisions;
mod guide;
mod leases;
mod lengths;
mod lexer;
mod paths;
mod purity;
mod roots;
mod tools;
mod unused;
mod violation;

use crate::cargo;
use crate::failure::{Failure, expect_no_arguments};
use crate::report::{Report, Verdict};
use crate::tools::deny::{self, Missing};
use crate::workspace::Workspace;
use violation::Violation;

/// A rule that checks the workspace.
type Rule = fn(&Workspace) -> Vec<Violation>;

const RULES: &[(&str, Rule)] = &[
    ("arrows", arrows::check),
    ("roots", roots::check),
    ("cycles", cycles::check),
    ("ambient", ambient::check),
    ("unused", unused::check),
    ("decisions", decisions::check),
    ("guide", guide::check),
    ("leases", leases::check),
    ("lengths", lengths::check),
    ("paths", paths::check),
];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    expect_no_arguments(arguments)?;
    let mut report = Report::default();
    check(&mut report, Missing::Build);
    println!("\n{report}{}", report.skipped());
    if report.failed() == 0 { Ok(()) } else { Err(Failure::Reported) }
}

/// Checks every rule, each as a separate step. `missing` says whether cargo-deny may be built.
pub(crate) fn check(report: &mut Report, missing: Missing) {
    match Workspace::load() {
        Ok(workspace) => {
            for (name, rule) in RULES {
                report.step(name, || verdict(&rule(&workspace)));
            }
        }
        Err(error) => report.step("workspace", || Verdict::Failed(vec![error])),
    }
    report.step("purity", || match cargo::capture(purity::tree()) {
        Ok(tree) => verdict(&purity::check(&tree)),
        Err(error) => Verdict::Failed(vec![error]),
    });
    report.step("format", tools::format);
    report.step("clippy", tools::clippy);
    report.step("docs", tools::docs);
    let program = deny::program(missing);
    report.step("deny", || tools::deny(&program));
    report.step("advisories", || tools::advisories(&program));
}

fn verdict(violations: &[Violation]) -> Verdict {
    if violations.is_empty() {
        return Verdict::Passed;
    }
    Verdict::Failed(violations.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_is_listed_and_not_only_the_first() {
        let found = [Violation::at("a.rs", 3, "bad"), Violation::at("b.rs", 0, "worse")];
        let expected = Verdict::Failed(vec!["a.rs:3: bad".to_owned(), "b.rs: worse".to_owned()]);
        assert_eq!(verdict(&found), expected);
        assert_eq!(verdict(&[]), Verdict::Passed);
    }
}

//! Rule: only the machine calculates with a record's times. The few exceptions have reasons, and unused ones
//! are reported.

use super::lexer::{code_only, lines_with};
use super::violation::Violation;
use crate::workspace::{TextFile, Workspace};
use std::collections::BTreeSet;

/// The terms of calculations with leases, quiet periods and repeats.
const TERMS: &[&str] = &["lease_until", "owner_wrote_at", ".lease", "work_deadline", "dedup_window", "skew"];

/// The operators. The formatter puts spaces around each.
const ARITHMETIC: &[&str] = &[
    " + ",
    " - ",
    " * ",
    " / ",
    " < ",
    " > ",
    " <= ",
    " >= ",
    ".since(",
    "saturating_add(",
    "saturating_sub(",
    "saturating_mul(",
];

/// Where the meaning of a record is decided.
const MACHINE: &str = "crates/core/src/machine/";

/// The files that may calculate nevertheless, and why that does not decide about a record.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/core/src/policy.rs", "whether the durations of a policy fit together; there is no record yet"),
    ("crates/core/src/record.rs", "when a record is due for a sweep: the date in a store's due index"),
    ("crates/core/src/time/", "whether a date is in the future; the machine decides"),
    ("crates/engine/src/time/", "compares clocks with each other, and not with records"),
    (
        "crates/engine/src/node/ownership.rs",
        "an owner's schedule: when to renew, and when its work must have ended",
    ),
    ("crates/engine/src/call/claim.rs", "for how long a claim whose answer was lost may still arrive"),
    ("crates/engine/src/call/recognise.rs", "the terms of a claim, before there is a record"),
    ("crates/gateway/src/config/route_settings.rs", "durations that are proposed for a configuration"),
    ("crates/http/src/run/shadow.rs", "the settings of requests that are only observed"),
];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut seen, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for file in workspace.rust_files().filter(|file| is_product(&file.path)) {
        let exception = EXCEPTIONS.iter().find(|(path, _)| file.path.starts_with(path));
        let violations = calculations(file);
        match exception {
            Some((path, _)) => {
                seen.insert(*path);
                if !violations.is_empty() {
                    needed.insert(*path);
                }
            }
            None => found.extend(violations),
        }
    }
    let violation = |path: &&str| {
        let advice = format!("nothing under `{path}` calculates with leases: remove the exception");
        Violation::at("xtask/src/tidy/leases.rs", 0, advice)
    };
    found.extend(seen.difference(&needed).map(violation));
    found
}

/// Whether the file is product code outside the machine. Tests may calculate what they expect.
fn is_product(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.contains("/src/");
    let is_test =
        path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("crates/testkit/");
    is_source && !is_test && !path.starts_with(MACHINE)
}

fn calculations(file: &TextFile) -> Vec<Violation> {
    let code = code_only(&file.text);
    let product = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<_> = product.lines().collect();
    let mut found = BTreeSet::new();
    for term in TERMS {
        let with_term = lines_with(product, term).into_iter();
        found.extend(with_term.filter(|line| ARITHMETIC.iter().any(|sign| lines[line - 1].contains(sign))));
    }
    let advice = "calculates with a record's lease, quiet period or repeat window: ask `semel_core::machine`, or add the \
                  question there";
    found.into_iter().map(|line| Violation::at(&file.path, line, advice)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        messages(&check(&Workspace { files: vec![file], ..Workspace::default() }))
    }

    const VIEW: &str = "crates/admin/src/service/view.rs";

    #[test]
    fn every_term_is_found_beside_every_sign_with_its_line() {
        for term in TERMS {
            for sign in ARITHMETIC {
                let messages = found(VIEW, &format!("fn f() {{\n    let x = record{sign}{term};\n}}"));
                let messages: Vec<_> = messages.iter().map(|line| line.split(": ").next()).collect();
                let line = format!("{VIEW}:2");
                assert_eq!(messages, [Some(line.as_str())], "{sign}{term}");
            }
        }
    }

    #[test]
    fn a_sum_over_two_lines_is_found() {
        let text = "let dead_at = record.lease_until()\n    + record.policy().skew;\n";
        assert_eq!(found(VIEW, text).len(), 1);
    }

    #[test]
    fn showing_a_term_is_not_a_calculation() {
        let text = "skew_ms: millis(policy.skew),\nlet (lease, skew) = (policy.lease, now.skew);\nPolicy { skew, ..policy() }\n";
        assert_eq!(found(VIEW, text), [""; 0]);
        assert_eq!(found(VIEW, "// lease_until + skew\nlet text = \"lease_until + skew\";"), [""; 0]);
        assert_eq!(found(VIEW, "let x = release_until + skewness;"), [""; 0]);
    }

    #[test]
    fn the_machine_and_tests_may_calculate() {
        let text = "let dead_at = lease_until + skew;";
        for path in [
            "crates/core/src/machine/dates.rs",
            "crates/engine/src/time/tests.rs",
            "crates/engine/src/quota/tests/rates.rs",
            "crates/http/tests/http/published.rs",
            "crates/testkit/src/contract/due.rs",
            "sim/src/invariant.rs",
        ] {
            assert_eq!(found(path, text), [""; 0], "{path}");
        }
        assert_eq!(found(VIEW, &format!("#[cfg(test)]\nmod tests {{\n{text}\n}}")), [""; 0]);
        assert_eq!(found(VIEW, &format!("{text}\n#[cfg(test)]\nmod tests {{\n}}")).len(), 1);
    }

    #[test]
    fn an_unneeded_exception_is_reported() {
        for (path, reason) in EXCEPTIONS {
            assert!(!reason.is_empty());
            let file = if path.ends_with('/') { format!("{path}mod.rs") } else { (*path).to_owned() };
            assert_eq!(found(&file, "let x = now + policy.skew;"), [""; 0], "{path}");
            let messages = found(&file, "fn f() {}");
            assert_eq!(messages.len(), 1, "{path}");
            assert!(
                messages[0].starts_with("xtask/src/tidy/leases.rs: ") && messages[0].contains(path),
                "{messages:?}"
            );
        }
    }
}

//! Rule: the core and its dependencies have no runtime, no I/O, no HTTP, no SQL and no randomness.
//! Development dependencies are not checked.

use std::collections::BTreeSet;
use std::process::Command;

use super::violation::Violation;
use crate::cargo;

const FORBIDDEN: &[&str] =
    &["async-std", "getrandom", "http", "hyper", "rand", "reqwest", "rusqlite", "sqlx", "tokio"];

/// The command that lists everything the core is built from, with its own features.
pub(crate) fn tree() -> Command {
    let mut command = cargo::cargo();
    command.args(["tree", "--package", "semel-core", "--edges", "normal", "--target", "all"]);
    command.args(["--prefix", "none", "--no-dedupe"]);
    command
}

pub(crate) fn check(tree: &str) -> Vec<Violation> {
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    if !names.contains("semel-core") {
        return vec![Violation::at(
            "crates/core/Cargo.toml",
            0,
            "`cargo tree` did not list semel-core itself",
        )];
    }
    let found = FORBIDDEN.iter().filter(|name| names.contains(*name));
    let violation = |name: &&str| {
        let how = format!("cargo tree --package semel-core --edges normal --target all --invert {name}");
        let advice = format!("the core must not depend on `{name}`; see what depends on it: {how}");
        Violation::at("crates/core/Cargo.toml", 0, advice)
    };
    found.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    #[test]
    fn a_runtime_deep_in_the_tree_is_found() {
        let tree =
            "semel-core v0.1.0 (somewhere)\nuuid v1.29.0\ngetrandom v0.3.1\nlibc v0.2.1\ntokio v1.50.0\n";
        let messages = messages(&check(tree));
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("`getrandom`") && messages[1].contains("`tokio`"));
    }

    #[test]
    fn a_crate_with_a_forbidden_prefix_is_allowed() {
        assert_eq!(check("semel-core v0.1.0\nhttparse v1.0.0\nrandomize v1.0.0\n"), []);
    }

    #[test]
    fn a_tree_without_the_core_proves_nothing() {
        assert_eq!(check("").len(), 1);
    }
}

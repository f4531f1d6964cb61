//! `cargo xtask mutants`: makes small changes to the code and checks that a test fails.

use crate::cargo;
use crate::failure::Failure;

/// Files in which a wrong line can repeat an effect: the state machine, the key and the fingerprint.
const DEFAULT_FILES: &[&str] = &[
    "crates/core/src/machine/**/*.rs",
    "crates/core/src/key/**/*.rs",
    "crates/core/src/fingerprint/**/*.rs",
];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut installed = cargo::cargo();
    installed.args(["mutants", "--version"]);
    if !cargo::answers(installed) {
        let advice = "cargo-mutants is missing; install it: cargo install cargo-mutants --locked";
        return Err(Failure::Stopped(advice.to_owned()));
    }
    let mut command = cargo::cargo();
    command.args(["mutants", "--package", "semel-core", "--profile", "mutants"]);
    for file in files(arguments) {
        command.args(["--file", file]);
    }
    cargo::pass_through(command)
}

fn files(arguments: &[String]) -> Vec<&str> {
    if arguments.is_empty() {
        return DEFAULT_FILES.to_vec();
    }
    arguments.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_files_replace_the_default_ones() {
        assert_eq!(files(&[]), DEFAULT_FILES);
        assert_eq!(files(&["crates/core/src/codec.rs".to_owned()]), ["crates/core/src/codec.rs"]);
    }
}

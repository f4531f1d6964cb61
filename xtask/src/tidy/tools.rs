//! Rules that other tools know: format, lints, documentation, licences.
//!
//! What lives here: the calls. What must never: a tool that is missing and passes for success.

use std::process::Command;

use crate::cargo;
use crate::command::Failure;
use crate::report::Verdict;

pub(crate) fn format() -> Verdict {
    verdict(with(&["fmt", "--all", "--check"]))
}

pub(crate) fn clippy() -> Verdict {
    verdict(with(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

pub(crate) fn docs() -> Verdict {
    let mut command = with(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    verdict(command)
}

/// Licences, bans and sources; advisories would need a database from the network.
pub(crate) fn deny() -> Verdict {
    if !cargo::answers(with(&["deny", "--version"])) {
        return Verdict::Skipped("cargo-deny is not installed: cargo install cargo-deny --locked".to_owned());
    }
    verdict(with(&["deny", "check", "licenses", "bans", "sources"]))
}

fn with(arguments: &[&str]) -> Command {
    let mut command = cargo::cargo();
    command.args(arguments);
    command
}

fn verdict(command: Command) -> Verdict {
    match cargo::pass_through(command) {
        Ok(()) => Verdict::Passed,
        Err(Failure::Stopped(reason) | Failure::Usage(reason)) => Verdict::Failed(vec![reason]),
        Err(Failure::Reported) => Verdict::Failed(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn quietly(arguments: &[&str]) -> Verdict {
        let mut command = with(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        verdict(command)
    }

    #[test]
    fn a_tool_that_complains_is_a_failed_rule() {
        assert_eq!(quietly(&["no-such-subcommand"]), Verdict::Failed(Vec::new()));
        assert_eq!(quietly(&["--version"]), Verdict::Passed);
    }
}

//! Rules that other tools check: format, lints, documentation, licences. A missing tool is a failure or is
//! reported.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cargo;
use crate::failure::Failure;
use crate::report::Verdict;

/// How long to wait for the database: a network that drops packets must not delay the run.
const FETCH: Duration = Duration::from_mins(1);

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

/// Licences, banned crates and sources, according to the lock file and the crates. Needs no network.
pub(crate) fn deny(program: &Result<PathBuf, String>) -> Verdict {
    match program {
        Ok(program) => verdict(deny_with(program, &["--offline", "check", "licenses", "bans", "sources"])),
        Err(reason) => Verdict::Skipped(format!("licences, bans and sources not checked: {reason}")),
    }
}

/// Known vulnerabilities of our dependencies, from a database in the network.
pub(crate) fn advisories(program: &Result<PathBuf, String>) -> Verdict {
    let not_checked = |reason: &str| Verdict::Skipped(format!("advisories not checked: {reason}"));
    let program = match program {
        Ok(program) => program,
        Err(reason) => return not_checked(reason),
    };
    match cargo::within(FETCH, deny_with(program, &["fetch", "db"])) {
        Ok(()) => verdict(deny_with(program, &["--offline", "check", "advisories"])),
        Err(reason) => not_checked(&format!("their database could not be fetched ({reason})")),
    }
}

fn deny_with(program: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo::program(&program.to_string_lossy());
    command.args(["--log-level", "error"]).args(arguments);
    command
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
    fn a_failing_tool_fails_the_rule() {
        assert_eq!(quietly(&["no-such-subcommand"]), Verdict::Failed(Vec::new()));
        assert_eq!(quietly(&["--version"]), Verdict::Passed);
    }

    /// The steps' results with a program that answers each call as cargo-deny would.
    fn steps(name: &str, script: &str) -> (Verdict, Verdict) {
        let path = std::env::temp_dir().join(format!("semel-xtask-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = Ok(path.clone());
        let verdicts = (deny(&program), advisories(&program));
        std::fs::remove_file(&path).unwrap();
        verdicts
    }

    #[test]
    fn without_the_database_advisories_are_skipped_and_licences_checked() {
        let (licences, advisories) =
            steps("offline", "case \"$*\" in *fetch*) echo no network >&2; exit 1;; esac");
        assert_eq!(licences, Verdict::Passed);
        let Verdict::Skipped(reason) = advisories else { panic!("{advisories:?}") };
        assert!(reason.starts_with("advisories not checked") && reason.contains("no network"), "{reason}");
    }

    #[test]
    fn an_advisory_and_a_forbidden_licence_fail_their_steps() {
        let failed = || Verdict::Failed(Vec::new());
        assert_eq!(
            steps("advisory", "case \"$*\" in *advisories) exit 1;; esac"),
            (Verdict::Passed, failed())
        );
        assert_eq!(steps("licence", "case \"$*\" in *licenses*) exit 1;; esac"), (failed(), Verdict::Passed));
    }

    #[test]
    fn without_the_program_both_steps_are_skipped_and_say_so() {
        let none = Err("not built".to_owned());
        for verdict in [deny(&none), advisories(&none)] {
            assert!(
                matches!(&verdict, Verdict::Skipped(reason) if reason.contains("not checked: not built"))
            );
        }
    }
}

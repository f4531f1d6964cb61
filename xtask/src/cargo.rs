//! Calls to cargo and git, from the repository's root and without standard input.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// The pause between two checks of a running program.
const PAUSE: Duration = Duration::from_millis(50);

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// The folder for everything that is built or downloaded, as `CARGO_TARGET_DIR` says.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR");
    root().join(named.unwrap_or_else(|| OsString::from("target")))
}

/// The cargo that runs this program, without the variables that it set for this program's package. Build scripts of
/// dependencies read some of them: with other values than in a plain `cargo test`, everything above would be built again.
pub(crate) fn cargo() -> Command {
    let mut command = child(&std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo sets a variable of this name for the package that it runs.
fn is_of_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// The nightly toolchain's cargo, through rustup; the cargo that runs this program does not understand
/// `+nightly`.
pub(crate) fn cargo_nightly() -> Command {
    let mut command = child(&OsString::from("cargo"));
    command.arg("+nightly");
    command
}

/// Git, configured to answer even if the checkout belongs to another user, as in many CI containers.
pub(crate) fn git() -> Command {
    let mut command = child(&OsString::from("git"));
    command.args(["-c", "safe.directory=*"]);
    command
}

/// Any other program.
pub(crate) fn program(name: &str) -> Command {
    child(&OsString::from(name))
}

fn child(program: &OsString) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs to the end with output passed through; `Ok` only if the exit code is zero.
pub(crate) fn pass_through(mut command: Command) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Reported),
        Err(error) => Err(Failure::Stopped(format!("{}: {error}", command.get_program().display()))),
    }
}

/// Runs to the end, for at most this long. The error is the last line of output.
pub(crate) fn within(limit: Duration, mut command: Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let failed = |error: io::Error| format!("{program}: {error}");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut left = limit;
    while child.try_wait().map_err(failed)?.is_none() {
        if left.is_zero() {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Err(format!("no answer within {} s", limit.as_secs()));
        }
        thread::sleep(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it failed without output")
        .trim()
        .to_owned())
}

/// Runs to the end and returns standard output. The error is the first line that explains the failure.
pub(crate) fn capture(mut command: Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| format!("{program}: {error}"));
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", stderr.trim()))
}

/// Whether the command can be started and exits with code zero; its output is discarded.
pub(crate) fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_where_the_workspace_manifest_is() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_program_that_does_not_exist_does_not_answer() {
        assert!(!answers(child(&OsString::from("semel-no-such-program"))));
    }

    #[test]
    fn a_hanging_command_is_killed_and_a_failing_one_reported() {
        let shell = |script: &str| {
            let mut command = program("sh");
            command.args(["-c", script]);
            command
        };
        assert_eq!(within(Duration::ZERO, shell("exec sleep 600")), Err("no answer within 0 s".to_owned()));
        let minute = Duration::from_mins(1);
        assert_eq!(within(minute, shell("echo first >&2; echo why >&2; exit 1")), Err("why".to_owned()));
        assert_eq!(within(minute, shell("true")), Ok(()));
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_output() {
        let mut command = cargo();
        command.arg("no-such-subcommand");
        assert!(capture(command).unwrap_err().contains("no-such-subcommand"));
    }
}

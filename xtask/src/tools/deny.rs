//! cargo-deny: one pinned version, built once below `target/tools`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;

/// The version that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Whether a missing cargo-deny may be built, which takes minutes the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Build,
    Skip,
}

/// The program, built first if it is missing and `missing` allows that. The error says why it is unavailable.
pub(crate) fn program(missing: Missing) -> Result<PathBuf, String> {
    let folder = cargo::target().join("tools");
    let built = folder.join("bin/cargo-deny");
    if is_wanted(&built) {
        return Ok(built);
    }
    let installed = PathBuf::from("cargo-deny");
    if is_wanted(&installed) {
        return Ok(installed);
    }
    if missing == Missing::Skip {
        return Err(format!("cargo-deny {VERSION} is not installed; `cargo xtask tidy` builds it once"));
    }
    println!("building cargo-deny {VERSION} (once; takes minutes)");
    let installed = cargo::pass_through(install(&folder));
    // Seven hundred megabytes that are not needed again.
    let _ = std::fs::remove_dir_all(build(&folder));
    installed.map_err(|_| format!("cargo-deny {VERSION} could not be built"))?;
    Ok(built)
}

fn build(folder: &Path) -> PathBuf {
    folder.join("build")
}

/// Unoptimised: that takes two minutes of processor time to build, and still checks this workspace in
/// seconds.
fn install(folder: &Path) -> Command {
    let mut command = cargo::cargo();
    command.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--quiet", "--root"]);
    command.arg(folder).arg("--target-dir").arg(build(folder));
    // Without debug information, which would double the size on disk.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    command
}

/// Another version may have other rules, or other names for them.
fn is_wanted(program: impl AsRef<OsStr>) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").current_dir(cargo::root());
    cargo::capture(command).is_ok_and(|answer| answer.split_whitespace().any(|word| word == VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pinned_version_is_used() {
        let folder = std::env::temp_dir().join(format!("semel-xtask-deny-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = |version: &str| {
            let path = folder.join(version);
            std::fs::write(&path, format!("#!/bin/sh\necho cargo-deny {version}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let (pinned, longer) = (program(VERSION), program(&format!("{VERSION}0")));
        let answers = (is_wanted(&pinned), is_wanted(&longer), is_wanted(folder.join("absent")));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answers, (true, false, false));
    }
}

//! System programs, and the Debian package of each.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;

/// A program, and the package that contains it.
const PROGRAMS: &[(&str, &str)] = &[
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("faketime", "faketime"),
    ("haproxy", "haproxy"),
    ("man", "man-db"),
    ("nginx", "nginx"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("prometheus", "prometheus"),
    ("python3", "python3"),
    ("systemd-analyze", "systemd"),
];

/// The folder of daemons, which is not in every `PATH`.
const DAEMONS: &str = "/usr/sbin";

/// Every program's name.
pub(super) fn names() -> String {
    let names: Vec<_> = PROGRAMS.iter().map(|(program, _)| *program).collect();
    names.join(", ")
}

/// The packages of the programs that are not installed.
pub(super) fn missing_programs() -> Vec<&'static str> {
    let mut missing = missing(&directories());
    if !has_venv() {
        missing.push("python3-venv");
    }
    missing
}

/// Installs these packages as root. For other users the error says what to install.
pub(crate) fn install(missing: &[&str]) -> Result<(), String> {
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() {
        return Err(format!(
            "the tests need {list}; as root: apt-get install --no-install-recommends {list}"
        ));
    }
    // Standard output belongs to the calling command, which may print for a shell.
    eprintln!("installing {list}");
    if apt(missing).is_ok() {
        return Ok(());
    }
    // A fresh machine has no package lists, and an old one has outdated lists.
    let mut update = apt_get();
    update.args(["update", "-q"]);
    cargo::capture(update)?;
    apt(missing)
}

fn apt(packages: &[&str]) -> Result<(), String> {
    let mut install = apt_get();
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    cargo::capture(install).map(drop)
}

fn apt_get() -> Command {
    let mut command = cargo::program("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The packages of the programs that are in none of these directories.
fn missing(directories: &[PathBuf]) -> Vec<&'static str> {
    let is_there = |program: &str| directories.iter().any(|directory| directory.join(program).is_file());
    PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect()
}

/// The directories that contain programs.
pub(crate) fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([Path::new(DAEMONS).to_owned()]).collect()
}

/// Debian has Python's virtual environments in a separate package.
fn has_venv() -> bool {
    let mut command = cargo::program("python3");
    command.args(["-c", "import venv, ensurepip"]);
    cargo::answers(command)
}

pub(crate) fn is_root() -> bool {
    let mut command = cargo::program("id");
    command.arg("-u");
    cargo::capture(command).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_by_its_package() {
        let all: Vec<_> = PROGRAMS.iter().map(|(_, package)| *package).collect();
        assert_eq!(missing(&[cargo::root().join("docs")]), all);
        assert!(names().contains("nginx"));
    }

    #[test]
    fn a_program_is_found_in_any_listed_directory() {
        let folder = std::env::temp_dir().join(format!("semel-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("curl"), "").unwrap();
        let missed = missing(&[cargo::root(), folder.clone()]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!missed.contains(&"curl") && missed.contains(&"nginx"), "{missed:?}");
    }
}

//! PostgreSQL's programs, called without variables such as the developer's `PGHOST`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::services::home::Home;
use crate::tools::packages;

/// Where Debian installs the programs of each major version.
const DEBIAN: &str = "/usr/lib/postgresql";
const PROGRAMS: &[&str] = &["initdb", "pg_basebackup", "pg_controldata", "pg_ctl", "postgres", "psql"];

/// The programs' folder: Debian's newest version, or a folder of `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_unstable();
    let newest_first = versions.into_iter().rev().map(|(_, folder)| folder);
    newest_first
        .chain(packages::directories())
        .find(|folder| PROGRAMS.iter().all(|name| folder.join(name).is_file()))
}

pub(super) fn require() -> Result<PathBuf, String> {
    find().ok_or_else(|| format!("PostgreSQL is not installed: {} not found", PROGRAMS.join(", ")))
}

/// The package, unless the programs are installed.
pub(super) fn missing_packages() -> Vec<&'static str> {
    if find().is_some() { Vec::new() } else { vec!["postgresql"] }
}

/// As in the file `PG_VERSION` of the data: `15`.
pub(super) fn major_version(programs: &Path) -> Result<String, String> {
    let mut ask = cargo::program(&programs.join("postgres").to_string_lossy());
    ask.arg("--version");
    let answer = cargo::capture(ask)?;
    let number = answer.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let major = number.and_then(|number| number.split(|c: char| !c.is_ascii_digit()).next());
    major.map(str::to_owned).ok_or_else(|| format!("postgres --version: no number in `{}`", answer.trim()))
}

/// A program to be run as the server's account.
pub(super) fn command(home: &Home, programs: &Path, name: &str) -> Command {
    let mut command = home.command(&programs.join(name));
    forget_settings(&mut command);
    command
}

/// The server's answer to an SQL command.
pub(in crate::services) fn ask(url: &str, sql: &str) -> Result<String, String> {
    let program = find().map_or_else(|| PathBuf::from("psql"), |folder| folder.join("psql"));
    let mut psql = cargo::program(&program.to_string_lossy());
    forget_settings(&mut psql);
    psql.args(["-X", "-w", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, url])
        .env("PGCONNECT_TIMEOUT", "5");
    cargo::capture(psql).map(|answer| answer.trim().to_owned())
}

/// Removes `PGHOST`, `PGOPTIONS` and similar variables, and selects English.
fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
}

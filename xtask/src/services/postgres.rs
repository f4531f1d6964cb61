//! PostgreSQL.
//!
//! What lives here: how its data is made, and how it is started, asked and stopped. What must never: a setting that
//! makes it forget a commit; the tests are about what survives.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::home::{Home, describe};
use super::server::Server;
use crate::cargo;
use crate::tools::packages;

/// Where Debian has the programs of each major version.
const DEBIAN: &str = "/usr/lib/postgresql";
const PROGRAMS: &[&str] = &["initdb", "pg_ctl", "postgres", "psql"];

/// Given at each start, so that a change here reaches data that exists already. There is no socket in the file system: its
/// path would be too long for one in a deep folder.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
];

/// An ordinary role, as a careful operator would give a service; it may create databases, one per test if need be.
const ROLE: &str = "CREATE ROLE semel LOGIN CREATEDB\nCREATE DATABASE semel OWNER semel\n";

/// Processes of a server that was killed hold its memory a moment longer than the server lived.
const MEMORY_IN_USE: &str = "pre-existing shared memory block";
const STARTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The kind of server.
pub(super) struct Postgres;

impl Server for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_POSTGRES_URL"
    }

    fn user(&self) -> &'static str {
        "postgres"
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        if programs().is_some() { Vec::new() } else { vec!["postgresql"] }
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://semel@127.0.0.1:{port}/semel")
    }

    fn pid_file(&self) -> &'static str {
        "postmaster.pid"
    }

    fn start(&self, home: &Home, port: u16) -> Result<(), String> {
        let programs = require_programs()?;
        provide_data(home, &programs)?;
        // PostgreSQL would refuse to start if the number in it belonged to any process of this user.
        remove(&home.data().join(self.pid_file()))?;
        for _ in 1..STARTS_MAX {
            match start_process(home, &programs, port) {
                Err(reason) if reason.contains(MEMORY_IN_USE) => thread::sleep(PAUSE),
                other => return other,
            }
        }
        start_process(home, &programs, port)
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        let mut stop = command(home, &require_programs()?, "pg_ctl");
        stop.args(["stop", "-w", "-t", "30", "-m", "fast", "-D"]).arg(home.data());
        cargo::capture(stop).map(drop)
    }

    fn version(&self, url: &str) -> Result<String, String> {
        let answer = ask(url, "SHOW server_version")?;
        answer.split_whitespace().next().map(str::to_owned).ok_or_else(|| "no version came back".to_owned())
    }
}

/// What the server answers to an SQL command.
pub(super) fn ask(url: &str, sql: &str) -> Result<String, String> {
    let program = programs().map_or_else(|| PathBuf::from("psql"), |folder| folder.join("psql"));
    let mut psql = cargo::program(&program.to_string_lossy());
    forget_settings(&mut psql);
    psql.args(["-X", "-w", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, url])
        .env("PGCONNECT_TIMEOUT", "5");
    cargo::capture(psql).map(|answer| answer.trim().to_owned())
}

fn start_process(home: &Home, programs: &Path, port: u16) -> Result<(), String> {
    let settings: Vec<_> = SETTINGS.iter().map(|setting| format!("-c {setting}")).collect();
    let log = home.path("log");
    remove(&log)?;
    let mut start = command(home, programs, "pg_ctl");
    start.args(["start", "-w", "-t", "60", "-o", &format!("-p {port} {}", settings.join(" "))]);
    start.arg("-D").arg(home.data()).arg("-l").arg(&log);
    cargo::capture(start).map(drop).map_err(|error| format!("{error}\n{}", home.log_tail()))
}

/// Makes the data unless it exists and fits the programs. Nobody keeps anything in it beyond a test.
fn provide_data(home: &Home, programs: &Path) -> Result<(), String> {
    let data = home.data();
    let made_by = fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default();
    if !made_by.is_empty() && made_by.trim() == major_version(programs)? {
        return Ok(());
    }
    let unfinished = home.path("data.new");
    for folder in [&data, &unfinished] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| describe(folder, &error))?;
        }
    }
    let mut init = command(home, programs, "initdb");
    init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"])
        .arg(&unfinished);
    cargo::capture(init)?;
    create_role(home, programs, &unfinished)?;
    // Last of all: data under its own name is complete.
    fs::rename(&unfinished, &data).map_err(|error| describe(&data, &error))
}

fn create_role(home: &Home, programs: &Path, data: &Path) -> Result<(), String> {
    let (reader, mut writer) = io::pipe().map_err(|error| format!("pipe: {error}"))?;
    writer.write_all(ROLE.as_bytes()).map_err(|error| format!("pipe: {error}"))?;
    drop(writer);
    let mut single = command(home, programs, "postgres");
    // As with `initdb --no-sync`: a power cut before the first start costs nobody anything.
    single.args(["--single", "-c", "exit_on_error=on", "-c", "fsync=off", "-D"]).arg(data);
    single.arg("postgres").stdin(reader);
    cargo::capture(single).map(drop)
}

/// The programs' folder: Debian's newest version, or a folder of `PATH`.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_unstable();
    let newest_first = versions.into_iter().rev().map(|(_, folder)| folder);
    newest_first
        .chain(packages::places())
        .find(|folder| PROGRAMS.iter().all(|name| folder.join(name).is_file()))
}

fn require_programs() -> Result<PathBuf, String> {
    programs().ok_or_else(|| format!("PostgreSQL is not installed: {} not found", PROGRAMS.join(", ")))
}

/// As in the file `PG_VERSION` of the data: `15`.
fn major_version(programs: &Path) -> Result<String, String> {
    let mut ask = cargo::program(&programs.join("postgres").to_string_lossy());
    ask.arg("--version");
    let answer = cargo::capture(ask)?;
    let number = answer.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let major = number.and_then(|number| number.split(|c: char| !c.is_ascii_digit()).next());
    major.map(str::to_owned).ok_or_else(|| format!("postgres --version: no number in `{}`", answer.trim()))
}

fn command(home: &Home, programs: &Path, name: &str) -> Command {
    let mut command = home.command(&programs.join(name));
    forget_settings(&mut command);
    command
}

/// Drops the developer's own `PGHOST`, `PGOPTIONS` and the like, and asks for English.
fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
}

fn remove(file: &Path) -> Result<(), String> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(describe(file, &error)),
        _ => Ok(()),
    }
}

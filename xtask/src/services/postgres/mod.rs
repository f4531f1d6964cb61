//! PostgreSQL: the server that tests write to, and a standby of it. Its settings never lose a commit.

mod programs;
mod standby;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::home::{Home, describe};
use super::server::Server;
use crate::cargo;
pub(super) use programs::ask;
use programs::command;
pub(super) use standby::Standby;

/// Passed at each start, so that a change here also applies to existing data. There is no Unix socket: its
/// path could be too long in a deep folder. The WAL kept for a standby that never returns is limited, so that
/// it does not fill the disk.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_slot_wal_keep_size=1GB",
];

/// An ordinary role, as a careful operator would use; it may create databases for tests.
const ROLE: &str = "CREATE ROLE semel LOGIN CREATEDB\nCREATE DATABASE semel OWNER semel\n";
const PID_FILE: &str = "postmaster.pid";

/// The processes of a killed server hold its shared memory a moment longer.
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
        programs::missing_packages()
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, _: Option<&str>) -> Result<(), String> {
        let programs = programs::require()?;
        provide_data(home, &programs)?;
        start(home, &programs, port, &[])
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        stop(home)
    }

    fn version(&self, url: &str) -> Result<String, String> {
        version(url)
    }
}

fn url(port: u16) -> String {
    format!("postgres://semel@127.0.0.1:{port}/semel")
}

fn version(url: &str) -> Result<String, String> {
    let answer = ask(url, "SHOW server_version")?;
    answer
        .split_whitespace()
        .next()
        .map(str::to_owned)
        .ok_or_else(|| "the server did not report its version".to_owned())
}

/// Starts a server on existing data, with further settings.
fn start(home: &Home, programs: &Path, port: u16, more: &[String]) -> Result<(), String> {
    // PostgreSQL refuses to start if the pid file names any process of this user.
    remove(&home.data().join(PID_FILE))?;
    for _ in 1..STARTS_MAX {
        match start_process(home, programs, port, more) {
            Err(reason) if reason.contains(MEMORY_IN_USE) => thread::sleep(PAUSE),
            other => return other,
        }
    }
    start_process(home, programs, port, more)
}

fn start_process(home: &Home, programs: &Path, port: u16, more: &[String]) -> Result<(), String> {
    let settings = SETTINGS.iter().copied().chain(more.iter().map(String::as_str));
    // A shell parses them; none contains an apostrophe.
    let settings: Vec<_> = settings.map(|setting| format!("-c '{setting}'")).collect();
    let log = home.path("log");
    remove(&log)?;
    let mut start = command(home, programs, "pg_ctl");
    start.args(["start", "-w", "-t", "60", "-o", &format!("-p {port} {}", settings.join(" "))]);
    start.arg("-D").arg(home.data()).arg("-l").arg(&log);
    cargo::capture(start).map(drop).map_err(|error| format!("{error}\n{}", home.log_tail()))
}

fn stop(home: &Home) -> Result<(), String> {
    let mut stop = command(home, &programs::require()?, "pg_ctl");
    stop.args(["stop", "-w", "-t", "30", "-m", "fast", "-D"]).arg(home.data());
    cargo::capture(stop).map(drop)
}

/// Whether the data is complete and has the programs' version.
fn has_data(home: &Home, programs: &Path) -> Result<bool, String> {
    let made_by = fs::read_to_string(home.data().join("PG_VERSION")).unwrap_or_default();
    Ok(!made_by.is_empty() && made_by.trim() == programs::major_version(programs)?)
}

/// Creates the data unless it exists with the right version. Its contents are not needed after a test.
fn provide_data(home: &Home, programs: &Path) -> Result<(), String> {
    if has_data(home, programs)? {
        return Ok(());
    }
    replace_data(home, |unfinished| {
        let mut init = command(home, programs, "initdb");
        init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(unfinished);
        cargo::capture(init)?;
        create_role(home, programs, unfinished)
    })
}

/// Creates new data. A folder with its final name is complete, even after a crash in between.
fn replace_data(home: &Home, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let (data, unfinished) = (home.data(), home.path("data.new"));
    for folder in [&data, &unfinished] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| describe(folder, &error))?;
        }
    }
    make(&unfinished)?;
    fs::rename(&unfinished, &data).map_err(|error| describe(&data, &error))
}

fn create_role(home: &Home, programs: &Path, data: &Path) -> Result<(), String> {
    let (reader, mut writer) = io::pipe().map_err(|error| format!("pipe: {error}"))?;
    writer.write_all(ROLE.as_bytes()).map_err(|error| format!("pipe: {error}"))?;
    drop(writer);
    let mut single = command(home, programs, "postgres");
    // As with `initdb --no-sync`: a power cut before the first start loses nothing of value.
    single.args(["--single", "-c", "exit_on_error=on", "-c", "fsync=off", "-D"]).arg(data);
    single.arg("postgres").stdin(reader);
    cargo::capture(single).map(drop)
}

fn remove(file: &Path) -> Result<(), String> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(describe(file, &error)),
        _ => Ok(()),
    }
}

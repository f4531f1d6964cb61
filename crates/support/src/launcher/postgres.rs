//! PostgreSQL. Its settings never lose a commit.

use super::{Account, describe, output};
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The system user that runs the server if root starts it: PostgreSQL refuses to run as root.
pub const USER: &str = "postgres";

/// The file in the data whose first line is the process ID.
pub const PID_FILE: &str = "postmaster.pid";

/// Where Debian installs the programs of each major version.
const DEBIAN: &str = "/usr/lib/postgresql";
const PROGRAMS: &[&str] = &["initdb", "pg_basebackup", "pg_controldata", "pg_ctl", "postgres", "psql"];

/// Passed at each start, so that a change here also applies to existing data. There is no Unix socket: its path could be
/// too long in a deep folder. The WAL kept for a standby that never returns is limited, so that it does not fill the
/// disk. A standby looks for its primary ten times a second.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_slot_wal_keep_size=1GB",
    "wal_retrieve_retry_interval=100ms",
];

/// An ordinary role with its own database, as a careful operator would use; it may create databases for tests.
const ROLE: &str = "CREATE ROLE semel LOGIN CREATEDB\nCREATE DATABASE semel OWNER semel\n";

/// The processes of a killed server hold its shared memory a moment longer.
const MEMORY_IN_USE: &str = "pre-existing shared memory block";
const STARTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// PostgreSQL's programs, and the account that runs them.
#[derive(Debug, Clone)]
pub struct Programs {
    folder: PathBuf,
    account: Account,
}

impl Programs {
    /// Debian's newest version, or those of `PATH`.
    pub fn find() -> Option<Self> {
        let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = versions
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .collect();
        versions.sort_unstable();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let newest_first = versions.into_iter().rev().map(|(_, folder)| folder);
        let mut folders = newest_first.chain(std::env::split_paths(&path));
        let folder = folders.find(|folder| PROGRAMS.iter().all(|name| folder.join(name).is_file()))?;
        Some(Self { folder, account: Account::of(USER) })
    }

    /// The same, with an error that names them.
    pub fn require() -> Result<Self, String> {
        Self::find().ok_or_else(|| format!("PostgreSQL is not installed: {} not found", PROGRAMS.join(", ")))
    }

    /// The account that runs them.
    pub fn account(&self) -> Account {
        self.account
    }

    /// A program to be run as the server's account, without variables such as the developer's `PGHOST`.
    pub fn command(&self, name: &str) -> Command {
        let mut command = self.account.command(&self.folder.join(name));
        forget_settings(&mut command);
        command
    }

    /// As in the file `PG_VERSION` of the data: `15`.
    pub fn major_version(&self) -> Result<String, String> {
        let answer = output(self.command("postgres").arg("--version"))?;
        let number = answer.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let major = number.and_then(|number| number.split(|c: char| !c.is_ascii_digit()).next());
        major.map(str::to_owned).ok_or_else(|| format!("postgres --version: no number in `{answer}`"))
    }

    /// Creates the data of an empty server, with the role `semel` and the database `semel`, both without a password.
    pub fn create(&self, data: &Path) -> Result<(), String> {
        let mut init = self.command("initdb");
        init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
        output(init.arg(data))?;
        let (reader, mut writer) = io::pipe().map_err(|error| format!("pipe: {error}"))?;
        writer.write_all(ROLE.as_bytes()).map_err(|error| format!("pipe: {error}"))?;
        drop(writer);
        let mut single = self.command("postgres");
        // As with `initdb --no-sync`: a power cut before the first start loses nothing of value.
        single.args(["--single", "-c", "exit_on_error=on", "-c", "fsync=off", "-D"]).arg(data);
        output(single.arg("postgres").stdin(reader)).map(drop)
    }

    /// Copies the running server at `primary` as the data of its streaming standby. The primary keeps what the standby
    /// has not read in a new replication slot.
    pub fn copy(&self, primary: &str, slot: &str, data: &Path) -> Result<(), String> {
        let mut backup = self.command("pg_basebackup");
        backup.args(["-w", "-R", "-C", "-S", slot, "-X", "stream", "-c", "fast", "--no-sync"]);
        output(backup.args(["-d", primary, "-D"]).arg(data)).map(drop)
    }

    /// Starts a server on existing data, with further settings. Returns as soon as it answers. The caller knows that no server runs on this data.
    pub fn start(&self, data: &Path, log: &Path, port: u16, more: &[&str]) -> Result<(), String> {
        // PostgreSQL refuses to start if the pid file names any process of this user.
        remove(&data.join(PID_FILE))?;
        for _ in 1..STARTS_MAX {
            let started = self.start_process(data, log, port, more, "-w");
            let logged = fs::read_to_string(log).unwrap_or_default();
            if started.is_ok() || !logged.contains(MEMORY_IN_USE) {
                return started;
            }
            thread::sleep(PAUSE);
        }
        self.start_process(data, log, port, more, "-w")
    }

    /// The same without waiting for an answer: the server may have to recover its data first.
    pub fn begin_start(&self, data: &Path, log: &Path, port: u16) -> Result<(), String> {
        remove(&data.join(PID_FILE))?;
        self.start_process(data, log, port, &[], "-W")
    }

    fn start_process(
        &self,
        data: &Path,
        log: &Path,
        port: u16,
        more: &[&str],
        wait: &str,
    ) -> Result<(), String> {
        // A shell parses them; none contains an apostrophe.
        let settings: Vec<_> = SETTINGS.iter().chain(more).map(|setting| format!("-c '{setting}'")).collect();
        remove(log)?;
        let mut start = self.command("pg_ctl");
        start.args(["start", wait, "-t", "60", "-o", &format!("-p {port} {}", settings.join(" "))]);
        output(start.arg("-D").arg(data).arg("-l").arg(log)).map(drop)
    }

    /// Stops the server on this data: `fast` rolls open transactions back, `immediate` is like a crash.
    pub fn stop(&self, data: &Path, mode: &str) -> Result<(), String> {
        output(self.command("pg_ctl").args(["stop", "-w", "-t", "60", "-m", mode, "-D"]).arg(data)).map(drop)
    }

    /// Makes a standby accept writes. Returns as soon as it does.
    pub fn promote(&self, data: &Path) -> Result<(), String> {
        output(self.command("pg_ctl").args(["promote", "-w", "-t", "60", "-D"]).arg(data)).map(drop)
    }
}

/// The answer to an SQL command: rows as lines, columns separated by `|`. Works without an installed server if `psql` is
/// in `PATH`.
pub fn ask(url: &str, sql: &str) -> Result<String, String> {
    let program = Programs::find().map_or_else(|| PathBuf::from("psql"), |found| found.folder.join("psql"));
    let mut psql = Account::Own.command(&program);
    forget_settings(&mut psql);
    output(psql.args(["-X", "-w", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, url]))
}

/// Removes `PGHOST`, `PGOPTIONS` and similar variables, and selects English.
fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", "5").stdin(Stdio::null());
}

fn remove(file: &Path) -> Result<(), String> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(describe(file, &error)),
        _ => Ok(()),
    }
}

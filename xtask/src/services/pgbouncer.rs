//! `PgBouncer` in front of the private PostgreSQL, in transaction mode: tests use it to show that a store
//! keeps no state in a session.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::home::{Home, describe};
use super::postgres::Postgres;
use super::server::Server;
use crate::cargo;
use crate::tools::packages;
use semel_test_support::launcher::postgres::ask;
use semel_test_support::launcher::process;

const PROGRAM: &str = "pgbouncer";
const PID_FILE: &str = "pgbouncer.pid";

/// Ten seconds in total.
const CHECKS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The kind of server.
pub(super) struct PgBouncer;

impl Server for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_PGBOUNCER_URL"
    }

    /// The user of the servers behind it, as in Debian's package.
    fn user(&self) -> &'static str {
        "postgres"
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        if program().is_some() { Vec::new() } else { vec!["pgbouncer"] }
    }

    fn needs(&self) -> Option<&'static dyn Server> {
        Some(&Postgres)
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://semel@127.0.0.1:{port}/semel")
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, behind: Option<&str>) -> Result<(), String> {
        let program = program().ok_or("PgBouncer is not installed: pgbouncer not found")?;
        let behind = behind.and_then(port_of).ok_or("PgBouncer needs a private PostgreSQL behind it")?;
        let write = |name: &str, text: &str| {
            let path = home.path(name);
            fs::write(&path, text).map_err(|error| describe(&path, &error))
        };
        fs::create_dir_all(home.data()).map_err(|error| describe(&home.data(), &error))?;
        // It refuses to start if the pid file names any running process.
        if home.data().join(PID_FILE).exists() {
            fs::remove_file(home.data().join(PID_FILE)).map_err(|error| describe(&home.data(), &error))?;
        }
        write("log", "")?;
        write("users", "\"semel\" \"\"\n\"postgres\" \"\"\n")?;
        write("pgbouncer.ini", &configuration(home, port, behind))?;
        home.take_over()?;
        let mut start = home.command(&program);
        start.current_dir(home.data()).args(["-d", "-q"]).arg(home.path("pgbouncer.ini"));
        cargo::capture(start).map(drop).map_err(|error| format!("{error}\n{}", home.log_tail()))
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        let running = || process::find(&home.data().join(PID_FILE), &home.data());
        let Some(pid) = running()? else { return Ok(()) };
        let mut kill = home.command(&PathBuf::from("/bin/sh"));
        kill.args(["-c", &format!("kill -TERM {pid}")]);
        cargo::capture(kill)?;
        for _ in 0..CHECKS_MAX {
            if running()?.is_none() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(format!("PgBouncer (pid {pid}) does not stop\n{}", home.log_tail()))
    }

    /// Asks PostgreSQL through it. Its own version is for administrators only, which your own `PgBouncer` may
    /// not allow; then the result is PostgreSQL's version.
    fn version(&self, url: &str) -> Result<String, String> {
        let behind = ask(url, "SHOW server_version")?;
        let own_version = url
            .rsplit_once('/')
            .and_then(|(server, _)| ask(&format!("{server}/pgbouncer"), "SHOW VERSION").ok());
        let version = own_version.as_deref().unwrap_or(&behind);
        let number = version.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        number.map(str::to_owned).ok_or_else(|| format!("no version in `{version}`"))
    }
}

fn program() -> Option<PathBuf> {
    packages::directories().into_iter().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
}

/// Any database and any role of the server behind it, with fewer server connections than clients. It
/// reconnects soon to a restarted server.
fn configuration(home: &Home, port: u16, behind: u16) -> String {
    let (log, users) = (home.path("log"), home.path("users"));
    let pid_file = home.data().join(PID_FILE);
    format!(
        "[databases]
* = host=127.0.0.1 port={behind} auth_user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
stats_users = semel
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
logfile = {log}
pidfile = {pid_file}
",
        users = users.display(),
        log = log.display(),
        pid_file = pid_file.display(),
    )
}

fn port_of(url: &str) -> Option<u16> {
    url.rsplit_once('/')?.0.rsplit_once(':')?.1.parse().ok()
}

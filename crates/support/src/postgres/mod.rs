//! A PostgreSQL that belongs to one test, which may kill it.
//!
//! A server from its start to its end, and a standby of it. Servers that several tests share are in
//! [`services`](crate::services).

#[cfg(feature = "postgres")]
pub mod schema;
#[cfg(test)]
mod tests;

use crate::launcher::postgres::{self, Programs};
use crate::launcher::{self, process};
use crate::services;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Half a minute in total.
const LOOKS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(10);
const PORTS_MAX: u32 = 5;

/// A PostgreSQL server on 127.0.0.1, in a directory of the caller. It stops when it is dropped; its files are removed
/// with the directory. Calls block, and panic if the server fails.
///
/// It has an ordinary role `semel` and a database `semel` that belongs to it, both without a password. As root it
/// runs as the user `postgres`, who must be able to enter the directory.
#[derive(Debug)]
pub struct PostgresServer {
    programs: Programs,
    dir: PathBuf,
    port: u16,
}

impl PostgresServer {
    /// Whether PostgreSQL is installed. If it is not, skip the test; a message is printed to standard error. Under
    /// `cargo xtask test` this panics instead.
    pub fn is_installed() -> bool {
        let found = Programs::find().is_some();
        if !found {
            services::leave_out("PostgreSQL is not installed; `cargo xtask services up` installs it");
        }
        found
    }

    /// Creates an empty server in `dir` and starts it on a free port.
    pub fn start(dir: impl AsRef<Path>) -> Self {
        let programs = Programs::find().expect("PostgreSQL is installed");
        let mut server = Self::new(programs, dir.as_ref());
        server.programs.create(&server.data()).expect("PostgreSQL's own programs work");
        server.start_on_some_port();
        server
    }

    /// Copies this server to `dir` and starts the copy as its streaming standby: read-only, slightly behind, and no
    /// commit waits for it unless `synchronous_standby_names` says so.
    #[must_use]
    pub fn standby(&self, dir: impl AsRef<Path>) -> Self {
        let mut standby = Self::new(self.programs.clone(), dir.as_ref());
        let slot = format!("standby_{}", spare_port());
        let copied = standby.programs.copy(&self.admin_url(), &slot, &standby.data());
        copied.expect("PostgreSQL's own programs work");
        standby.start_on_some_port();
        standby
    }

    fn new(programs: Programs, dir: &Path) -> Self {
        std::fs::create_dir_all(dir).expect("a directory for the server");
        let account = programs.account();
        account.take_over(dir).expect("a directory for the server's user");
        assert!(
            account.can_enter(dir),
            "the user {} cannot enter {}: use a directory that everybody can",
            postgres::USER,
            dir.display()
        );
        Self { programs, dir: dir.to_owned(), port: 0 }
    }

    /// The URL of the ordinary role: `postgres://semel@127.0.0.1:PORT/semel`.
    pub fn url(&self) -> String {
        format!("postgres://semel@127.0.0.1:{}/semel", self.port)
    }

    /// The same database for the superuser `postgres`.
    pub fn admin_url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/semel", self.port)
    }

    /// The port, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        process::find(&self.data().join(postgres::PID_FILE), &self.data()).expect("files of the server")
    }

    /// The server's answer to the superuser: rows as lines, columns separated by `|`. Panics if the server reports an
    /// error.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).expect("an answer of PostgreSQL")
    }

    /// The same, with the output of `psql` as the error.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        postgres::ask(&self.admin_url(), sql)
    }

    /// A `psql` that connects to this database as the superuser through `port`, where a proxy may listen, and reads
    /// commands from its standard input.
    pub fn psql(&self, port: u16) -> Command {
        let url = format!("postgres://postgres@127.0.0.1:{port}/semel");
        let mut psql = self.programs.command("psql");
        psql.args(["-X", "-w", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", &url]);
        psql
    }

    /// Kills every process of the server with SIGKILL. Nothing more is written; clients find their connections closed.
    pub fn kill(&mut self) {
        let Some(pid) = self.pid() else { return };
        // The server first, because it restarts missing processes.
        let mut pids = vec![pid];
        pids.extend(children(pid));
        signal("KILL", &pids);
        wait_until("the server is gone", || self.pid().is_none());
    }

    /// Halts the server with SIGSTOP: its connections stay open, new ones are accepted, and nothing is answered.
    pub fn halt(&self) {
        let Some(pid) = self.pid() else { return };
        // The server first, because it would start missing processes.
        signal("STOP", &[pid]);
        signal("STOP", &children(pid));
    }

    /// Halts the processes behind the connections of the ordinary role, each while it runs no statement: a process that
    /// is halted in the middle of one may hold a lock that the whole server waits for. New connections work. Returns how
    /// many there are.
    pub fn halt_connections(&self) -> usize {
        const PASSES_MAX: usize = 50;
        let mut halted = Vec::new();
        for _ in 0..PASSES_MAX {
            let mut found = self.pids("true");
            found.retain(|pid| !halted.contains(pid));
            if found.is_empty() {
                break;
            }
            signal("STOP", &found);
            let active = self.pids("state = 'active'");
            let (active, idle): (Vec<u32>, _) = found.into_iter().partition(|pid| active.contains(pid));
            signal("CONT", &active);
            halted.extend(idle);
        }
        halted.len()
    }

    /// The processes behind the ordinary role's connections for which this condition holds.
    fn pids(&self, condition: &str) -> Vec<u32> {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE usename = 'semel' AND {condition}");
        self.sql(&sql).lines().filter_map(|pid| pid.trim().parse().ok()).collect()
    }

    /// Continues everything that was halted.
    pub fn resume(&self) {
        let Some(pid) = self.pid() else { return };
        signal("CONT", &children(pid));
        signal("CONT", &[pid]);
    }

    /// Stops the server properly: open transactions are rolled back.
    pub fn stop(&mut self) {
        if self.pid().is_some() {
            self.programs.stop(&self.data(), "fast").expect("PostgreSQL's own programs work");
        }
    }

    /// Starts the server again on its data and port, after [`kill`](Self::kill) or [`stop`](Self::stop); a running one
    /// is stopped first. Returns as soon as it answers.
    pub fn restart(&mut self) {
        self.stop();
        // Processes of a killed server keep its memory, and clients keep its port, slightly longer than the server
        // itself.
        wait_until("the server has started", || self.try_start().is_ok());
    }

    /// Kills the server and starts it again, so that it recovers until [`finish_recovery`](Self::finish_recovery) and
    /// refuses connections as it does after every crash.
    pub fn restart_recovering(&mut self) {
        self.kill();
        let data = self.data();
        // After a crash there is no phase in which it takes reads and no writes.
        let waits =
            "hot_standby = off\nrestore_command = 'while [ ! -e recovered ]; do sleep 0.05; done; false'\n";
        for (name, text) in [("recovery.signal", ""), ("postgresql.auto.conf", waits)] {
            self.give(name, text);
        }
        let begun = self.programs.begin_start(&data, &self.log(), self.port);
        begun.expect("PostgreSQL's own programs work");
        wait_until("the server recovers", || {
            self.try_sql("SELECT 1").is_err_and(|refused| refused.contains("starting up"))
        });
    }

    /// Lets the recovery end.
    pub fn finish_recovery(&self) {
        std::fs::write(self.data().join("recovered"), "").expect("a file for the server");
    }

    /// Makes a standby accept writes. Returns as soon as it does. Its old primary is not informed.
    pub fn promote(&mut self) {
        self.programs.promote(&self.data()).expect("PostgreSQL's own programs work");
    }

    /// Makes the server offer TLS with this certificate and key, both PEM. Connections without it stay possible.
    pub fn offer_tls(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            self.give(name, text);
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        self.sql("SELECT pg_reload_conf()");
        wait_until("the server offers TLS", || self.sql("SHOW ssl") == "on");
    }

    /// Makes every commit wait for a standby that does not exist. Returns as soon as commits wait: the server applies a
    /// changed setting a moment later.
    pub fn wait_for_missing_standby(&self) {
        self.set_synchronous_standbys("nobody");
        let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%standby probe%'";
        wait_until("commits wait for the standby", || {
            let commit = "SELECT pg_logical_emit_message(true, 'standby probe', '')";
            let mut probe = self.psql(self.port);
            let mut probe = probe.args(["-c", commit]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let probe = probe.as_mut().expect("psql runs");
            let mut is_waiting = false;
            while probe.try_wait().expect("looked at").is_none() {
                is_waiting |= self.sql(&format!("SELECT count(pg_cancel_backend(pid)) {waiting}")) != "0";
                std::thread::sleep(GLANCE);
            }
            is_waiting
        });
    }

    /// Makes every commit wait for the standby that follows. Returns as soon as commits wait for it.
    pub fn wait_for_standby(&self) {
        // From here on, commits wait for somebody.
        self.wait_for_missing_standby();
        self.set_synchronous_standbys("*");
        wait_until("the standby is synchronous", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "0"
        });
    }

    /// Makes commits wait for no standby any more.
    pub fn wait_for_no_standby(&self) {
        self.set_synchronous_standbys("");
    }

    fn set_synchronous_standbys(&self, names: &str) {
        self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.sql("SELECT pg_reload_conf()");
    }

    /// Waits until a standby has replayed everything that was committed on `primary` so far.
    pub fn catch_up(&self, primary: &Self) {
        let target = primary.sql("SELECT pg_current_wal_flush_lsn()");
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{target}'");
        wait_until("the standby has caught up", || self.sql(&sql) == "t");
    }

    fn start_on_some_port(&mut self) {
        let mut failure = String::new();
        for _ in 0..PORTS_MAX {
            // Another process may take the port before the server does.
            self.port = spare_port();
            match self.try_start() {
                Ok(()) => return,
                Err(reason) => failure = reason,
            }
        }
        panic!("PostgreSQL does not start: {failure}");
    }

    fn try_start(&self) -> Result<(), String> {
        self.programs.start(&self.data(), &self.log(), self.port, &[]).map_err(|reason| {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            format!("{reason}\n{log}")
        })
    }

    /// Writes a file of the server's data, which only the server may read.
    fn give(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        std::fs::write(&path, text).expect("a file for the server");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("permissions of the server's file");
        self.programs.account().take_over(&path).expect("a file for the server's user");
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.pid().is_some() {
            self.resume();
            drop(self.programs.stop(&self.data(), "immediate"));
        }
    }
}

fn spare_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a spare port");
    socket.local_addr().expect("its number").port()
}

/// Sends a signal: `KILL`, `STOP`, `CONT`. It is not a failure if a process has ended meanwhile.
fn signal(name: &str, pids: &[u32]) {
    let numbers: Vec<_> = pids.iter().map(u32::to_string).collect();
    let script = format!("kill -{name} {}; true", numbers.join(" "));
    launcher::output(Command::new("/bin/sh").args(["-c", &script])).expect("a shell");
}

/// The processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let parent_of = |child: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        // The name in parentheses may contain any characters; state and parent follow it.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|child| parent_of(*child) == Some(pid)).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("timed out before {what}");
}

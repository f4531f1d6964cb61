//! A Redis that belongs to one test, which may kill it.
//!
//! A server from its start to its end, and a replica of it. Servers that several tests share are in
//! [`services`](crate::services).

mod client;
mod cluster;
#[cfg(test)]
mod tests;
mod valkey;

pub use client::{RedisClient, RedisReply};
pub use cluster::RedisCluster;

use crate::launcher::redis;
use crate::services;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Half a minute in total.
const LOOKS_MAX: u32 = 600;
const PAUSE: Duration = Duration::from_millis(50);
const PORTS_MAX: u32 = 5;
/// A script that adds keys.
const FILLER: &str = "for at = 1, 3000 do redis.call('SET', 'filler:' .. at, string.rep('x', 100)) end";

/// A Redis server on 127.0.0.1, in a directory of the caller. It stops when it is dropped; its files are removed with
/// the directory. Calls block, and panic if the server fails.
#[derive(Debug)]
pub struct RedisServer {
    /// The program and its first arguments.
    program: Vec<OsString>,
    dir: PathBuf,
    port: u16,
    more: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// Whether Redis is installed. If it is not, skip the test; a message is printed to standard error. Under `cargo
    /// xtask test` this panics instead.
    pub fn is_installed() -> bool {
        let mut version = Command::new("redis-server");
        let is_found =
            version.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_found {
            services::leave_out("Redis is not installed; `cargo xtask services up` installs it");
        }
        is_found
    }

    /// Starts an empty server in `dir` on a free port, with further arguments.
    pub fn start(dir: impl AsRef<Path>, more: &[&str]) -> Self {
        Self::start_program(vec!["redis-server".into()], dir, more)
    }

    /// The same with Valkey; `None` if it is not on this machine, with a message on standard error.
    pub fn start_valkey(dir: impl AsRef<Path>, more: &[&str]) -> Option<Self> {
        valkey::program().map(|program| Self::start_program(program, dir, more))
    }

    fn start_program(program: Vec<OsString>, dir: impl AsRef<Path>, more: &[&str]) -> Self {
        std::fs::create_dir_all(dir.as_ref()).expect("a directory for the server");
        let more = more.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Self { program, dir: dir.as_ref().to_owned(), port: 0, more, process: None };
        for _ in 0..PORTS_MAX {
            // Another process may take the port before the server does.
            server.port = spare_port();
            if server.try_start() {
                return server;
            }
        }
        panic!("Redis does not start");
    }

    /// Starts a replica of this server in `dir`. It is read-only, follows asynchronously, and has caught up when this
    /// returns.
    #[must_use]
    pub fn replica(&self, dir: impl AsRef<Path>) -> Self {
        let of = format!("127.0.0.1 {}", self.port);
        let replica = Self::start_program(self.program.clone(), dir, &["--replicaof", &of]);
        wait_until("the replica follows", || replica.info("master_link_status") == "up");
        // Until its log is rewritten after the first synchronisation, a killed replica would restart without that data.
        wait_until("the replica's log is written", || {
            let persistence = replica.ask("INFO persistence").text();
            ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
                .iter()
                .all(|line| persistence.contains(line))
        });
        replica
    }

    /// The port, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// A connection as an operator has one.
    pub fn client(&self) -> RedisClient {
        RedisClient::try_connect(&self.address()).expect("the server answers")
    }

    /// The server's answer to a command of plain words.
    pub fn ask(&self, command: &str) -> RedisReply {
        self.client().ask(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// A line of `INFO replication`.
    pub fn info(&self, name: &str) -> String {
        let text = self.ask("INFO replication").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Ends the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("killed");
            process.wait().expect("ended");
        }
    }

    /// Starts the server again on its data and port; a running one is killed first. Returns as soon as it answers.
    pub fn restart(&mut self) {
        self.kill();
        wait_until("the server has started", || self.try_start());
    }

    /// Kills the server and starts it again, so slowly that it loads its data until
    /// [`finish_loading`](Self::finish_loading). Adds keys of its own, to have something to load.
    pub fn restart_loading(&mut self) {
        self.client().ask(&["EVAL", FILLER, "0"]);
        // In a log of commands, the server would not answer between two of them.
        self.ask("BGREWRITEAOF");
        wait_until("the log is rewritten", || {
            let persistence = self.ask("INFO persistence").text();
            persistence.contains("aof_rewrite_in_progress:0")
                && persistence.contains("aof_rewrite_scheduled:0")
        });
        self.kill();
        let slowly = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
        let mut command = self.command();
        self.process = Some(command.args(slowly).spawn().expect("the server is installed"));
        wait_until("the server loads its data", || is_loading(self.pong().as_ref()));
    }

    /// Lets the server load the rest of its data at once.
    pub fn finish_loading(&self) {
        self.ask("CONFIG SET key-load-delay 0");
    }

    /// Makes a replica accept writes. Its old master is not informed.
    pub fn promote(&self) {
        self.ask("REPLICAOF NO ONE");
        wait_until("the replica takes writes", || self.info("role") == "master");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).args(redis::arguments(&self.dir, self.port)).args(&self.more);
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        command
    }

    fn pong(&self) -> Option<RedisReply> {
        RedisClient::try_connect(&self.address()).and_then(|mut client| client.try_ask(&["PING"]))
    }

    /// Whether the server on this port is this process. If another one has taken the port, the process ends a moment
    /// later. A server that wants a password does not say.
    fn is_answered_by(&self, process: u32) -> bool {
        let asked = RedisClient::try_connect(&self.address());
        let info = asked.and_then(|mut client| client.try_ask(&["INFO", "server"]));
        match info {
            Some(RedisReply::Bytes(info)) => {
                String::from_utf8_lossy(&info).contains(&format!("process_id:{process}\r\n"))
            }
            Some(_) => true,
            None => false,
        }
    }

    fn try_start(&mut self) -> bool {
        let mut process = self.command().spawn().expect("the server is installed");
        for _ in 0..LOOKS_MAX {
            if process.try_wait().expect("looked at").is_some() {
                return false;
            }
            let pong = self.pong();
            let has_answered = matches!(pong, Some(RedisReply::Bytes(_) | RedisReply::Error(_)));
            if has_answered && !is_loading(pong.as_ref()) && self.is_answered_by(process.id()) {
                self.process = Some(process);
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        process.kill().expect("killed");
        process.wait().expect("ended");
        false
    }
}

fn is_loading(reply: Option<&RedisReply>) -> bool {
    matches!(reply, Some(RedisReply::Error(text)) if text.starts_with("LOADING"))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spare_port() -> u16 {
    loop {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a spare port");
        let port = socket.local_addr().expect("its number").port();
        // A cluster's servers talk to each other on the port that is ten thousand higher.
        if port < 55_000 {
            return port;
        }
    }
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

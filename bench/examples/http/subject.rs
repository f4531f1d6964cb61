//! The subjects: routes from the clients to the same upstream. Each runs in its own process, because CPU time
//! is counted per process.

use crate::histogram::Histogram;
use crate::load::Keys;
use crate::options::{LOAD, Options};
use crate::process::Process;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The subjects that ratios refer to.
pub(crate) const NGINX: &str = "nginx";
pub(crate) const OFF: &str = "protection off";
pub(crate) const SQLITE: &str = "new keys, SQLite";
pub(crate) const REPLAYS: &str = "replays, SQLite";

/// A route, and the keys that are sent through it.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// None for the upstream itself.
    process: Option<Process>,
    address: SocketAddr,
    keys: Keys,
    is_semel: bool,
    next: u64,
}

/// The result of one run.
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) latencies: Histogram,
}

impl Subject {
    /// All selected subjects, each with its process running and its repeated keys already used once.
    pub(crate) fn all(
        options: &Options,
        folder: &Path,
        upstream: SocketAddr,
        clients: &mut Clients,
    ) -> Result<Vec<Self>, Box<dyn Error>> {
        let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
        let mut subjects = Vec::new();
        let bare = "bare upstream";
        if is_wanted(bare) {
            subjects.push(Self {
                name: bare,
                process: None,
                address: upstream,
                keys: Keys::New,
                is_semel: false,
                next: 0,
            });
        }
        if is_wanted(NGINX) {
            match Process::nginx(folder, upstream) {
                Ok(process) => subjects.push(Self::of(NGINX, process, Keys::New, false)),
                Err(error) => println!("{error}; the ratios to nginx are missing"),
            }
        }
        let sqlite = |name: &str| format!("sqlite:{}", folder.join(name).display());
        for (name, keys, flags) in [
            (OFF, Keys::New, ["--key", "off", "--store", "memory:"]),
            ("new keys, memory", Keys::New, ["--key", "required", "--store", "memory:"]),
            (SQLITE, Keys::New, ["--key", "required", "--store", &sqlite("new.db")]),
            (REPLAYS, Keys::Old, ["--key", "required", "--store", &sqlite("old.db")]),
            (
                "90 new, 10 replays, SQLite",
                Keys::Mixed,
                ["--key", "required", "--store", &sqlite("mixed.db")],
            ),
        ] {
            if is_wanted(name) {
                let process = Process::semel(&options.semel, upstream, &flags)?;
                let mut subject = Self::of(name, process, Keys::Fill, name != OFF);
                if matches!(keys, Keys::Old | Keys::Mixed) {
                    subject.run_load(clients, 16, 60_000)?;
                }
                subjects.push(Self { keys, ..subject });
            }
        }
        Ok(subjects)
    }

    pub(crate) fn of(name: &'static str, process: Process, keys: Keys, is_semel: bool) -> Self {
        let address = process.address;
        Self { name, process: Some(process), address, keys, is_semel, next: 0 }
    }

    /// Sends requests over this many connections for this long.
    pub(crate) fn run_load(
        &mut self,
        clients: &mut Clients,
        connections: u64,
        millis: u64,
    ) -> Result<Run, Box<dyn Error>> {
        let Self { name, address, keys, is_semel, next, .. } = self;
        let order = format!("{address} {connections} {millis} {keys} {is_semel} {next}");
        let response = clients.order(&order)?;
        let fields: Vec<&str> = response.split(' ').collect();
        let [next, micros, latencies] = fields[..] else { return Err(format!("{name}: {response}").into()) };
        self.next = next.parse()?;
        let latencies = Histogram::parse(latencies).ok_or("not a histogram")?;
        let per_second = latencies.total() as f64 * 1e6 / micros.parse::<f64>()?;
        Ok(Run { per_second, latencies })
    }

    /// CPU time since the start, in microseconds.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        self.process.as_ref().map(Process::cpu_micros)
    }

    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.process.as_ref().map(Process::resident_bytes)
    }
}

/// The process that generates the load.
pub(crate) struct Clients {
    child: Child,
    orders: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Clients {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(LOAD).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, responses) =
            (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        Ok(Self { child, orders, responses: BufReader::new(responses) })
    }

    fn order(&mut self, order: &str) -> std::io::Result<String> {
        writeln!(self.orders, "{order}")?;
        self.orders.flush()?;
        let mut line = String::new();
        self.responses.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

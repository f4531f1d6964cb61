//! Starts and stops the measured processes, and reads their resource use. None outlives the benchmark.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to start and answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running process. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its address.
    pub(crate) address: SocketAddr,
    /// From its start to its first answer.
    pub(crate) ready_after: Duration,
}

impl Process {
    /// This program again, as the upstream.
    pub(crate) fn upstream() -> Result<Self, Box<dyn Error>> {
        let started = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(crate::options::UPSTREAM).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()?, ready_after: started.elapsed() })
    }

    /// The gateway. Its output is discarded.
    pub(crate) fn semel(binary: &Path, upstream: SocketAddr, flags: &[&str]) -> Result<Self, Box<dyn Error>> {
        let address = free_address()?;
        let mut command = Command::new(binary);
        command.args(["serve", "--upstream", &format!("http://{upstream}")]);
        command
            .args(["--listen", &address.to_string(), "--admin", "off", "--log-level", "error"])
            .args(flags);
        Self::start(command, address)
    }

    /// nginx as a plain proxy, with one worker per core, as the gateway has threads.
    pub(crate) fn nginx(folder: &Path, upstream: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let address = free_address()?;
        let config = folder.join("nginx.conf");
        fs::write(&config, nginx_config(folder, address, upstream))?;
        let mut command = Command::new("nginx");
        command.args(["-e", "/dev/null", "-c"]).arg(config).arg("-p").arg(folder);
        Self::start(command, address)
    }

    fn start(mut command: Command, address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        let child = child.map_err(|error| format!("{name} cannot be started: {error}"))?;
        let mut process = Self { child, address, ready_after: Duration::ZERO };
        while answer(address).is_err() {
            if let Some(status) = process.child.try_wait()? {
                return Err(format!("{name} ended: {status}").into());
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(format!("{name} does not answer").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        process.ready_after = started.elapsed();
        Ok(process)
    }

    /// This process and its children.
    fn ids(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        std::iter::once(id).chain(children.split(' ').filter_map(|child| child.trim().parse().ok())).collect()
    }

    /// CPU time since the start in microseconds, including children.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.ids().iter().map(|id| ticks(*id)).sum::<f64>() * 1e6 / TICKS_PER_SECOND
    }

    /// Resident memory in bytes, including children. Shared pages count more than once.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.ids().iter().map(|id| resident_kib(*id)).sum::<u64>() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // nginx's workers end with their master only if it is asked to stop.
        let children = self.ids();
        for id in children.iter().rev() {
            let _ = Command::new("kill").arg(id.to_string()).stderr(Stdio::null()).status();
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The unit in which Linux reports CPU time, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time together.
fn ticks(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name is in parentheses and may contain spaces.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

fn resident_kib(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Sends a request and waits for the first byte of the response.
fn answer(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")?;
    let mut byte = [0];
    stream.read_exact(&mut byte)
}

/// A port that is not in use at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn nginx_config(folder: &Path, address: SocketAddr, upstream: SocketAddr) -> String {
    let folder: PathBuf = folder.to_owned();
    let at = |name: &str| folder.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {};\n", at(name)))
        .concat();
    format!(
        "daemon off;
worker_processes auto;
pid {pid};
error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
{temporary}    keepalive_requests 1000000000;
    upstream behind {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
",
        pid = at("nginx.pid"),
    )
}

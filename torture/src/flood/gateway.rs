//! Starts and stops the gateway that is flooded, and nginx in front of it.

use crate::cgroup::MemoryGroup;
use crate::{Failure, PEAK_MIB_MAX, clock, service};
use semel_gateway::stores::Url;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A gateway, the service behind it, and optionally a proxy in front.
pub(crate) struct World {
    /// The address that clients connect to.
    pub(crate) front: SocketAddr,
    gateway: Process,
    _nginx: Option<Process>,
    // Dropped after the process in it.
    group: Option<MemoryGroup>,
    folder: PathBuf,
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    /// With a new store: in a file, or on the server of `store`.
    pub(crate) async fn start(
        semel: &Path,
        nginx: Option<&PathBuf>,
        store: Option<&Url>,
    ) -> Result<Self, Failure> {
        let name = format!("{}-{}", std::process::id(), clock::now());
        let folder = std::env::temp_dir().join(format!("semel-flood-{name}"));
        std::fs::create_dir_all(&folder)?;
        let service = service::start().await?;
        let trusted = if nginx.is_some() { "forwarded_by = [\"127.0.0.1\"]" } else { "" };
        let store = match store {
            None => format!("sqlite:{}", folder.join("semel.db").display()),
            Some(store) => store.apart(&format!("flood_{}", name.replace('-', "_"))).to_string(),
        };
        let config = format!(
            "[upstream]\nurl = \"http://{service}\"\n{trusted}\n[store]\nurl = '{store}'\n[log]\nlevel = \"error\"\n"
        );
        std::fs::write(folder.join("semel.toml"), config)?;
        let mut command = Command::new(semel);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--config"])
            .arg(folder.join("semel.toml"));
        let log = std::fs::File::create(folder.join("semel.log"))?;
        let mut gateway = Process(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?);
        let group = MemoryGroup::limit(gateway.0.id(), PEAK_MIB_MAX << 20);
        let address = listens(&mut gateway.0)?;
        let (front, nginx) = match nginx {
            None => (address, None),
            Some(nginx) => {
                let (front, nginx) = proxy(nginx, &folder, address)?;
                (front, Some(nginx))
            }
        };
        Ok(Self { front, gateway, _nginx: nginx, group, folder })
    }

    /// Whether the system kills the gateway if it exceeds its limit.
    pub(crate) const fn is_limited(&self) -> bool {
        self.group.is_some()
    }

    /// The highest memory use of the gateway so far.
    pub(crate) fn peak_mib(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.0.id()))
            .map_err(|error| format!("the gateway has disappeared: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        // A process that has ended has no memory.
        let line = line.ok_or_else(|| match self.group {
            Some(_) => format!("the gateway was killed: it may have used more than {PEAK_MIB_MAX} MiB"),
            None => "the gateway has ended".to_owned(),
        })?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The address that it prints.
fn listens(gateway: &mut Child) -> Result<SocketAddr, Failure> {
    let output = gateway.stdout.take().ok_or("no output")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, address)) =
            line.trim().strip_prefix("listening").and_then(|address| address.trim().split_once("://"))
        {
            let address = address.parse()?;
            // Its later output must be read.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(address);
        }
    }
    Err("the gateway did not start".into())
}

fn proxy(nginx: &Path, folder: &Path, gateway: SocketAddr) -> Result<(SocketAddr, Process), Failure> {
    // It does not print which port it uses, so a free one is chosen for it.
    let front = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; worker_rlimit_nofile 20000; events {{ worker_connections 16384; }}
        http {{
            access_log off;
            client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
            server {{
                listen {front} backlog=4096;
                client_max_body_size 20m;
                location / {{
                    proxy_pass http://{gateway};
                    proxy_http_version 1.1;
                    proxy_set_header Host $host;
                    proxy_set_header Connection '';
                    proxy_set_header X-Forwarded-For $remote_addr;
                    proxy_request_buffering off;
                    proxy_buffering off;
                    proxy_next_upstream off;
                }}
            }}
        }}"
    );
    std::fs::write(folder.join("front.conf"), config)?;
    let mut command = Command::new(nginx);
    command.args(["-e", "front.log", "-p", ".", "-c", "front.conf"]).current_dir(folder);
    let process = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    for _ in 0..500 {
        if TcpStream::connect(front).is_ok() {
            return Ok((front, process));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("nginx did not start".into())
}

//! A started gateway, and the program beside it.

use crate::upstream::Upstream;
use semel_test_support::ScratchDir;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The files of a test.
pub(crate) struct Scratch(ScratchDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "cli"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and returns its path as text.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        self.0.write(name, bytes).to_str().expect("text").to_owned()
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path("semel.db")
    }
}

/// The result of a run of the program.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl RunResult {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The run, after checking its exit code.
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// Runs the program without this process's settings, and with a false user name in the environment, which it must ignore.
pub(crate) fn semel(arguments: &[&str]) -> RunResult {
    run(command(arguments))
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("SUDO_USER", "mallory")
        .env("USER", "mallory")
        .env("LOGNAME", "mallory");
    for name in ["SEMEL_ADMIN_URL", "SEMEL_ADMIN_TOKEN", "SEMEL_STORE", "SEMEL_CONFIG"] {
        command.env_remove(name);
    }
    command
}

/// The name in histories for the program's actions on a store: this process's user.
pub(crate) fn command_line_user() -> String {
    let ran = run({
        let mut id = Command::new("id");
        id.arg("-un");
        id
    });
    format!("cli:{}", ran.exits(0).out.trim())
}

pub(crate) fn run(mut command: Command) -> RunResult {
    let Output { status, stdout, stderr } = command.output().expect("semel runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    RunResult { code: status.code().expect("it exits"), out: text(stdout), err: text(stderr) }
}

/// A process `semel serve`. Killed when it is dropped.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) address: SocketAddr,
    /// Its admin address.
    pub(crate) admin: Option<SocketAddr>,
}

impl Gateway {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut process = command(&[&["serve", "--listen", "127.0.0.1:0"], flags].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("semel starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
        let (mut address, mut admin) = (None, None);
        // The gateway prints everything at once; its last line is one of these.
        while address.is_none() || (admin.is_none() && flags.contains(&"--admin")) {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).expect("text");
            assert!(read > 0, "semel did not start: {:?}", process.wait());
            let printed = |label: &str| -> Option<SocketAddr> {
                let url = line.trim().strip_prefix(label)?.trim();
                let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
                rest.split(' ').next().and_then(|address| address.parse().ok())
            };
            address = address.or_else(|| printed("listening"));
            admin = admin.or_else(|| printed("admin"));
        }
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { process, address: address.expect("an address"), admin }
    }

    /// Requests a shutdown, and waits for it.
    pub(crate) fn shut_down(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("it runs").success());
        assert!(self.process.wait().expect("it has exited").success());
    }

    pub(crate) fn kill(&mut self) {
        drop(self.process.kill());
        self.process.wait().expect("it has exited");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A gateway with an admin address, its upstream, and its store.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    pub(crate) scratch: Scratch,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(flags: &[&str]) -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start());
        let gateway = Self::gateway(&scratch, &upstream, flags);
        Self { gateway, upstream, scratch }
    }

    pub(crate) fn gateway(scratch: &Scratch, upstream: &Upstream, flags: &[&str]) -> Gateway {
        let (store, upstream) = (scratch.store(), format!("http://{}", upstream.address));
        let usual = ["--admin", "127.0.0.1:0", "--store", &store, "--upstream", &upstream];
        Gateway::start(&[&usual, flags].concat())
    }

    /// The flags for the records: through the gateway, and in its store.
    pub(crate) fn targets(&self) -> [[String; 2]; 2] {
        let admin = self.gateway.admin.expect("it has an admin address");
        let store = self.scratch.store();
        [["--admin".to_owned(), format!("http://{admin}")], ["--store".to_owned(), store]]
    }

    /// Asks the running gateway.
    pub(crate) fn at_admin(&self, arguments: &[&str]) -> RunResult {
        let [admin, _] = self.targets();
        semel(&[arguments, &[admin[0].as_str(), admin[1].as_str()]].concat())
    }

    /// Asks the store itself.
    pub(crate) fn in_store(&self, arguments: &[&str]) -> RunResult {
        semel(&[arguments, &["--store", &self.scratch.store()]].concat())
    }

    /// Sends a request, with a key if there is one; returns status, operation ID and body.
    pub(crate) fn post(&self, path: &str, key: Option<&str>, body: &str) -> Reply {
        post(self.gateway.address, path, key, body)
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn id(&self) -> &str {
        self.header("operation-id").unwrap_or_else(|| panic!("an id in {self:?}"))
    }
}

pub(crate) fn post(to: SocketAddr, path: &str, key: Option<&str>, body: &str) -> Reply {
    let mut stream = send(to, path, key, body);
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("an answer");
    let response = String::from_utf8(response).expect("text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request without waiting for the response.
pub(crate) fn send(to: SocketAddr, path: &str, key: Option<&str>, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("it listens");
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-type: application/json\r\n{key}content-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    stream
}

/// A distinct key per number.
pub(crate) fn key(number: u32) -> String {
    format!("8e03978e-40d5-43dd-bc93-{number:012}")
}

/// Polls until the condition holds, for at most five minutes.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..15_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came");
}

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

    /// Writes a file, and gives back its path as text.
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

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What it printed, where it ended as it should.
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// Runs the program as `ada`, without what this process's environment says about it.
pub(crate) fn semel(arguments: &[&str]) -> Ran {
    run(command(arguments))
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.args(arguments).stdin(Stdio::null()).env_remove("SUDO_USER").env("USER", "ada");
    for name in ["SEMEL_ADMIN_URL", "SEMEL_ADMIN_TOKEN", "SEMEL_STORE", "SEMEL_CONFIG"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(mut command: Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().expect("semel runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: status.code().expect("it exits"), out: text(stdout), err: text(stderr) }
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
        // All of it is printed at once; its last line is one of these.
        while address.is_none() || (admin.is_none() && flags.contains(&"--admin")) {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).expect("text");
            assert!(read > 0, "semel did not start: {:?}", process.wait());
            let printed = |what: &str| -> Option<SocketAddr> {
                let url = line.trim().strip_prefix(what)?.trim();
                let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
                rest.split(' ').next().and_then(|address| address.parse().ok())
            };
            address = address.or_else(|| printed("listening"));
            admin = admin.or_else(|| printed("admin"));
        }
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { process, address: address.expect("told"), admin }
    }

    pub(crate) fn kill(&mut self) {
        drop(self.process.kill());
        self.process.wait().expect("it is dead");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A gateway with an admin address, the service behind it, and the file under it.
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

    /// Both ways to its records.
    pub(crate) fn places(&self) -> [[String; 2]; 2] {
        let admin = self.gateway.admin.expect("it has one");
        let store = self.scratch.store();
        [["--admin".to_owned(), format!("http://{admin}")], ["--store".to_owned(), store]]
    }

    /// Asks the running gateway.
    pub(crate) fn at_admin(&self, arguments: &[&str]) -> Ran {
        let [admin, _] = self.places();
        semel(&[arguments, &[admin[0].as_str(), admin[1].as_str()]].concat())
    }

    /// Asks the store itself.
    pub(crate) fn in_store(&self, arguments: &[&str]) -> Ran {
        semel(&[arguments, &["--store", &self.scratch.store()]].concat())
    }

    /// Sends a request, with a key where there is one; gives back status, operation id and body.
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
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("an answer");
    let said = String::from_utf8(said).expect("text");
    let (head, body) = said.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request, and does not wait for the answer.
pub(crate) fn send(to: SocketAddr, path: &str, key: Option<&str>, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("it listens");
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: application/json\r\n{key}content-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    stream
}

/// A key of its own for each number.
pub(crate) fn key(number: u32) -> String {
    format!("8e03978e-40d5-43dd-bc93-{number:012}")
}

/// Looks again and again until it is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came");
}

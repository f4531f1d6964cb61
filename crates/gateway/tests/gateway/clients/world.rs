//! The usual gateway, on SQLite, in front of a service with a ledger.

use super::lossy::Lossy;
use super::process::Process;
use crate::tools;
use semel_test_support::ScratchDir;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The languages of the services.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Language {
    /// Node's own server; it closes connections that were idle for 5 s.
    InNode,
    /// Python's `http.server`.
    InPython,
}

/// A service, and the gateway in front of it.
pub(crate) struct World {
    pub(crate) gateway: SocketAddr,
    // Dropped in this order.
    _processes: [Process; 2],
    pub(crate) folder: ScratchDir,
}

impl World {
    /// `None` if the service's language is missing.
    pub(crate) fn new(language: Language) -> Option<Self> {
        Self::with(language, folder(), &[])
    }

    /// The same, with TLS between client and gateway.
    pub(crate) fn with_tls(language: Language) -> Option<Self> {
        let folder = folder();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let certificate = folder.write("cert.pem", made.cert.pem());
        let key = folder.write("key.pem", made.signing_key.serialize_pem());
        Self::with(language, folder, &["--tls-cert".as_ref(), &certificate, "--tls-key".as_ref(), &key])
    }

    fn with(language: Language, folder: ScratchDir, flags: &[&Path]) -> Option<Self> {
        let (program, script) = match language {
            Language::InNode => (tools::program("node")?, "services/ledger.js"),
            Language::InPython => (tools::program("python3")?, "services/ledger.py"),
        };
        let ledger = folder.write("ledger", "");
        let service = Process::start(Command::new(program).arg(source(script)).arg(&ledger));
        let port: u16 = service.wait_for(|line| line.parse().ok());
        let mut command = serve(&["--upstream", &format!("http://127.0.0.1:{port}")], &folder);
        let gateway = Process::start(command.args(flags));
        Some(Self { gateway: gateway.wait_for(listening), _processes: [gateway, service], folder })
    }

    /// The lines in the service's ledger.
    pub(crate) fn ledger(&self) -> Vec<String> {
        lines(&self.folder.join("ledger"))
    }

    /// A route to the gateway that loses the first response after the effect.
    pub(crate) fn lossy(&self) -> Lossy {
        let ledger = self.folder.join("ledger");
        Lossy::new(self.gateway, move || !lines(&ledger).is_empty())
    }

    /// The certificate that clients have to trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }
}

/// A folder for the files of a test.
pub(crate) fn folder() -> ScratchDir {
    ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "clients")
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the ledger");
    text.lines().map(str::to_owned).collect()
}

/// A script beside these tests.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/clients").join(name)
}

/// The program itself, on a free port, with a store in `folder`.
pub(crate) fn serve(flags: &[&str], folder: &ScratchDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    // The developer's environment may have its own settings.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    // A demo opens no admin address and accepts no setting for one.
    if !flags.contains(&"--demo") {
        command.env("SEMEL_ADMIN", "off");
    }
    let listen = ["serve", "--listen", "127.0.0.1:0", "--log-level", "error"];
    command.args(listen).args(flags).current_dir(folder.path());
    command
}

/// The address that the gateway prints.
pub(crate) fn listening(line: &str) -> Option<SocketAddr> {
    let (_, url) = line.split_once("listening")?;
    url.split_once("//")?.1.trim().parse().ok()
}

//! The lifecycle of a private instance: lock, port, readiness, stop. Servers that `cargo xtask services` did
//! not start are left alone.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::home::{Home, describe};
use super::server::Server;
use crate::tools::packages;
use semel_test_support::launcher::{Account, process};

/// Half a minute in total: a server needs time to recover its data after a crash.
const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);
/// How many of these checks may pass before a background server has written its pid file.
const ATTEMPTS_WITHOUT_PID_MAX: u32 = 30;

/// A private instance, running or not.
pub(super) struct Instance<'a> {
    server: &'a dyn Server,
    home: Home,
}

/// A running private instance.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) url: String,
    pub(super) pid: u32,
}

impl<'a> Instance<'a> {
    /// The instance whose home is below this folder.
    pub(super) fn locate(server: &'a dyn Server, services: &Path) -> Result<Self, String> {
        let home = Home::locate(services, server.name(), Account::of(server.user()))?;
        Ok(Self { server, home })
    }

    /// Starts it unless it runs. Returns its version and whether it was started, as soon as it answers.
    /// `needed` is the URL of the server that it needs; an instance that was started for another URL, or is
    /// no longer usable, is restarted.
    pub(super) fn up(
        server: &'a dyn Server,
        services: &Path,
        needed: Option<&str>,
    ) -> Result<(Running, String, bool), String> {
        packages::install(&server.missing_packages())?;
        let instance = Self::locate(server, services)?;
        instance.home.create()?;
        let _lock = instance.home.lock()?;
        // A server that was just killed may exist for a moment; it is then started again.
        if instance.was_started_for(needed)
            && let Some(running) = instance.running()?
            && let Some(version) = instance.wait_until_ready(&running.url)?
            && server.verify(&running.url, needed).is_ok()
        {
            return Ok((running, version, false));
        }
        // A process that does not answer, or that belongs to another server, cannot be used.
        if instance.pid()?.is_some() {
            server.stop(&instance.home)?;
        }
        instance.home.take_over()?;
        let port = instance.choose_port()?;
        instance.note("needed", needed.unwrap_or_default())?;
        server.start(&instance.home, port, needed)?;
        let version = instance.wait_until_ready(&server.url(port))?;
        let Some((running, version)) = instance.running()?.zip(version) else {
            let log = instance.home.log_tail();
            return Err(format!("{} ended right after its start:\n{log}", server.name()));
        };
        server.verify(&running.url, needed)?;
        Ok((running, version, true))
    }

    /// Stops it, and returns the process that was stopped. Its data stays.
    pub(super) fn down(&self) -> Result<Option<u32>, String> {
        if !self.home.exists() {
            return Ok(None);
        }
        let _lock = self.home.lock()?;
        let pid = self.pid()?;
        if pid.is_some() {
            self.server.stop(&self.home)?;
        }
        Ok(pid)
    }

    /// Its process and URL, if it runs.
    pub(super) fn running(&self) -> Result<Option<Running>, String> {
        Ok(self.pid()?.zip(self.url()).map(|(pid, url)| Running { url, pid }))
    }

    /// The URL that it has, or had when it last ran.
    pub(super) fn url(&self) -> Option<String> {
        self.port().map(|port| self.server.url(port))
    }

    fn pid(&self) -> Result<Option<u32>, String> {
        let data = self.home.data();
        process::find(&data.join(self.server.pid_file()), &data)
    }

    fn port(&self) -> Option<u16> {
        fs::read_to_string(self.home.path("port")).ok()?.trim().parse().ok()
    }

    /// The last port, so that a URL stays valid; another one if that port is in use.
    fn choose_port(&self) -> Result<u16, String> {
        let bind =
            |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|socket| socket.local_addr());
        let address = match self.port().map(bind) {
            Some(Ok(address)) => address,
            _ => bind(0).map_err(|error| format!("no spare port on 127.0.0.1: {error}"))?,
        };
        self.note("port", &address.port().to_string())?;
        Ok(address.port())
    }

    fn was_started_for(&self, needed: Option<&str>) -> bool {
        let noted = fs::read_to_string(self.home.path("needed")).unwrap_or_default();
        noted.trim() == needed.unwrap_or_default()
    }

    fn note(&self, name: &str, value: &str) -> Result<(), String> {
        let path = self.home.path(name);
        fs::write(&path, format!("{value}\n")).map_err(|error| describe(&path, &error))
    }

    /// Its version as soon as it answers; `None` if its process ends instead.
    fn wait_until_ready(&self, url: &str) -> Result<Option<String>, String> {
        let mut reason = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            match self.server.version(url) {
                Ok(version) => return Ok(Some(version)),
                Err(error) => reason = error,
            }
            if attempt >= ATTEMPTS_WITHOUT_PID_MAX && self.pid()?.is_none() {
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
        let name = self.server.name();
        Err(format!("{name} runs but does not answer: {reason}\n{}", self.home.log_tail()))
    }
}

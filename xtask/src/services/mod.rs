//! `cargo xtask services`: real servers for the tests.
//!
//! To add a server, write a file with a [`Server`] and add it to [`SERVERS`]. Servers listen only on
//! 127.0.0.1. Other people's servers are never stopped.

mod arguments;
mod for_tests;
mod home;
mod instance;
mod pgbouncer;
mod postgres;
mod redis;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::cargo;
use crate::failure::Failure;
use arguments::Action;
pub(crate) use for_tests::TestServers;
use instance::Instance;
pub(crate) use server::Server;
use state::{State, explain_external, hide_password};

/// Every server that tests may need, each after the ones that it needs.
pub(crate) const SERVERS: &[&dyn Server] = &[
    &postgres::Postgres,
    &postgres::Standby,
    &pgbouncer::PgBouncer,
    &redis::Redis,
    &redis::Cluster,
    &redis::Valkey,
];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (action, servers) = arguments::parse(arguments)?;
    let services = Services::default();
    match action {
        Action::Up { export } => up(&services, &servers, export),
        Action::Down => down(&services, &servers),
        Action::Status { json } => {
            let mut states = Vec::new();
            for server in servers {
                states.push((server, services.state(server).map_err(Failure::Stopped)?));
            }
            if json {
                println!("{:#}", state::to_json(&states));
            } else {
                print!("{}", state::table(&states));
            }
            Ok(())
        }
    }
}

/// The arguments with the names of servers after `--store` replaced by their URLs. Servers that do not run
/// are started.
pub(crate) fn with_urls(arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut arguments = arguments.to_vec();
    for at in 1..arguments.len() {
        if arguments[at - 1] == "--store" && !arguments[at].contains(':') {
            arguments[at] = url_of(&arguments[at])?;
        }
    }
    Ok(arguments)
}

/// The URL of a server. It is started if it does not run, and keeps running.
fn url_of(name: &str) -> Result<String, Failure> {
    let known = SERVERS.iter().find(|server| server.name() == name);
    let names = || SERVERS.iter().map(|server| server.name()).collect::<Vec<_>>().join(", ");
    let server = known.ok_or_else(|| {
        Failure::Usage(format!("`{name}` is neither a URL nor a server; known servers: {}", names()))
    })?;
    let failure = |reason: String| Failure::Stopped(format!("{name}: {}", advise(*server, &reason)));
    Services::default().up(*server).map(|ready| ready.url).map_err(failure)
}

fn up(services: &Services, servers: &[&dyn Server], export: bool) -> Result<(), Failure> {
    for server in servers {
        let failure = |reason: String| Failure::Stopped(format!("{}: {reason}", server.name()));
        let ready = services.up(*server).map_err(|reason| failure(advise(*server, &reason)))?;
        if let Source::External = ready.source {
            try_external(*server, &ready).map_err(failure)?;
        }
        if export {
            println!("export {}='{}'", ready.variable, ready.url.replace('\'', "%27"));
        } else {
            println!("{}: {}", server.name(), ready.describe());
        }
    }
    Ok(())
}

fn try_external(server: &dyn Server, ready: &Ready) -> Result<(), String> {
    let tried = server.version(&ready.url).and_then(|_| server.verify(&ready.url, None));
    tried.map_err(|reason| unusable(ready, &reason))
}

fn advise(server: &dyn Server, reason: &str) -> String {
    format!("{reason}\nYou can also use your own server: set {} to its URL.", server.variable())
}

fn unusable(ready: &Ready, reason: &str) -> String {
    let (url, variable) = (hide_password(&ready.url), ready.variable);
    format!(
        "{url} cannot be used: {reason}\n{variable} names it; unset the variable to use a private instance."
    )
}

fn down(services: &Services, servers: &[&dyn Server]) -> Result<(), Failure> {
    // A server is stopped before those that it needs.
    for server in servers.iter().rev() {
        let name = server.name();
        match services.down(*server).map_err(Failure::Stopped)? {
            Some(pid) => println!("{name}: stopped (pid {pid}); its data stays for the next start"),
            None if services.external_url(*server).map_err(Failure::Stopped)?.is_some() => {
                println!("{name}: no private instance runs, and {}", explain_external(*server));
            }
            None => println!("{name}: not running"),
        }
    }
    Ok(())
}

/// The servers of this checkout.
pub(crate) struct Services {
    folder: PathBuf,
    /// Reads an environment variable.
    environment: fn(&str) -> Option<String>,
}

impl Default for Services {
    fn default() -> Self {
        Self { folder: cargo::target().join("services"), environment: |name| std::env::var(name).ok() }
    }
}

/// A server that tests can use: pass `variable` with the value `url` to them.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) variable: &'static str,
    pub(crate) url: String,
    source: Source,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// Named by the environment variable. [`Services::up`] does not check whether it answers.
    External,
    Private {
        pid: u32,
        version: String,
        is_new: bool,
    },
}

impl Ready {
    fn describe(&self) -> String {
        let (url, variable) = (hide_password(&self.url), self.variable);
        match &self.source {
            Source::External => {
                format!("answers at {url}, which {variable} names; it is never started or stopped here")
            }
            Source::Private { pid, version, is_new } => {
                let how = if *is_new { "started" } else { "was running" };
                format!("version {version} {how}, pid {pid}\n  {variable}={url}")
            }
        }
    }
}

impl Services {
    /// Provides a server: the one that its environment variable names, or else the private instance, after
    /// the one that it needs. It answers when this returns. Running ones are reused. Installs packages if it
    /// may.
    pub(crate) fn up(&self, server: &dyn Server) -> Result<Ready, String> {
        let variable = server.variable();
        if let Some(url) = self.external_url(server)? {
            return Ok(Ready { variable, url, source: Source::External });
        }
        let needed = match server.needs() {
            Some(needed) => Some(self.up_needed(server, needed)?),
            None => None,
        };
        let (running, version, is_new) = Instance::up(server, &self.folder, needed.as_deref())?;
        let source = Source::Private { pid: running.pid, version, is_new };
        Ok(Ready { variable, url: running.url, source })
    }

    /// The URL of a private instance that `server` can be started with.
    fn up_needed(&self, server: &dyn Server, needed: &dyn Server) -> Result<String, String> {
        if self.external_url(needed)?.is_some() {
            let (own_variable, other_variable) = (server.variable(), needed.variable());
            return Err(format!(
                "{other_variable} names your own server, and a private {} belongs to a private {}: set {own_variable} too, or unset {other_variable}",
                server.name(),
                needed.name(),
            ));
        }
        Ok(self.up(needed)?.url)
    }

    /// Stops the private instance if it runs, and returns the process that was stopped.
    fn down(&self, server: &dyn Server) -> Result<Option<u32>, String> {
        Instance::locate(server, &self.folder)?.down()
    }

    fn state(&self, server: &dyn Server) -> Result<State, String> {
        if let Some(url) = self.external_url(server)? {
            let version = server.version(&url);
            return Ok(State::External { url, version });
        }
        Ok(match Instance::locate(server, &self.folder)?.running()? {
            None => State::Stopped,
            Some(running) => {
                let version = server.version(&running.url);
                State::Running { url: running.url, pid: running.pid, version }
            }
        })
    }

    /// The server that the environment variable names, unless that is the private instance itself: a shell
    /// that has evaluated `services up --export` can still stop it.
    fn external_url(&self, server: &dyn Server) -> Result<Option<String>, String> {
        let Some(url) = (self.environment)(server.variable()).filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        let private = Instance::locate(server, &self.folder)?.url();
        Ok((private.as_ref() != Some(&url)).then_some(url))
    }
}

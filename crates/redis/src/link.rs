//! A connection that is opened when it is needed and replaced when it breaks.

use crate::address::{Address, Host};
use crate::connection::{Connection, Failure, Greeting};
use crate::fault::Fault;
use crate::fence::Fence;
use crate::server_info;
use semel_core::store::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a server that refused a connection is not tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for the other named servers after the first master has answered.
const OTHERS_WAIT: Duration = Duration::from_secs(1);
const CONNECTING: &str = "connecting to Redis";
/// The oldest version with all commands that the store needs.
const VERSION_MIN: [u32; 2] = [6, 2];

pub(crate) struct Link {
    address: Arc<Address>,
    /// Tried in this order; the first that takes writes is used.
    hosts: Vec<Host>,
    confirms: bool,
    /// The checks for a server whose answers are used for decisions.
    fence: Option<Arc<Fence>>,
    held: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Why the last attempt failed, remembered briefly.
    refusal: Option<Fault>,
    is_closed: bool,
}

impl Link {
    pub(crate) fn new(address: &Arc<Address>, hosts: Vec<Host>, confirms: bool) -> Self {
        Self { address: Arc::clone(address), hosts, confirms, fence: None, held: Arc::default() }
    }

    /// The same with a fence.
    pub(crate) fn behind(mut self, fence: Option<&Arc<Fence>>) -> Self {
        self.fence = fence.cloned();
        self
    }

    /// A connection that is not known to be broken. Concurrent callers share one attempt.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, Error> {
        let mut held = self.held.lock().await;
        if held.is_closed {
            return Err(Error::new(Kind::Closed, CONNECTING));
        }
        if let Some(connection) = held.connection.as_ref().filter(|connection| !connection.is_broken()) {
            return Ok(Arc::clone(connection));
        }
        held.connection = None;
        if let Some(refusal) = &held.refusal {
            return Err(refusal.clone().error(CONNECTING));
        }
        match self.connect().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                held.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                held.refusal = Some(Fault::of(&error));
                let held = Arc::clone(&self.held);
                tokio::spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    held.lock().await.refusal = None;
                });
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let (host, connection) = if self.hosts.len() == 1 || self.address.any_server {
            self.first_fit().await?
        } else {
            self.only_fit().await?
        };
        if let Some(fence) = &self.fence {
            fence.admit(host, &connection).await?;
        }
        Ok(connection)
    }

    fn checked(&self, host: &Host, opened: Result<Connection, Error>) -> Result<Connection, Error> {
        let connection = opened?;
        self.objection(host, &connection.greeting).map_or(Ok(connection), Err)
    }

    /// The first usable server.
    async fn first_fit(&self) -> Result<(&Host, Connection), Error> {
        let mut first = None;
        for host in &self.hosts {
            let opened = Connection::open(&self.address, host, self.confirms).await;
            match self.checked(host, opened) {
                Ok(connection) => return Ok((host, connection)),
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        Err(first.unwrap_or_else(|| Error::new(Kind::Unfit, CONNECTING).because("no server is named")))
    }

    /// The server that takes writes; an error if there are two.
    async fn only_fit(&self) -> Result<(&Host, Connection), Error> {
        let (mut fit, mut first_refusal) = (BTreeMap::new(), None::<(usize, Error)>);
        let mut opening = self.open_all();
        loop {
            let next = if fit.is_empty() {
                opening.join_next().await
            } else {
                timeout(OTHERS_WAIT, opening.join_next()).await.unwrap_or(None)
            };
            let Some(Ok((at, opened))) = next else { break };
            match self.checked(&self.hosts[at], opened) {
                Ok(connection) => drop(fit.insert(at, connection)),
                Err(refused) if first_refusal.as_ref().is_none_or(|(before, _)| at < *before) => {
                    first_refusal = Some((at, refused));
                }
                Err(_) => {}
            }
        }
        if fit.len() > 1 {
            self.refuse_rivals(&fit).await?;
        }
        let refused = || first_refusal.map(|(_, error)| error);
        let nobody = || Error::new(Kind::Unavailable, CONNECTING).because("no server answers");
        let (at, connection) = fit.pop_first().ok_or_else(|| refused().unwrap_or_else(nobody))?;
        Ok((&self.hosts[at], connection))
    }

    /// A connection to each server, as soon as it answers.
    fn open_all(&self) -> JoinSet<(usize, Result<Connection, Error>)> {
        let mut opening = JoinSet::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let (address, host, confirms) = (Arc::clone(&self.address), host.clone(), self.confirms);
            opening.spawn(async move { (at, Connection::open(&address, &host, confirms).await) });
        }
        opening
    }

    async fn refuse_rivals(&self, fit: &BTreeMap<usize, Connection>) -> Result<(), Error> {
        let mut seen = Vec::new();
        for (at, connection) in fit {
            let host = &self.hosts[*at];
            let lost = |failure: Failure| {
                Error::new(Kind::Unavailable, CONNECTING).because(format!("{host}: {failure}"))
            };
            seen.push(server_info::read_info(host, connection).await.map_err(lost)?);
        }
        let refused = |cause| Err(Error::new(Kind::Unfit, CONNECTING).because(cause));
        server_info::rivals(&seen).map_or(Ok(()), refused)
    }

    fn objection(&self, host: &Host, greeting: &Greeting) -> Option<Error> {
        let refused =
            |kind, cause: String| Some(Error::new(kind, CONNECTING).because(format!("{host} {cause}")));
        if greeting.mode == "sentinel" {
            return refused(
                Kind::Unfit,
                "is a Sentinel, which keeps no records; name the servers that it watches, separated by commas: the one that \
                 takes writes is found among them"
                    .to_owned(),
            );
        }
        if !is_recent(&greeting.version) {
            return refused(
                Kind::Unfit,
                format!("has version `{}`; the store needs 6.2 or later", greeting.version),
            );
        }
        if greeting.mode == "cluster" && self.address.database != 0 {
            return refused(Kind::Unfit, "is part of a cluster, which has only the database 0".to_owned());
        }
        if greeting.is_replica && !self.address.any_server {
            return refused(
                Kind::ReadOnly,
                "is a replica: it takes no writes, and what it shows may lag behind what was acknowledged; name the server that \
                 takes writes, or all of them, separated by commas"
                    .to_owned(),
            );
        }
        None
    }

    /// Drops a connection that hangs, or leads to a server that takes no writes.
    pub(crate) async fn discard(&self, connection: &Arc<Connection>) {
        connection.give_up();
        let mut held = self.held.lock().await;
        if held.connection.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, connection)) {
            held.connection = None;
        }
    }

    /// Accepts no more commands, and returns when those sent are answered.
    pub(crate) async fn close(&self) {
        let connection = {
            let mut held = self.held.lock().await;
            held.is_closed = true;
            held.connection.take()
        };
        if let Some(connection) = connection {
            connection.close().await;
        }
    }
}

/// Whether a version such as `7.0.15` is [recent enough](VERSION_MIN). An unreadable one is not.
fn is_recent(version: &str) -> bool {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next(), parts.next());
    major.is_some_and(|major| [major, minor.unwrap_or(0)] >= VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_malformed_versions_are_refused() {
        for (version, expected) in [
            ("7.0.15", true),
            ("9.1.2", true),
            ("6.2.0", true),
            ("6.0.16", false),
            ("5.0.7", false),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_recent(version), expected, "{version}");
        }
    }
}

//! What a server says about itself, and what follows from what several say.

use crate::address::Host;
use crate::connection::{Connection, Failure, Greeting};
use crate::resp::{self, Value, text};
use std::collections::BTreeMap;
use thiserror::Error;

/// Lines of `INFO`, or settings, by name.
pub(crate) type InfoFields = BTreeMap<String, String>;

/// A server's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) host: Host,
    is_replica: bool,
    is_in_cluster: bool,
    /// Different at each start of its process; empty if `INFO` is forbidden.
    run_id: Option<String>,
    /// What a server and its replicas have in common.
    replication_id: Option<String>,
    is_following: bool,
}

/// Sends a command, and reads lines `NAME:VALUE`. Empty if it is forbidden.
async fn info(connection: &Connection, section: &[u8]) -> Result<Option<InfoFields>, Failure> {
    Ok(match connection.ask(resp::command(&[b"INFO", section]), 0).await? {
        Value::Error(_) => None,
        answer => Some(info_fields(&text(&answer))),
    })
}

/// The lines `NAME:VALUE` of a reply.
pub(crate) fn info_fields(lines: &str) -> InfoFields {
    let pair =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    lines.lines().filter_map(pair).collect()
}

/// Identifies one run of a server; empty if `INFO` is forbidden.
pub(crate) async fn run_id(connection: &Connection) -> Result<Option<String>, Failure> {
    Ok(info(connection, b"server").await?.and_then(|mut fields| fields.remove("run_id")))
}

/// The bytes in a server's memory; `None` if `INFO` is forbidden.
pub(crate) async fn used_memory(connection: &Connection) -> Result<Option<u64>, Failure> {
    let fields = info(connection, b"memory").await?;
    Ok(fields.and_then(|fields| fields.get("used_memory")?.parse().ok()))
}

/// Checks a server. Its role may have changed since the connection was opened.
pub(crate) async fn read_info(host: &Host, connection: &Connection) -> Result<ServerInfo, Failure> {
    let greeting = Greeting::read(&connection.ask(resp::command(&[b"HELLO"]), 0).await?);
    let run_id = run_id(connection).await?;
    let mut replication = info(connection, b"replication").await?.unwrap_or_default();
    Ok(ServerInfo {
        host: host.clone(),
        is_replica: greeting.is_replica,
        is_in_cluster: greeting.mode == "cluster",
        run_id,
        replication_id: replication.remove("master_replid"),
        is_following: replication.get("master_link_status").is_some_and(|status| status == "up"),
    })
}

/// Two servers that take writes, and are not known to be one server under two names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Rivals {
    #[error(
        "{one} and {two} both take writes, and whether they are one server cannot be read: allow INFO. {ADVICE}"
    )]
    Unknown { one: Host, two: Host },
    #[error(
        "{one} and {two} both take writes: they are two stores, and every key could run once on each. {ADVICE}"
    )]
    TwoStores { one: Host, two: Host },
}

const ADVICE: &str = "Make one of them a replica of the other (REPLICAOF) and find out which keys were used meanwhile, or name only one in \
                      the store's URL";

/// Whether two of them take writes.
pub(crate) fn rivals(seen: &[ServerInfo]) -> Option<Rivals> {
    let mut masters = seen.iter().filter(|seen| !seen.is_replica && !seen.is_in_cluster);
    let first = masters.next()?;
    let other = masters.find(|other| other.run_id.is_none() || other.run_id != first.run_id)?;
    let (one, two) = (first.host.clone(), other.host.clone());
    let is_unknown = first.run_id.is_none() || other.run_id.is_none();
    Some(if is_unknown { Rivals::Unknown { one, two } } else { Rivals::TwoStores { one, two } })
}

/// A replica that follows none of the named servers that take writes.
pub(crate) fn unrelated_replica(seen: &[ServerInfo]) -> Option<&ServerInfo> {
    let masters = || seen.iter().filter(|seen| !seen.is_replica);
    let is_unrelated = |replica: &&ServerInfo| {
        replica.is_replica
            && replica.is_following
            && replica.replication_id.is_some()
            && masters().all(|master| master.replication_id != replica.replication_id)
    };
    masters().next()?;
    seen.iter().find(is_unrelated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(port: u16, is_replica: bool, run_id: Option<&str>, replication_id: &str) -> ServerInfo {
        ServerInfo {
            host: Host { name: "h".to_owned(), port },
            is_replica,
            is_in_cluster: false,
            run_id: run_id.map(str::to_owned),
            replication_id: Some(replication_id.to_owned()),
            is_following: is_replica,
        }
    }

    #[test]
    fn two_masters_are_rivals_unless_they_are_the_same_server() {
        let (a, b) = (seen(1, false, Some("a"), "x"), seen(2, false, Some("b"), "y"));
        assert_eq!(rivals(&[]), None);
        assert_eq!(rivals(&[a.clone(), seen(2, true, Some("b"), "x")]), None, "a replica");
        assert_eq!(rivals(&[a.clone(), seen(2, false, Some("a"), "x")]), None, "one server by two names");
        let found = rivals(&[seen(3, true, Some("c"), "x"), a.clone(), b]).expect("two stores");
        assert!(matches!(found, Rivals::TwoStores { .. }), "{found:?}");
        let message = found.to_string();
        assert!(message.contains("h:1 and h:2"), "{message}");
        let found = rivals(&[a, seen(2, false, None, "x")]).expect("it cannot be known");
        assert!(matches!(found, Rivals::Unknown { .. }), "{found:?}");
        let message = found.to_string();
        assert!(message.contains("allow INFO"), "{message}");
        let in_cluster = |port| ServerInfo { is_in_cluster: true, ..seen(port, false, Some("a"), "x") };
        assert_eq!(rivals(&[in_cluster(1), ServerInfo { run_id: None, ..in_cluster(2) }]), None);
    }

    #[test]
    fn a_replica_of_another_master_is_unrelated() {
        let master = seen(1, false, Some("a"), "x");
        assert_eq!(unrelated_replica(&[master.clone(), seen(2, true, Some("b"), "x")]), None);
        assert_eq!(unrelated_replica(&[seen(2, true, Some("b"), "y")]), None, "no server to compare with");
        let other = seen(3, true, Some("c"), "y");
        assert_eq!(unrelated_replica(&[master, other.clone()]), Some(&other));
    }
}

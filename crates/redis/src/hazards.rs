//! Finds dangerous settings of the servers.

use crate::address::TTL_IGNORED;
use crate::expiry::Expiries;
use crate::identity;
use crate::link::Link;
use crate::masters;
use crate::resp::{self, Value, text};
use crate::server_info::{self, InfoFields, info_fields};
use crate::servers::Effect;
use crate::shared::Shared;
use semel_core::store::{Error, Hazard, Kind, Severity};

/// The settings that are checked.
const SETTINGS: &[&str] = &[
    "appendfsync",
    "appendonly",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "replica-read-only",
];

/// The settings of one server.
#[derive(Default)]
struct ServerSettings {
    settings: InfoFields,
    replication: InfoFields,
    /// Why its settings could not be read.
    hidden: Option<String>,
}

pub(crate) async fn find(
    shared: &Shared,
    expiries: &Expiries,
    lacks_notifications: bool,
) -> Result<Vec<Hazard>, Error> {
    let mut found: Vec<Hazard> = Vec::new();
    for link in shared.writes.all() {
        let hazards = match read_settings(&link).await {
            Ok(seen) => of_server(&seen, shared),
            Err(error) => vec![unverified(&format!("a server could not be checked: {error}"))],
        };
        // A problem that all servers of a cluster share is reported once.
        for hazard in hazards {
            if !found.contains(&hazard) {
                found.push(hazard);
            }
        }
    }
    if shared.address.hosts.len() > 1 && !shared.writes.is_cluster() {
        found.extend(of_several(&masters::read_all_once(&shared.address).await));
    }
    found.extend(of_identity(shared).await);
    found.extend(expiries.hazard(shared).await);
    if shared.address.ignores_ttl {
        found.push(notice("redis-ttl-ignored", TTL_IGNORED, "remove it from the URL"));
    }
    if shared.writes.is_cluster() {
        found.push(notice(
            "redis-cluster-partition",
            "a server of the cluster that is cut off continues to take writes until it notices (cluster-node-timeout), and these are \
             lost when its replica has taken over: a command whose claim is lost runs again",
            "keep cluster-node-timeout short, set min-replicas-to-write, and use a store that confirms writes by a quorum where no \
             effect may happen twice",
        ));
    }
    if shared.address.may_be_in_the_clear() {
        found.push(notice(
            "redis-unencrypted",
            "the connection to the server is not encrypted: anyone who can read or change the traffic can read and change records",
            "write rediss:// in the store's URL",
        ));
    }
    if lacks_notifications || !may_publish(shared).await {
        found.push(notice(
            "redis-no-notifications",
            "messages between nodes do not arrive, so requests that wait for another node poll",
            "allow the store's user SUBSCRIBE, PUBLISH and the channel (`&PREFIX:changed`), or write notify=off in the store's URL",
        ));
    }
    Ok(found)
}

/// What the store has lost, and what an operator has accepted.
async fn of_identity(shared: &Shared) -> Option<Hazard> {
    let looked = async { Ok::<_, Error>((shared.lost_parts().await?, shared.meta().await?)) };
    let (lost, meta) = match looked.await {
        Ok(looked) => looked,
        Err(error) => {
            return Some(unverified(&format!("whether data is lost could not be checked ({error})")));
        }
    };
    if !lost.is_empty() {
        let what = format!(
            "{}: the server was emptied, came back without its data, or removed keys. Nothing is written there, and commands that may \
             have been recorded there are refused",
            identity::summary(&lost, &shared.layout)
        );
        let fix = "restore the data, or accept the loss with semel doctor --accept-loss: the lost commands can then run again";
        return Some(danger("redis-data-lost", what, fix));
    }
    let accepted =
        meta.map(|meta| meta.accepted).filter(|accepted| !accepted.is_empty())?.join("; before that ");
    Some(notice(
        "redis-loss-accepted",
        &format!("an operator accepted that the store had lost data: {accepted}"),
        "expect that commands recorded before run again when they are retried",
    ))
}

async fn read_settings(link: &Link) -> Result<ServerSettings, Error> {
    let connection = link.connection().await?;
    let mut seen = ServerSettings::default();
    let ask = async |arguments: &[&[u8]]| {
        let lost = |failure| Error::new(Kind::Unavailable, "looking at Redis").because(failure);
        connection.ask(resp::command(arguments), 0).await.map_err(lost)
    };
    for setting in SETTINGS {
        match ask(&[b"CONFIG", b"GET", setting.as_bytes()]).await? {
            Value::Array(pair) if pair.len() == 2 => {
                seen.settings.insert(text(&pair[0]), text(&pair[1]));
            }
            Value::Error(error) => seen.hidden = Some(error),
            _ => seen.hidden = Some(format!("the server does not name {setting}")),
        }
    }
    let replication = ask(&[b"INFO", b"replication"]).await?;
    if let Value::Error(error) = &replication {
        seen.hidden = Some(error.clone());
    }
    seen.replication = info_fields(&text(&replication));
    Ok(seen)
}

/// Hazards of several servers in one URL.
fn of_several(seen: &[server_info::ServerInfo]) -> Option<Hazard> {
    if let Some(cause) = server_info::rivals(seen) {
        let fix = "stop the gateways; make one server the replica of the other, or name only one in the store's URL";
        return Some(danger("redis-two-masters", cause.to_string(), fix));
    }
    server_info::unrelated_replica(seen).map(|unrelated_replica| {
        let what = format!(
            "{} is a replica, and of none of the other servers in the store's URL: if it took over, all records would be gone and every \
             command would run again",
            unrelated_replica.host
        );
        danger("redis-unrelated-replica", what, "make it a replica of the server that takes writes, or remove it from the URL")
    })
}

/// Whether other nodes can be notified of writes. They ignore an empty message.
async fn may_publish(shared: &Shared) -> bool {
    if !shared.address.notifies || shared.address.any_server {
        return true;
    }
    let (slot, _) = shared.layout.of_store("meta");
    let question = resp::command(&[b"PUBLISH", shared.layout.channel().as_bytes(), b""]);
    !matches!(shared.reading().ask(slot, question, Effect::Reads).await, Err(fault) if fault.kind == Kind::Unfit)
}

fn of_server(seen: &ServerSettings, shared: &Shared) -> Vec<Hazard> {
    let confirmation = shared.address.confirmation;
    of_facts(seen, confirmation.replicas > 0, confirmation.synced)
}

fn of_facts(seen: &ServerSettings, waits: bool, waits_for_disk: bool) -> Vec<Hazard> {
    let mut found = Vec::new();
    let setting = |name: &str| seen.settings.get(name).map(String::as_str);
    if let Some(cause) = &seen.hidden {
        found.push(unverified(&format!("how the server is set up could not be read ({cause})")));
    }
    if let Some(policy) = setting("maxmemory-policy").filter(|policy| *policy != "noeviction") {
        found.push(danger(
            "redis-eviction",
            format!(
                "maxmemory-policy is {policy}: when memory is short the server removes records, and the commands of those run again"
            ),
            "set maxmemory-policy to noeviction",
        ));
    }
    if setting("appendonly").is_some_and(|value| value == "no") {
        found.push(danger(
            "redis-no-aof",
            "appendonly is off: after a crash of the server everything since its last snapshot is lost, and those commands run again"
                .to_owned(),
            "set appendonly to yes, and appendfsync to always",
        ));
    } else if let Some(sync) = setting("appendfsync").filter(|sync| *sync != "always" && !waits_for_disk) {
        found.push(danger(
            "redis-appendfsync",
            format!(
                "appendfsync is {sync}: after a crash of the server's machine the last acknowledged writes are lost (about a second \
                 of them with everysec), and commands whose claims are lost run again"
            ),
            "set appendfsync to always, or add waitaof=on to the store's URL (Redis 7.2, Valkey)",
        ));
    } else if setting("no-appendfsync-on-rewrite").is_some_and(|value| value == "yes") && !waits_for_disk {
        found.push(danger(
            "redis-appendfsync",
            "no-appendfsync-on-rewrite is yes: while the log is rewritten or a snapshot is saved nothing is synced, and a crash of the \
             server's machine then loses acknowledged writes"
                .to_owned(),
            "set no-appendfsync-on-rewrite to no",
        ));
    }
    if seen.replication.get("role").is_some_and(|role| role != "master") {
        found.push(danger(
            "redis-replica",
            "this server is a replica: what it shows may lag behind what was acknowledged".to_owned(),
            "name the server that takes writes in the store's URL, or all servers, separated by commas",
        ));
        if setting("replica-read-only").is_some_and(|value| value == "no") {
            found.push(danger(
                "redis-writable-replica",
                "replica-read-only is off: writes to this replica are accepted and lost".to_owned(),
                "set replica-read-only to yes",
            ));
        }
    }
    let replicas = seen.replication.get("connected_slaves").and_then(|count| count.parse::<u32>().ok());
    let is_alone = replicas.unwrap_or(0) == 0;
    let may_write_alone = setting("min-replicas-to-write").is_some_and(|count| count == "0");
    if !is_alone && waits {
        found.push(notice(
            "redis-fail-over",
            "a write is answered when the replicas that the URL asks for have it; a failover to another replica still loses it",
            "let only replicas take over that are waited for",
        ));
    } else if !is_alone && may_write_alone {
        found.push(danger(
            "redis-asynchronous-replica",
            format!(
                "{} follow asynchronously: a fail-over loses the last acknowledged writes, and a command whose claim is lost runs again",
                replicas.map_or_else(String::new, |count| format!("{count} replicas"))
            ),
            "set min-replicas-to-write to 1, and add wait=1 to the store's URL",
        ));
    } else if !is_alone {
        found.push(notice(
            "redis-fail-over",
            "replicas follow asynchronously: a fail-over loses writes that were acknowledged within min-replicas-max-lag before it",
            "add wait=1 to the store's URL",
        ));
    }
    found
}

fn danger(code: &'static str, what: String, fix: &str) -> Hazard {
    Hazard { severity: Severity::Danger, code, what, fix: fix.to_owned() }
}

fn notice(code: &'static str, what: &str, fix: &str) -> Hazard {
    Hazard { severity: Severity::Notice, code, what: what.to_owned(), fix: fix.to_owned() }
}

fn unverified(what: &str) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "redis-unverified",
        what: format!("{what}; it may lose acknowledged writes"),
        fix:
            "allow the store's user CONFIG GET and INFO, or check the settings by hand: the guide lists them"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> InfoFields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn codes(
        settings: &[(&str, &str)],
        replication: &[(&str, &str)],
        waits: bool,
    ) -> Vec<(Severity, &'static str)> {
        let mut all = facts(&[
            ("maxmemory-policy", "noeviction"),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("min-replicas-to-write", "0"),
            ("replica-read-only", "yes"),
        ]);
        all.extend(facts(settings));
        let mut role = facts(&[("role", "master"), ("connected_slaves", "0")]);
        role.extend(facts(replication));
        let seen = ServerSettings { settings: all, replication: role, hidden: None };
        of_facts(&seen, waits, false).into_iter().map(|hazard| (hazard.severity, hazard.code)).collect()
    }

    #[test]
    fn each_dangerous_setting_is_named() {
        use Severity::{Danger, Notice};
        assert_eq!(codes(&[], &[], false), []);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(codes(&[("maxmemory-policy", policy)], &[], false), [(Danger, "redis-eviction")]);
        }
        assert_eq!(codes(&[("appendonly", "no")], &[], false), [(Danger, "redis-no-aof")]);
        assert_eq!(codes(&[("appendfsync", "everysec")], &[], false), [(Danger, "redis-appendfsync")]);
        let rewriting = [("no-appendfsync-on-rewrite", "yes")];
        assert_eq!(codes(&rewriting, &[], false), [(Danger, "redis-appendfsync")]);
        let rewriting = ServerSettings { settings: facts(&rewriting), ..ServerSettings::default() };
        assert_eq!(of_facts(&rewriting, false, true).len(), 0, "waitaof=on waits for the disk");
        assert_eq!(codes(&[], &[("role", "slave")], false), [(Danger, "redis-replica")]);
        let followed = [("connected_slaves", "2")];
        assert_eq!(codes(&[], &followed, false), [(Danger, "redis-asynchronous-replica")]);
        assert_eq!(codes(&[("min-replicas-to-write", "1")], &followed, false), [(Notice, "redis-fail-over")]);
        assert_eq!(codes(&[], &followed, true), [(Notice, "redis-fail-over")]);
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_not_assumed_safe() {
        let seen = ServerSettings { hidden: Some("NOPERM".to_owned()), ..ServerSettings::default() };
        let found = of_facts(&seen, false, false);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].severity, found[0].code), (Severity::Unverified, "redis-unverified"));
    }
}

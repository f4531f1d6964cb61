//! Finds dangerous settings of the server.

use super::own_row;
use super::schema::tables;
use super::slot::{Slot, owned};
use semel_core::store::{Error, Hazard, Severity};
use std::collections::BTreeMap;
use tokio_postgres::types::Type;

/// What the store knows about its own connection.
pub(super) struct Connection<'a> {
    pub(super) slot: &'a Slot,
    pub(super) schema: &'a str,
    pub(super) may_be_in_the_clear: bool,
    /// Notifications are enabled, and do not arrive.
    pub(super) lacks_notifications: bool,
}

pub(super) async fn find(connection: &Connection<'_>) -> Result<Vec<Hazard>, Error> {
    let mut found = Vec::new();
    match settings(connection.slot).await {
        Ok(settings) => found.extend(of_settings(&settings)),
        Err(error) => found.push(unverified("how the server is set up could not be read", &error)),
    }
    match standbys(connection.slot).await {
        Ok(Standbys { is_standby: true, .. }) => found.push(of_being_a_standby()),
        Ok(Standbys { connected, waited_for, .. }) => found.extend(of_standbys(connected, waited_for)),
        Err(error) => found.push(unverified("which standbys the server has could not be read", &error)),
    }
    match unlogged(connection.slot, connection.schema).await {
        Ok(tables) => found.extend(of_unlogged(&tables)),
        Err(error) => found.push(unverified("how the tables are kept could not be read", &error)),
    }
    match tables::hazards(connection.slot, connection.schema).await {
        Ok(hazards) => found.extend(hazards),
        Err(error) => found.push(unverified("what else is attached to the tables could not be read", &error)),
    }
    match own_row::hazard(connection.slot, connection.schema).await {
        Ok(hazard) => found.extend(hazard),
        Err(error) => found.push(unverified("whether data is lost could not be read", &error)),
    }
    if connection.may_be_in_the_clear {
        found.push(Hazard {
            severity: Severity::Notice,
            code: "postgres-unencrypted",
            what: "the connection to the server may be unencrypted, and its certificate is not checked: anyone who can read or \
                   change the traffic can read and change records"
                .to_owned(),
            fix: "add sslmode=verify-full to the store's URL".to_owned(),
        });
    }
    if connection.lacks_notifications {
        found.push(Hazard {
            severity: Severity::Notice,
            code: "postgres-no-notifications",
            what: "notifications do not arrive, so requests that wait for another node poll".to_owned(),
            fix: "behind a pooler, name the server itself with listen=HOST:PORT in the store's URL, or write listen=off"
                .to_owned(),
        });
    }
    Ok(found)
}

fn unverified(what: &str, error: &Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "postgres-unverified",
        what: format!("{what}: {error}"),
        fix: "look again as soon as the server answers".to_owned(),
    }
}

type Settings = BTreeMap<String, String>;

async fn settings(slot: &Slot) -> Result<Settings, Error> {
    let sql = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('autovacuum', 'default_transaction_read_only', \
               'fsync', 'full_page_writes', 'synchronous_commit', 'zero_damaged_pages')";
    let rows = slot.read(sql, Vec::new()).await.map_err(|fault| fault.error("reading pg_settings"))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn of_settings(settings: &Settings) -> Vec<Hazard> {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|is| is == value);
    let mut found = Vec::new();
    let mut danger = |code, what: &str, fix: &str| {
        found.push(Hazard { severity: Severity::Danger, code, what: what.to_owned(), fix: fix.to_owned() });
    };
    if is("fsync", "off") {
        danger(
            "postgres-fsync",
            "fsync is off: after a crash of the server's machine the whole database may be damaged, and acknowledged outcomes \
             are lost",
            "set fsync = on in postgresql.conf and reload",
        );
    }
    if is("full_page_writes", "off") {
        danger(
            "postgres-full-page-writes",
            "full_page_writes is off: a crash in the middle of a write can damage pages, and records with them",
            "set full_page_writes = on in postgresql.conf and reload",
        );
    }
    if is("zero_damaged_pages", "on") {
        danger(
            "postgres-zero-damaged-pages",
            "zero_damaged_pages is on: damaged pages are read as empty, and the commands on them would run again",
            "set zero_damaged_pages = off",
        );
    }
    if let Some(value) =
        settings.get("synchronous_commit").filter(|value| !["on", "remote_apply"].contains(&&***value))
    {
        found.push(Hazard {
            severity: Severity::Notice,
            code: "postgres-synchronous-commit",
            what: format!(
                "synchronous_commit is {value} by default: the store's own writes are raised to `on`; other writes of the \
                 application may be lost in a crash although they were acknowledged"
            ),
            fix: "set synchronous_commit = on for this database or role".to_owned(),
        });
    }
    if is("autovacuum", "off") {
        found.push(Hazard {
            severity: Severity::Notice,
            code: "postgres-autovacuum",
            what:
                "autovacuum is off: every finished command leaves a dead row, and the table grows without end"
                    .to_owned(),
            fix: "set autovacuum = on, or vacuum the records table yourself".to_owned(),
        });
    }
    found
}

/// How many standbys are connected, whether a commit waits for one, and whether the server itself is a
/// standby.
#[derive(Default)]
struct Standbys {
    connected: i64,
    waited_for: bool,
    is_standby: bool,
}

async fn standbys(slot: &Slot) -> Result<Standbys, Error> {
    let sql = "SELECT (SELECT count(*) FROM pg_catalog.pg_stat_replication), \
               pg_catalog.current_setting('synchronous_standby_names') <> '', pg_catalog.pg_is_in_recovery()";
    let rows =
        slot.read(sql, Vec::new()).await.map_err(|fault| fault.error("reading pg_stat_replication"))?;
    let of = |row: &tokio_postgres::Row| Standbys {
        connected: row.get(0),
        waited_for: row.get(1),
        is_standby: row.get(2),
    };
    Ok(rows.first().map(of).unwrap_or_default())
}

fn of_being_a_standby() -> Hazard {
    Hazard {
        severity: Severity::Danger,
        code: "postgres-standby",
        what: "this server is a standby: it takes no writes, and what it shows may lag behind what was acknowledged".to_owned(),
        fix: "name the primary in the store's URL, or all servers, separated by commas".to_owned(),
    }
}

fn of_standbys(connected: i64, waited_for: bool) -> Option<Hazard> {
    let following = if connected == 1 {
        "one standby follows".to_owned()
    } else {
        format!("{connected} standbys follow")
    };
    (connected > 0 && !waited_for).then(|| Hazard {
        severity: Severity::Danger,
        code: "postgres-asynchronous-standby",
        what: format!(
            "{following} asynchronously: a fail-over loses the last acknowledged writes, and a command whose claim is lost runs \
             again"
        ),
        fix: "set synchronous_standby_names, so that a commit waits for a standby that may take over".to_owned(),
    })
}

async fn unlogged(slot: &Slot, schema: &str) -> Result<Vec<String>, Error> {
    let sql = "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relpersistence <> 'p'";
    let rows = slot
        .read(sql, vec![owned(schema.to_owned(), Type::TEXT)])
        .await
        .map_err(|fault| fault.error("reading pg_class"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn of_unlogged(tables: &[String]) -> Option<Hazard> {
    (!tables.is_empty()).then(|| Hazard {
        severity: Severity::Danger,
        code: "postgres-unlogged",
        what: format!(
            "{} is unlogged: after a crash of the server it is empty, and every command runs again",
            tables.join(", ")
        ),
        fix: "run ALTER TABLE … SET LOGGED".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dangerous_setting_is_named_with_its_consequence() {
        let codes = |settings: &[(&str, &str)]| -> Vec<_> {
            let settings =
                settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            of_settings(&settings).into_iter().map(|hazard| (hazard.severity, hazard.code)).collect()
        };
        let sound =
            [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_commit", "on"), ("autovacuum", "on")];
        assert_eq!(codes(&sound), []);
        assert_eq!(codes(&[("synchronous_commit", "remote_apply")]), []);
        assert_eq!(codes(&[("fsync", "off")]), [(Severity::Danger, "postgres-fsync")]);
        assert_eq!(codes(&[("full_page_writes", "off")]), [(Severity::Danger, "postgres-full-page-writes")]);
        assert_eq!(
            codes(&[("zero_damaged_pages", "on")]),
            [(Severity::Danger, "postgres-zero-damaged-pages")]
        );
        for less in ["off", "local", "remote_write"] {
            let found = codes(&[("synchronous_commit", less)]);
            assert_eq!(found, [(Severity::Notice, "postgres-synchronous-commit")], "{less}");
        }
        assert_eq!(codes(&[("autovacuum", "off")]), [(Severity::Notice, "postgres-autovacuum")]);
    }

    #[test]
    fn an_asynchronous_standby_is_a_hazard() {
        assert!(of_standbys(0, false).is_none());
        assert!(of_standbys(2, true).is_none());
        assert_eq!(of_standbys(1, false).map(|hazard| hazard.severity), Some(Severity::Danger));
        assert!(of_unlogged(&[]).is_none());
        assert_eq!(
            of_unlogged(&["records".to_owned()]).map(|hazard| hazard.severity),
            Some(Severity::Danger)
        );
    }
}

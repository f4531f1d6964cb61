//! A streaming standby of the private PostgreSQL. If it was promoted or has fallen behind, it is copied
//! again.

use std::thread;
use std::time::Duration;

use super::{Postgres, has_data, missing_packages, replace_data, start, stop, url, version};
use crate::services::home::Home;
use crate::services::server::Server;
use semel_test_support::launcher::output;
use semel_test_support::launcher::postgres::{PID_FILE, Programs, USER, ask};

/// The replication slot on the primary, which keeps the WAL that a stopped standby has not read.
const SLOT: &str = "semel_standby";

/// Five seconds in total: a standby connects within a fraction of a second after its start.
const CHECKS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The kind of server.
pub(in crate::services) struct Standby;

impl Server for Standby {
    fn name(&self) -> &'static str {
        "postgres-standby"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_POSTGRES_STANDBY_URL"
    }

    fn user(&self) -> &'static str {
        USER
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        missing_packages()
    }

    fn needs(&self) -> Option<&'static dyn Server> {
        Some(&Postgres)
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, primary: Option<&str>) -> Result<(), String> {
        let programs = Programs::require()?;
        let primary = administrator(primary.ok_or("a standby needs a primary")?);
        if !is_copy(home, &programs, &primary)? {
            copy(home, &programs, &primary)?;
        }
        // Not in the data, because the primary may have another port by now.
        let follow = format!("primary_conninfo={primary}?application_name={SLOT}");
        start(home, &programs, port, &[&follow])
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        stop(home)
    }

    fn version(&self, url: &str) -> Result<String, String> {
        version(url)
    }

    fn verify(&self, url: &str, primary: Option<&str>) -> Result<(), String> {
        if ask(url, "SELECT pg_is_in_recovery()")? != "t" {
            return Err("it takes writes, so it is not a standby".to_owned());
        }
        let Some(primary) = primary.map(administrator) else { return Ok(()) };
        let sql = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{SLOT}' AND state = 'streaming'"
        );
        for _ in 1..CHECKS_MAX {
            if ask(&primary, &sql)? != "0" {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err("it does not follow the private PostgreSQL".to_owned())
    }
}

/// The URL with an administrator's role, which may copy the data.
fn administrator(primary: &str) -> String {
    primary.replacen("semel@", "postgres@", 1)
}

/// Whether the data is a copy of this primary that can continue to follow it: never promoted, and all WAL
/// that it needs is kept.
fn is_copy(home: &Home, programs: &Programs, primary: &str) -> Result<bool, String> {
    if !has_data(home, programs)? || !home.data().join("standby.signal").exists() {
        return Ok(false);
    }
    let control = output(programs.command("pg_controldata").arg("-D").arg(home.data()))?;
    let own_identifier = control.lines().find_map(|line| line.strip_prefix("Database system identifier:"));
    let primary_identifier = ask(primary, "SELECT system_identifier FROM pg_control_system()")?;
    let slots = ask(
        primary,
        &format!(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND wal_status <> 'lost'"
        ),
    )?;
    Ok(own_identifier.map(str::trim) == Some(primary_identifier.as_str()) && slots == "1")
}

fn copy(home: &Home, programs: &Programs, primary: &str) -> Result<(), String> {
    drop_slot(primary)?;
    replace_data(home, |unfinished| programs.copy(primary, SLOT, unfinished))
}

/// The primary notices a moment later that the slot is no longer used.
fn drop_slot(primary: &str) -> Result<(), String> {
    let sql = format!(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    );
    for _ in 1..CHECKS_MAX {
        if ask(primary, &sql).is_ok() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    ask(primary, &sql).map(drop)
}

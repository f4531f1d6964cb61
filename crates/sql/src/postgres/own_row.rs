//! The store's own row among the records.
//!
//! It shows that the records are complete: a table that was emptied does not have it. The step of the schema that
//! introduced it wrote it, together with its own number, and no node ever writes it again, because that would hide a loss.
//! Only an operator's acceptance does. The functions `write` and `read` compare it.

use super::address::Address;
use super::reader::{proved, set, settings, unreadable};
use super::schema;
use super::slot::{Slot, owned};
use super::transaction::RecordColumns;
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::store::{AcceptedLoss, Error, Hazard, Kind, SECRET_SETTING, Setting, Severity};
use std::sync::Arc;
use tokio_postgres::types::Type;

/// Its command ID. To nodes of earlier versions, it is one of those by which they try whether the store accepts writes;
/// they list, count and sweep no such entry.
const COMMAND_ID: CommandId = CommandId::from_bytes(*b"semel: does the store write now\xff");
/// Its operation ID, in the text of statements.
pub(super) const OPERATION_ID: &str = "f1139ada-967a-84cd-924e-7dd1fb40cad4";
/// The schema that introduced it.
const SINCE: usize = 4;
/// The code of the error that the functions raise if it is missing.
pub(super) const LOST: &str = "SML01";
pub(super) const FIX: &str =
    "restore the data, or accept the loss with semel doctor --store URL --accept-loss --reason TEXT";

const CHECKING: &str = "checking that the PostgreSQL store has lost nothing";
const ACCEPTING: &str = "accepting the loss of data in PostgreSQL";
/// The setting with the losses that operators have accepted: a line for each, the last first.
const ACCEPTED: &str = "accepted-losses";
/// How many of them are kept.
const ACCEPTED_MAX: usize = 8;
/// How often that setting is read again if somebody else changes it.
const TRIES: u32 = 8;

/// Whether the row is missing. An earlier schema, which a tool may read, has none.
async fn is_lost(slot: &Slot, schema: &str, any_server: bool) -> Result<bool, Error> {
    let sql = format!(
        "SELECT pg_catalog.pg_is_in_recovery(), \
         coalesce((SELECT value FROM {schema}.meta WHERE name = 'schema'), {SINCE}) >= {SINCE} \
         AND NOT EXISTS (SELECT 1 FROM {schema}.records WHERE operation_id = '{OPERATION_ID}')"
    );
    let rows = proved(slot, &sql, Vec::new(), any_server).await?;
    let row = rows.first().ok_or_else(|| Error::new(Kind::Unavailable, CHECKING).because("no answer"))?;
    row.try_get(1).map_err(|error| unreadable(&error))
}

/// Fails if the records were lost.
pub(super) async fn check(slot: &Slot, schema: &str) -> Result<(), Error> {
    if !is_lost(slot, schema, false).await? {
        return Ok(());
    }
    Err(Error::new(Kind::DataLost, CHECKING).because(format!(
        "the table {schema}.records was emptied: the row that shows that it is complete is missing; {FIX}"
    )))
}

/// What was lost, or what an operator has accepted.
pub(super) async fn hazard(slot: &Slot, schema: &str) -> Result<Option<Hazard>, Error> {
    if is_lost(slot, schema, true).await? {
        return Ok(Some(Hazard {
            severity: Severity::Danger,
            code: "postgres-data-lost",
            what: format!(
                "the table {schema}.records was emptied, by TRUNCATE or DELETE or a restored backup without its rows. Nothing is \
                 written, and commands that may have been recorded there are refused"
            ),
            fix: "restore the data, or accept the loss with semel doctor --accept-loss: the lost commands can then run again"
                .to_owned(),
        }));
    }
    let accepted = accepted(slot, schema, true).await?;
    Ok(accepted.map(|accepted| Hazard {
        severity: Severity::Notice,
        code: "postgres-loss-accepted",
        what: format!(
            "an operator accepted that the store had lost data: {}",
            String::from_utf8_lossy(&accepted).trim_end().replace('\n', "; before that ")
        ),
        fix: "expect that commands recorded before run again when they are retried".to_owned(),
    }))
}

async fn accepted(slot: &Slot, schema: &str, any_server: bool) -> Result<Option<Bytes>, Error> {
    let settings = settings(slot, schema, any_server).await?;
    Ok(settings.into_iter().find(|(name, _)| name == ACCEPTED).map(|(_, value)| value))
}

/// Writes the row again, and who accepted the loss, when and why. That comes first, so that it is known also after an
/// interruption.
pub(super) async fn accept(address: Address, why: &str) -> Result<AcceptedLoss, Error> {
    let address = Arc::new(address);
    let (slot, schema) = (Arc::new(Slot::new(&address)), &address.schema);
    let refused = |cause: String| Err(Error::new(Kind::Unfit, ACCEPTING).because(cause));
    let version = schema::of(&slot, schema).await?;
    if version.have != version.wanted {
        return refused(format!(
            "the database has schema {} and this build needs {}: run `semel schema apply --store URL` first, which also shows whether \
             anything is lost",
            version.have, version.wanted
        ));
    }
    let nothing = AcceptedLoss { parts: 0, of: 1, settings: false, secret: false };
    if !is_lost(&slot, schema, false).await? {
        return Ok(nothing);
    }
    if settings(&slot, schema, false).await?.iter().all(|(name, _)| name != SECRET_SETTING) {
        return refused(format!(
            "the settings are lost too, with the hashing secret: restore them from a backup. If nothing is left to restore, stop \
             every gateway, drop the schema `{schema}`, and start them again: every command can run again then"
        ));
    }
    note(&slot, schema, why).await?;
    let sql = format!(
        "WITH durable AS MATERIALIZED (SELECT CASE WHEN pg_catalog.current_setting('synchronous_commit') \
         IN ('off', 'local', 'remote_write') THEN pg_catalog.set_config('synchronous_commit', 'on', true) END) \
         INSERT INTO {schema}.records (operation_id, token, state, command_id, digest, entry) \
         SELECT $1, $2, $3, $4, $5, $6 FROM durable ON CONFLICT (operation_id) DO NOTHING"
    );
    let row = RecordColumns::marker(COMMAND_ID);
    let columns = vec![
        owned(row.operation_id, Type::UUID),
        owned(row.token, Type::UUID),
        owned(row.state, Type::INT2),
        owned(row.command_id, Type::BYTEA),
        owned(row.digest, Type::BYTEA),
        owned(row.entry, Type::BYTEA),
    ];
    slot.write(&sql, columns).await.map_err(|fault| fault.error(ACCEPTING))?;
    Ok(AcceptedLoss { parts: 1, ..nothing })
}

async fn note(slot: &Arc<Slot>, schema: &str, why: &str) -> Result<(), Error> {
    for _ in 0..TRIES {
        let before = accepted(slot, schema, false).await?;
        let earlier = before.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let line = why.replace('\n', " ");
        let lines: Vec<&str> = std::iter::once(&*line).chain(earlier.lines()).take(ACCEPTED_MAX).collect();
        let next = lines.join("\n");
        match set(slot, schema, ACCEPTED, before.as_deref(), Some(next.as_bytes())).await? {
            Setting::Done => return Ok(()),
            Setting::Refused(_) => {}
        }
    }
    let cause = "somebody else keeps changing the list of accepted losses";
    Err(Error::new(Kind::Unavailable, ACCEPTING).because(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::schema::STEPS;

    #[test]
    fn the_step_writes_and_compares_the_row_that_is_meant() {
        let row = RecordColumns::marker(COMMAND_ID);
        assert_eq!(row.operation_id.to_string(), OPERATION_ID);
        let step = STEPS[SINCE - 1];
        for bytes in [&row.command_id, &row.digest, &row.entry] {
            let hex = format!("{:02x?}", &bytes[..]).replace(['[', ']', ',', ' '], "");
            assert!(step.contains(&format!("'\\x{hex}'")), "{hex}");
        }
        assert!(step.contains(&format!("'{}', {},", row.token, row.state)));
        // Written, kept, and compared by both functions.
        assert_eq!(step.matches(OPERATION_ID).count(), 5);
        assert_eq!(step.matches(&format!("ERRCODE = '{LOST}'")).count(), 2);
    }
}

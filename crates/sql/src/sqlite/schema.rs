//! The tables and their migrations.
//!
//! Contents: numbered steps from an empty file to this build's tables, each applied once, in one transaction.
//! Released steps never change. Tables without our prefix belong to the application.

use super::fault::Fault;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use semel_core::store::{Error, Kind, SchemaVersion};

const READING: &str = "looking at the tables of the SQLite store";
const MIGRATING: &str = "creating the tables of the SQLite store";

/// The steps. The version of a schema is the number of applied steps.
pub(super) const STEPS: &[&str] = &[include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// The schema version of the file; an error for foreign tables or a newer build's.
pub(super) fn of(connection: &Connection) -> Result<SchemaVersion, Error> {
    Ok(SchemaVersion { have: version(connection)?, wanted: STEPS.len() })
}

/// Upgrades the file to this build's schema. Does nothing if it is current; of two concurrent processes, one
/// upgrades and the other finds it done.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    // Without a write transaction, so that opening a current store never waits for a writer.
    let wanted = STEPS.len();
    if version(connection)? == wanted {
        return Ok(());
    }
    let failed = |error| Fault::nothing_written(MIGRATING, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let have = version(&transaction)?;
    for (number, step) in (1_i64..).zip(STEPS).skip(have) {
        apply(&transaction, number, step).map_err(failed)?;
    }
    transaction.commit().map_err(|error| Fault::of_commit(&error, true).into())
}

fn apply(transaction: &Transaction<'_>, number: i64, step: &str) -> rusqlite::Result<()> {
    transaction.execute_batch(step)?;
    transaction
        .execute("INSERT OR REPLACE INTO semel_meta (name, value) VALUES ('schema', ?1)", [number])
        .map(drop)
}

/// The number of applied steps; rejects foreign tables and files of a newer build.
fn version(connection: &Connection) -> Result<usize, Error> {
    let ours = tables(connection)?;
    if ours.is_empty() {
        return Ok(0);
    }
    let unfit = |cause: String| Error::new(Kind::Unfit, READING).because(cause);
    let found = if ours.iter().any(|name| name == "semel_meta") { stored_version(connection)? } else { None };
    let Some(number) = found else {
        return Err(unfit(format!(
            "the file has tables called {}, but they were not made by this software: use another file, or \
             rename them",
            ours.join(", ")
        )));
    };
    let wanted = STEPS.len();
    match usize::try_from(number) {
        Ok(have @ 1..) if have <= wanted => Ok(have),
        Ok(newer @ 1..) => Err(unfit(format!(
            "the file has schema {newer} and this build knows schemas up to {wanted}: a newer version has \
             written it; upgrade this one. Nothing was changed"
        ))),
        _ => Err(unfit(format!("schema {number} does not exist: the file was changed by hand"))),
    }
}

fn tables(connection: &Connection) -> Result<Vec<String>, Error> {
    let read = || -> rusqlite::Result<Vec<String>> {
        connection
            .prepare(
                "SELECT name FROM sqlite_schema WHERE name GLOB 'semel_*' AND type IN ('table', 'view')",
            )?
            .query_map([], |row| row.get(0))?
            .collect()
    };
    read().map_err(|error| Fault::nothing_written(READING, &error).into())
}

/// The stored version; `None` if the table has another shape or no version.
fn stored_version(connection: &Connection) -> Result<Option<i64>, Error> {
    let read = connection
        .query_row("SELECT value FROM semel_meta WHERE name = 'schema'", [], |row| row.get(0))
        .optional();
    match read {
        Ok(found) => Ok(found),
        // No such column; not a number.
        Err(rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::SqlInputError { .. }) => Ok(None),
        Err(error) => Err(Fault::nothing_written(READING, &error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row;
    use super::*;
    use semel_core::record::StateName;

    fn memory(sql: &str) -> Connection {
        let connection = Connection::open_in_memory().expect("SQLite works");
        connection.execute_batch(sql).expect("valid SQL");
        connection
    }

    fn refusal(sql: &str) -> String {
        let mut connection = memory(sql);
        let error = migrate(&mut connection).expect_err("refused");
        assert_eq!(error.kind(), Kind::Unfit);
        error.to_string()
    }

    #[test]
    fn the_tables_states_match_the_cores() {
        let mut connection = memory("");
        migrate(&mut connection).expect("migrated");
        let mut numbers = StateName::ALL.map(row::state).to_vec();
        numbers.push(row::MARKER);
        let mut counted =
            connection.prepare("SELECT state FROM semel_counts ORDER BY state").expect("a table");
        let counted = counted.query_map([], |row| row.get::<_, i64>(0)).expect("numbers");
        assert_eq!(counted.collect::<Result<Vec<_>, _>>().expect("numbers"), numbers);
        let unknown = row::state(StateName::Unknown);
        for (index, number) in [("semel_records_unknown", unknown), ("semel_records_markers", row::MARKER)] {
            let sql = format!("SELECT row FROM semel_records INDEXED BY {index} WHERE state = {number}");
            assert!(connection.prepare(&sql).is_ok(), "{index} is not about {number}");
        }
    }

    #[test]
    fn a_second_run_changes_nothing_beside_other_tables() {
        let mut connection = memory("CREATE TABLE payments (id); CREATE TABLE semela (id)");
        migrate(&mut connection).expect("migrated");
        let changes = connection.total_changes();
        migrate(&mut connection).expect("nothing to do");
        assert_eq!(connection.total_changes(), changes);
        assert_eq!(version(&connection).expect("ours"), STEPS.len());
    }

    #[test]
    fn foreign_tables_with_our_names_are_left_alone() {
        assert!(refusal("CREATE TABLE semel_records (id)").contains("called semel_records, but"));
        assert!(refusal("CREATE TABLE semel_meta (id)").contains("called semel_meta, but"));
        assert!(refusal("CREATE TABLE semel_meta (name, value)").contains("called semel_meta, but"));
        let text = "CREATE TABLE semel_meta (name, value); INSERT INTO semel_meta VALUES ('schema', 'one')";
        assert!(refusal(text).contains("called semel_meta, but"));
        assert!(refusal("CREATE VIEW semel_records AS SELECT 1").contains("called semel_records, but"));
    }

    #[test]
    fn a_newer_schema_is_refused_with_advice() {
        let mut connection = memory("");
        migrate(&mut connection).expect("migrated");
        connection.execute("UPDATE semel_meta SET value = value + 1", []).expect("changed");
        let error = migrate(&mut connection).expect_err("refused");
        assert_eq!(error.kind(), Kind::Unfit);
        assert!(error.to_string().contains("upgrade this one"), "{error}");
        connection.execute("UPDATE semel_meta SET value = -1", []).expect("changed");
        assert_eq!(migrate(&mut connection).map_err(|error| error.kind()), Err(Kind::Unfit));
    }
}

//! Checks that the store's own tables are as the steps created them.
//!
//! A changed column, a dropped key or an edited function can break the guarantee without any error. These are
//! refused. Changes that may be harmless, such as a trigger, are hazards.

use super::{READING, STEPS, in_schema};
use crate::postgres::slot::{Slot, owned};
use semel_core::store::{Error, Hazard, Kind, Severity};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::Type;

/// Column, type, and whether it is NOT NULL. Additional columns are harmless if they are nullable.
type Column = (&'static str, &'static str, bool);

const TABLES: &[(&str, &[Column])] = &[
    ("meta", &[("name", "text", true), ("value", "bigint", true)]),
    (
        "records",
        &[
            ("seq", "bigint", true),
            ("version", "bigint", false),
            ("due_at", "bigint", false),
            ("updated_at", "bigint", false),
            ("caller", "bigint", false),
            ("key", "bigint", false),
            ("operation_id", "uuid", true),
            ("token", "uuid", true),
            ("state", "smallint", true),
            ("command_id", "bytea", true),
            ("digest", "bytea", true),
            ("operation", "text", false),
            ("entry", "bytea", true),
        ],
    ),
    ("settings", &[("name", "text", true), ("value", "bytea", true)]),
];
/// The columns that must be unique: otherwise, two claims of one command would both succeed.
const KEYS: &[(&str, &str)] = &[("meta", "name"), ("records", "operation_id"), ("settings", "name")];
const INDEXES: &[&str] = &["records_due", "records_markers", "records_seq", "records_unknown"];

/// Manual changes that must be undone, as texts. Empty if the tables are intact.
pub(in crate::postgres) async fn differences(slot: &Slot, schema: &str) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    columns(slot, schema, &mut found).await?;
    keys(slot, schema, &mut found).await?;
    functions(slot, schema, &mut found).await?;
    Ok(found)
}

/// Refuses tables that were changed manually.
pub(super) async fn check(slot: &Slot, schema: &str) -> Result<(), Error> {
    let found = differences(slot, schema).await?;
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Unfit, READING).because(format!(
        "the tables in the schema `{schema}` were changed by hand: {}. Undo the change; `semel schema print --store URL` \
         prints the statements that created the tables. Nothing was run",
        found.join("; ")
    )))
}

async fn rows(slot: &Slot, schema: &str, sql: &str) -> Result<Vec<tokio_postgres::Row>, Error> {
    slot.read(sql, vec![owned(schema.to_owned(), Type::TEXT)]).await.map_err(|fault| fault.error(READING))
}

async fn columns(slot: &Slot, schema: &str, found: &mut Vec<String>) -> Result<(), Error> {
    let sql = "SELECT c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, \
               a.atthasdef OR a.attidentity <> '' \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
               WHERE n.nspname = $1 AND c.relname IN ('meta', 'records', 'settings') AND c.relkind = 'r'";
    let mut have = BTreeMap::new();
    for row in rows(slot, schema, sql).await? {
        let name: (String, String) = (row.get(0), row.get(1));
        have.insert(name, (row.get::<_, String>(2), row.get::<_, bool>(3), row.get::<_, bool>(4)));
    }
    for (table, columns) in TABLES {
        for (column, wanted, not_null) in *columns {
            let difference = match have.remove(&((*table).to_owned(), (*column).to_owned())) {
                None => "is missing".to_owned(),
                Some((is, ..)) if is != *wanted => format!("is of type {is}, not {wanted}"),
                Some((_, false, _)) if *not_null => "may be null".to_owned(),
                Some((_, true, _)) if !not_null => "must not be null".to_owned(),
                Some((.., false)) if *column == "seq" => "does not number the rows".to_owned(),
                Some(_) => continue,
            };
            found.push(format!("the column {table}.{column} {difference}"));
        }
    }
    let unfilled = have.into_iter().filter(|(_, (_, not_null, has_default))| *not_null && !has_default);
    found.extend(
        unfilled.map(|((table, column), _)| format!("the added column {table}.{column} must not be null")),
    );
    Ok(())
}

async fn keys(slot: &Slot, schema: &str, found: &mut Vec<String>) -> Result<(), Error> {
    let sql = "SELECT c.relname::text, a.attname::text \
               FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] \
               WHERE n.nspname = $1 AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indnkeyatts = 1 \
               AND i.indpred IS NULL AND i.indexprs IS NULL";
    let have: BTreeSet<(String, String)> =
        rows(slot, schema, sql).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    for (table, column) in KEYS {
        if !have.contains(&((*table).to_owned(), (*column).to_owned())) {
            found.push(format!("{table}.{column} is no longer a primary key"));
        }
    }
    Ok(())
}

async fn functions(slot: &Slot, schema: &str, found: &mut Vec<String>) -> Result<(), Error> {
    let sql = "SELECT p.proname::text, p.prosrc, \
               EXISTS (SELECT 1 FROM unnest(p.proconfig) AS setting WHERE setting NOT LIKE 'search_path=%') \
               FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1";
    let mut have = BTreeMap::<String, Vec<(String, bool)>>::new();
    for row in rows(slot, schema, sql).await? {
        have.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
    }
    for (name, source) in sources(schema) {
        let versions = have.get(&name).map(Vec::as_slice).unwrap_or_default();
        let what = match versions.iter().find(|(is, _)| *is == source) {
            Some((_, false)) => continue,
            Some((_, true)) => "has its own settings",
            None if versions.is_empty() => "is missing",
            None => "has another body",
        };
        found.push(format!("the function {name} {what}"));
    }
    Ok(())
}

/// The functions in their newest version: name and body.
fn sources(schema: &str) -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    for step in STEPS {
        let step = in_schema(step, schema);
        let mut rest = &*step;
        while let Some((_, after)) = rest.split_once("FUNCTION ") {
            let Some((signature, body)) = after.split_once("$$") else { break };
            let Some((source, tail)) = body.split_once("$$") else { break };
            let name = signature.split_once('(').map_or("", |(name, _)| name);
            let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
            sources.insert(name.to_owned(), source.to_owned());
            rest = tail;
        }
    }
    sources
}

/// Foreign objects on the tables, and missing indexes: neither is certain to break anything.
pub(in crate::postgres) async fn hazards(slot: &Slot, schema: &str) -> Result<Vec<Hazard>, Error> {
    let sql = "SELECT 'the trigger ' || t.tgname || ' on ' || c.relname \
               FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND NOT t.tgisinternal AND t.tgenabled <> 'D' \
               UNION ALL SELECT 'the rule ' || r.rulename || ' on ' || c.relname \
               FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relkind = 'r' AND r.ev_enabled <> 'D' \
               UNION ALL SELECT 'row security on ' || c.relname \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relrowsecurity ORDER BY 1";
    let hung: Vec<String> = rows(slot, schema, sql).await?.iter().map(|row| row.get(0)).collect();
    let sql = "SELECT c.relname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND i.indisvalid";
    let have: BTreeSet<String> = rows(slot, schema, sql).await?.iter().map(|row| row.get(0)).collect();
    let missing: Vec<&str> = INDEXES.iter().copied().filter(|name| !have.contains(*name)).collect();
    Ok(of_hung(&hung).into_iter().chain(of_missing(&missing)).collect())
}

fn of_hung(hung: &[String]) -> Option<Hazard> {
    (!hung.is_empty()).then(|| Hazard {
        severity: Severity::Danger,
        code: "postgres-trigger",
        what: format!(
            "{} can change, hide or drop what the store writes: a command could run again, or an outcome be lost",
            hung.join(", ")
        ),
        fix: "remove it from the store's tables".to_owned(),
    })
}

fn of_missing(indexes: &[&str]) -> Option<Hazard> {
    (!indexes.is_empty()).then(|| Hazard {
        severity: Severity::Notice,
        code: "postgres-index",
        what: format!(
            "the index {} is missing: listings and sweeps read the whole table",
            indexes.join(", ")
        ),
        fix: "create it again: `semel schema print --store URL` prints the statement".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_steps_is_known_by_name_and_body() {
        let sources = sources("other");
        assert_eq!(
            sources.keys().map(String::as_str).collect::<Vec<_>>(),
            ["now_ms", "read", "set", "write"]
        );
        assert!(sources["write"].contains("INSERT INTO other.records"), "{}", sources["write"]);
        assert!(sources["read"].trim_end().ends_with("END"), "{}", sources["read"]);
    }

    #[test]
    fn every_index_and_key_of_the_steps_is_known() {
        // The first step has everything that the store itself uses.
        let step = STEPS[0];
        assert_eq!(step.matches("CREATE INDEX").count(), INDEXES.len());
        assert_eq!(step.matches("PRIMARY KEY").count(), KEYS.len());
        for name in INDEXES {
            assert!(step.contains(&format!("CREATE INDEX {name} ")), "{name}");
        }
    }
}

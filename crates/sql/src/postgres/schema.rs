//! The tables, and their creation.

pub(super) mod tables;

use super::address::SCHEMA;
use super::fault::{Fault, chain};
use super::session::Session;
use super::slot::{Slot, owned};
use semel_core::store::{Error, Kind, SchemaVersion};
use std::fmt::Write as _;
use tokio_postgres::types::Type;

const READING: &str = "looking at the tables of the PostgreSQL store";
const CREATING: &str = "creating the tables of the PostgreSQL store";
/// The oldest supported server.
const SERVER_VERSION_MIN: i32 = 130_000;
/// The lock that nodes hold while they create the tables. The number is arbitrary.
const MIGRATION_LOCK: i64 = 0x5e3e_1000;

/// The steps. A schema's number is how many of them were applied. A released step is never changed.
pub(super) const STEPS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];

/// A statement for the default schema, rewritten for the store's schema.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    if schema == SCHEMA { sql.to_owned() } else { sql.replace("semel.", &format!("{schema}.")) }
}

/// All statements for an empty database, for `psql`. The schema is created only if it is missing, so that a
/// role without that right can use an existing one.
pub(super) fn script(schema: &str) -> String {
    let mut script = format!(
        "BEGIN;\n\n\
         -- The schema, unless it is there. Creating one takes the right CREATE on the database.\n\
         DO $$ BEGIN\n    \
             IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{schema}') THEN\n        \
                 CREATE SCHEMA {schema};\n    \
             END IF;\n\
         END $$;\n"
    );
    for (number, step) in (1..).zip(STEPS) {
        // Writing to a string does not fail.
        let _ = write!(
            script,
            "\n-- schema {number}\n{}\n\
             INSERT INTO {schema}.meta (name, value) VALUES ('schema', {number})\n    \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value;\n",
            in_schema(step, schema).trim_end()
        );
    }
    script.push_str("\nCOMMIT;\n");
    script
}

/// The schema of the database; an error if the tables are foreign, or of a newer build.
pub(super) async fn of(slot: &Slot, schema: &str) -> Result<SchemaVersion, Error> {
    Ok(SchemaVersion { have: version(slot, schema).await?, wanted: STEPS.len() })
}

/// Brings the database to the schema of this build, and refuses tables that were changed by hand. Does
/// nothing if it is up to date; if two nodes try at once, one does it and the other finds it done.
pub(super) async fn migrate(slot: &Slot, schema: &str, user: &str) -> Result<(), Error> {
    check_server(slot).await?;
    let have = version(slot, schema).await?;
    if have == STEPS.len() {
        return tables::check(slot, schema).await;
    }
    let session = slot.session().await?;
    let applied = apply(&session, schema).await;
    if applied.is_err() {
        // Its transaction is still open.
        slot.discard(&session);
    }
    match applied {
        Ok(()) => {}
        Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) => {
            return Err(Error::new(Kind::Unfit, CREATING).because(format!(
                "the role `{user}` may not create them: {}. Run `semel schema apply --store URL` once as a role that may, \
                 and grant `{user}` the use of the schema `{schema}`",
                chain(&error)
            )));
        }
        Err(error) => return Err(Fault::of_write(&error).error(CREATING)),
    }
    let have = version(slot, schema).await?;
    if have == STEPS.len() {
        return tables::check(slot, schema).await;
    }
    Err(Error::new(Kind::Unfit, CREATING).because(format!("schema {have} was found afterwards")))
}

/// All steps in one transaction. The lock ends with it.
async fn apply(session: &Session, schema: &str) -> Result<(), tokio_postgres::Error> {
    session.execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    session.query("SELECT pg_catalog.pg_advisory_xact_lock($1)", &[(&MIGRATION_LOCK, Type::INT8)]).await?;
    let exists = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
    if session.query(exists, &[(&schema, Type::TEXT)]).await?.is_empty() {
        session.execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    // Read again: another node may have finished while this one waited.
    let has_meta = "SELECT pg_catalog.to_regclass($1) IS NOT NULL";
    let found = session.query(has_meta, &[(&format!("{schema}.meta"), Type::TEXT)]).await?;
    let mut have = 0;
    if found.first().is_some_and(|row| row.get(0)) {
        let sql = format!("SELECT value FROM {schema}.meta WHERE name = 'schema'");
        let stored = session.query(&sql, &[]).await?;
        have = stored.first().and_then(|row| usize::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0);
    }
    for (number, step) in (1_i64..).zip(STEPS).skip(have) {
        session.execute(&in_schema(step, schema)).await?;
        let sql = format!(
            "INSERT INTO {schema}.meta (name, value) VALUES ('schema', $1) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        session.query(&sql, &[(&number, Type::INT8)]).await?;
    }
    session.execute("COMMIT").await
}

async fn check_server(slot: &Slot) -> Result<(), Error> {
    let sql = "SELECT current_setting('server_version_num')::int, current_setting('server_version')";
    let rows = slot.read(sql, Vec::new()).await.map_err(|fault| fault.error(READING))?;
    let unfit = |cause: String| Error::new(Kind::Unfit, READING).because(cause);
    let row = rows.first().ok_or_else(|| unfit("the server did not say which version it is".to_owned()))?;
    let (number, name): (i32, String) = (row.get(0), row.get(1));
    if number >= SERVER_VERSION_MIN {
        return Ok(());
    }
    Err(unfit(format!(
        "the server is PostgreSQL {name}; the store needs {} or newer",
        SERVER_VERSION_MIN / 10_000
    )))
}

/// How many steps were applied; refuses foreign tables, and those of a newer build.
async fn version(slot: &Slot, schema: &str) -> Result<usize, Error> {
    let looking = |fault: Fault| fault.error(READING);
    let unfit = |cause: String| Error::new(Kind::Unfit, READING).because(cause);
    let sql = "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relname IN ('meta', 'records', 'settings')";
    let tables = slot.read(sql, vec![owned(schema.to_owned(), Type::TEXT)]).await.map_err(looking)?;
    let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
    if tables.is_empty() {
        return Ok(0);
    }
    let foreign = || {
        unfit(format!(
            "the schema `{schema}` has tables called {}, but they were not made by this software: name another schema with \
             schema=NAME in the store's URL",
            tables.join(", ")
        ))
    };
    let sql = format!("SELECT value FROM {schema}.meta WHERE name = 'schema'");
    let stored = match slot.read(&sql, Vec::new()).await {
        Ok(rows) => rows,
        Err(fault) if fault.kind == Kind::Unfit && !tables.iter().any(|name| name == "meta") => {
            return Err(foreign());
        }
        Err(fault) => return Err(looking(fault)),
    };
    let number: i64 = match stored.first().map(|row| row.try_get(0)) {
        Some(Ok(number)) => number,
        _ => return Err(foreign()),
    };
    let wanted = STEPS.len();
    match usize::try_from(number) {
        Ok(have @ 1..) if have <= wanted => Ok(have),
        Ok(newer @ 1..) => Err(unfit(format!(
            "the database has schema {newer} and this build knows schemas up to {wanted}: a newer version has written it; \
             upgrade this one. Nothing was changed"
        ))),
        _ => {
            Err(unfit(format!("schema {number} does not exist: the table {schema}.meta was changed by hand")))
        }
    }
}

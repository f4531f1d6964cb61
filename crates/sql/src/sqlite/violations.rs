//! Whether a deferred foreign key is violated now, in the middle of a transaction.
//!
//! SQLite counts violations, but shows the count only by `sqlite3_db_status`, which has no safe interface.
//! The count also affects its work: when a row stops referring to its parent, SQLite looks for that parent
//! only while something is violated. So a row of a temporary table is made to refer to its parent again, and
//! the number of steps shows whether there is a violation.

use rusqlite::{Connection, Statement, StatementStatus};

const TABLES: &str = "CREATE TEMP TABLE semel_parents (id INTEGER PRIMARY KEY); \
     CREATE TEMP TABLE semel_children \
         (parent INTEGER REFERENCES semel_parents (id) DEFERRABLE INITIALLY DEFERRED); \
     INSERT INTO semel_parents VALUES (1); \
     INSERT INTO semel_children VALUES (1)";

pub(super) struct Violations<'c> {
    probe: Statement<'c>,
    /// How many steps the probe takes without a violation.
    steps: i32,
}

impl<'c> Violations<'c> {
    /// On a connection without an open transaction, so that nothing is violated.
    pub(super) fn on(connection: &'c Connection) -> rusqlite::Result<Self> {
        connection.execute_batch(TABLES)?;
        let mut probe = connection.prepare("UPDATE temp.semel_children SET parent = 1")?;
        let steps = steps(&mut probe)?;
        Ok(Self { probe, steps })
    }

    /// Whether anything is violated.
    pub(super) fn has_any(&mut self) -> rusqlite::Result<bool> {
        // A statement that SQLite had to prepare again, because a table was created or changed, takes more
        // steps; the next time it does not.
        Ok(steps(&mut self.probe)? > self.steps && steps(&mut self.probe)? > self.steps)
    }
}

fn steps(probe: &mut Statement<'_>) -> rusqlite::Result<i32> {
    probe.execute([])?;
    Ok(probe.reset_status(StatementStatus::VmStep))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "CREATE TABLE customers (name TEXT PRIMARY KEY); \
         CREATE TABLE addresses (customer TEXT REFERENCES customers DEFERRABLE INITIALLY DEFERRED); \
         CREATE TABLE orders (customer TEXT REFERENCES customers)";

    #[test]
    fn a_violation_is_seen_from_its_statement_until_it_is_repaired() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(SHOP).expect("tables");
        let mut violations = Violations::on(&connection).expect("a probe");
        let run = |sql: &str| connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut after = |sql: &str, expected: bool| {
            run(sql);
            assert_eq!(violations.has_any().expect("asked"), expected, "after {sql}");
            assert_eq!(violations.has_any().expect("asked"), expected, "asked again after {sql}");
        };
        after("BEGIN IMMEDIATE", false);
        after("INSERT INTO customers VALUES ('ada'); INSERT INTO addresses VALUES ('ada')", false);
        after("CREATE TABLE more (id); INSERT INTO more VALUES (1)", false);
        after("SAVEPOINT a; INSERT INTO addresses VALUES ('nobody'), ('nobody')", true);
        after("CREATE INDEX by_customer ON addresses (customer)", true);
        after("DELETE FROM addresses WHERE rowid = (SELECT max(rowid) FROM addresses)", true);
        after("INSERT INTO customers VALUES ('nobody')", false);
        after("DELETE FROM customers", true);
        after("ROLLBACK TO a", false);
        after("RELEASE a; SAVEPOINT a; DELETE FROM customers", true);
        after("ROLLBACK TO a; RELEASE a; COMMIT", false);
        assert!(
            connection.execute_batch("INSERT INTO orders VALUES ('nobody')").is_err(),
            "foreign keys are on"
        );
        after("BEGIN; INSERT INTO addresses VALUES ('nobody')", true);
        assert!(connection.execute_batch("COMMIT").is_err(), "the probe has counted nothing off");
        after("ROLLBACK", false);
    }
}

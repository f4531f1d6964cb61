//! The tables of a store.

use crate::database::Database;
use crate::world::{Scratch, semel};

#[test]
fn the_printed_schema_creates_the_tables() {
    let printed = semel(&["schema", "print", "--store", "sqlite:not-there.db"]).exits(0).out;
    assert!(printed.starts_with("-- schema 1\n"), "{printed}");
    let made = rusqlite::Connection::open_in_memory().expect("SQLite works");
    made.execute_batch(&printed).expect("valid SQL");
    let count: i64 = made
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'semel_records'", [], |row| row.get(0))
        .expect("a count");
    assert_eq!(count, 1);
    let number: i64 = made
        .query_row("SELECT value FROM semel_meta WHERE name = 'schema'", [], |row| row.get(0))
        .expect("a number");
    assert_eq!(number, 2, "a store that is made so is known as one");
    assert!(!std::path::Path::new("not-there.db").exists());
    semel(&["schema", "print", "--store", "memory:"]).exits(2);
}

#[test]
fn a_store_is_brought_to_its_tables_once() {
    let scratch = Scratch::new();
    let apply = || semel(&["schema", "apply", "--store", &scratch.store()]);
    let store = scratch.store();
    assert_eq!(apply().exits(0).out, format!("{store}: created the tables of schema 2\n"));
    assert_eq!(apply().exits(0).out, format!("{store} has schema 2 already: nothing to do\n"));
    semel(&["doctor", "--store", &store]).exits(0);

    let scratch = Scratch::new();
    let own = rusqlite::Connection::open(scratch.file()).expect("a file");
    own.execute_batch("CREATE TABLE payments (id); INSERT INTO payments VALUES (7)").expect("a table");
    drop(own);
    let told = semel(&["schema", "apply", "--store", &scratch.store()]).exits(0).out;
    assert!(told.ends_with("created the tables of schema 2\n"), "{told}");
    let own = rusqlite::Connection::open(scratch.file()).expect("a file");
    let paid: i64 = own.query_row("SELECT id FROM payments", [], |row| row.get(0)).expect("kept");
    assert_eq!(paid, 7);
}

#[test]
fn a_newer_schema_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    semel(&["schema", "apply", "--store", &scratch.store()]).exits(0);
    let raw = rusqlite::Connection::open(scratch.file()).expect("a file");
    raw.execute("UPDATE semel_meta SET value = 99 WHERE name = 'schema'", []).expect("changed");
    let refused = semel(&["schema", "apply", "--store", &scratch.store()]).exits(1);
    assert!(refused.err.contains("left as it is") && refused.err.contains("schema 99"), "{refused:?}");
    let still: i64 = raw
        .query_row("SELECT value FROM semel_meta WHERE name = 'schema'", [], |row| row.get(0))
        .expect("a number");
    assert_eq!(still, 99);
}

/// What is printed is all that an operator has to run: a role that may create a schema, one that was given an empty one, and then
/// nothing is left to do.
#[test]
fn the_printed_schema_can_be_piped_into_psql() {
    let Some(database) = Database::start("cli-schema") else { return };
    let print = |store: &str| semel(&["schema", "print", "--store", store]).exits(0).out;
    let apply = |store: &str| semel(&["schema", "apply", "--store", store]);
    let store = database.store();
    let ran = database.psql("semel", &print(&store)).exits(0);
    assert!(!ran.err.contains("ERROR"), "{ran:?}");
    assert_eq!(apply(&store).exits(0).out, format!("{store} has schema 3 already: nothing to do\n"));

    // Another schema of the same database, which its role may use and not create.
    database.server.sql("CREATE ROLE guest LOGIN; CREATE SCHEMA payments AUTHORIZATION guest");
    let guest = format!("{}?schema=payments", store.replace("semel@", "guest@"));
    assert!(database.psql("guest", "CREATE SCHEMA refunds").code != 0, "it may not create one");
    let ran = database.psql("guest", &print(&guest)).exits(0);
    assert!(!ran.err.contains("ERROR"), "{ran:?}");
    assert_eq!(apply(&guest).exits(0).out, format!("{guest} has schema 3 already: nothing to do\n"));
    let doctored = semel(&["doctor", "--json", "--store", &guest]);
    assert!(!doctored.out.contains("schema-"), "{doctored:?}");
}

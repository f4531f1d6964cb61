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
    assert_eq!(number, 2, "the created store has its schema version");
    assert!(!std::path::Path::new("not-there.db").exists());
    semel(&["schema", "print", "--store", "memory:"]).exits(2);
}

#[test]
fn a_store_is_brought_to_its_tables_once() {
    let scratch = Scratch::new();
    let apply = || semel(&["schema", "apply", "--store", &scratch.store()]);
    let store = scratch.store();
    assert_eq!(apply().exits(0).out, format!("{store} has schema 2 now; it had no tables\n"));
    assert_eq!(apply().exits(0).out, format!("{store} has schema 2 already: nothing to do\n"));
    semel(&["doctor", "--store", &store]).exits(0);

    let scratch = Scratch::new();
    let foreign = rusqlite::Connection::open(scratch.file()).expect("a file");
    foreign.execute_batch("CREATE TABLE payments (id); INSERT INTO payments VALUES (7)").expect("a table");
    drop(foreign);
    let output = semel(&["schema", "apply", "--store", &scratch.store()]).exits(0).out;
    assert!(output.ends_with("has schema 2 now; it had no tables\n"), "{output}");
    let foreign = rusqlite::Connection::open(scratch.file()).expect("a file");
    let paid: i64 = foreign.query_row("SELECT id FROM payments", [], |row| row.get(0)).expect("kept");
    assert_eq!(paid, 7);
}

/// With several commands at once, none can know which of them created the tables.
#[test]
fn of_several_at_once_none_claims_to_have_created_the_tables() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let ran: Vec<_> = std::thread::scope(|scope| {
        let apply = || semel(&["schema", "apply", "--store", &store]).exits(0);
        let running: Vec<_> = (0..3).map(|_| scope.spawn(apply)).collect();
        running.into_iter().map(|one| one.join().expect("it ran")).collect()
    });
    for one in ran {
        assert!(one.out.contains("has schema 2") && !one.out.contains("created"), "{one:?}");
    }
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

/// The printed SQL is complete, for a role that may create a schema and for one that owns an empty schema.
#[test]
fn the_printed_schema_can_be_piped_into_psql() {
    let Some(database) = Database::start("cli-schema") else { return };
    let print = |store: &str| semel(&["schema", "print", "--store", store]).exits(0).out;
    let apply = |store: &str| semel(&["schema", "apply", "--store", store]);
    let store = database.store();
    let ran = database.psql("semel", &print(&store)).exits(0);
    assert!(!ran.err.contains("ERROR"), "{ran:?}");
    assert_eq!(apply(&store).exits(0).out, format!("{store} has schema 4 already: nothing to do\n"));

    // Another schema in the same database. Its role may use it but cannot create one.
    database.server.sql("CREATE ROLE guest LOGIN; CREATE SCHEMA payments AUTHORIZATION guest");
    let guest = format!("{}?schema=payments", store.replace("semel@", "guest@"));
    assert!(database.psql("guest", "CREATE SCHEMA refunds").code != 0, "the role cannot create a schema");
    let ran = database.psql("guest", &print(&guest)).exits(0);
    assert!(!ran.err.contains("ERROR"), "{ran:?}");
    assert_eq!(apply(&guest).exits(0).out, format!("{guest} has schema 4 already: nothing to do\n"));
    let doctored = semel(&["doctor", "--json", "--store", &guest]);
    assert!(!doctored.out.contains("schema-"), "{doctored:?}");
}

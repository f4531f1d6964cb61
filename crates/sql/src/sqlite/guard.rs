//! Restricts the work of a local command on the writing connection.
//!
//! Contents: the authorizer's rules, and the flag that turns them on. They do not apply to the store's own
//! statements. The hook stays installed, because changing it would invalidate all prepared statements.

use crate::clock;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// After how many VM steps to check the time: a fraction of a millisecond.
const STEPS: i32 = 2_000;
/// The tables that the patterns of `semel-tx` write to in the work of a local command, and what the names of
/// their savepoints begin with. A number follows.
const PATTERN_TABLES: [&str; 5] = [
    "semel_inbox_marks",
    "semel_operation_fences",
    "semel_business_references",
    "semel_counter_sums",
    "semel_counter_operations",
];
const PATTERN_SAVEPOINT: &str = "semel_pattern_";
/// No deadline.
const NEVER: u64 = u64::MAX;

/// Whether work runs, and until when.
#[derive(Debug)]
pub(super) struct Guard {
    is_working: AtomicBool,
    /// By [`clock::uptime`].
    ends_at_ms: AtomicU64,
    overran: AtomicBool,
}

impl Guard {
    /// Installs a guard on the connection. It allows everything until [work begins](Self::watch).
    pub(super) fn on(connection: &Connection) -> rusqlite::Result<Arc<Self>> {
        let guard = Arc::new(Self {
            is_working: AtomicBool::new(false),
            ends_at_ms: AtomicU64::new(NEVER),
            overran: AtomicBool::new(false),
        });
        let asked = Arc::clone(&guard);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            if asked.is_working() && is_denied(&context.action) {
                return Authorization::Deny;
            }
            Authorization::Allow
        }))?;
        // However the transaction was ended: nothing becomes durable without the record.
        let committing = Arc::clone(&guard);
        connection.commit_hook(Some(move || committing.is_working()))?;
        let passing = Arc::clone(&guard);
        connection.progress_handler(STEPS, Some(move || passing.is_over()))?;
        Ok(guard)
    }

    /// Enforces the rules until the result is dropped.
    pub(super) fn watch(&self, limit: Duration) -> Watch<'_> {
        let ends_at = clock::uptime().saturating_add(limit);
        self.ends_at_ms.store(u64::try_from(ends_at.as_millis()).unwrap_or(NEVER), Ordering::Relaxed);
        self.overran.store(false, Ordering::Relaxed);
        self.is_working.store(true, Ordering::Relaxed);
        Watch(self)
    }

    /// Whether the last work was interrupted.
    pub(super) fn has_interrupted(&self) -> bool {
        self.overran.load(Ordering::Relaxed)
    }

    fn is_working(&self) -> bool {
        self.is_working.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        let ends_at_ms = self.ends_at_ms.load(Ordering::Relaxed);
        let is_over = ends_at_ms != NEVER && clock::uptime().as_millis() >= u128::from(ends_at_ms);
        if is_over {
            self.overran.store(true, Ordering::Relaxed);
        }
        is_over
    }
}

/// While this exists, the rules apply.
pub(super) struct Watch<'a>(&'a Guard);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.is_working.store(false, Ordering::Relaxed);
        self.0.ends_at_ms.store(NEVER, Ordering::Relaxed);
    }
}

/// Statements that would end the shared transaction, reach another file, change the connection for later
/// users, or touch the store's own tables.
fn is_denied(action: &AuthAction<'_>) -> bool {
    match action {
        // The patterns' savepoints are inside the work's own, so the work can still be undone.
        AuthAction::Savepoint { savepoint_name, .. } => !savepoint_name.starts_with(PATTERN_SAVEPOINT),
        AuthAction::Transaction { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. } => true,
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => is_ours(table_name) && !is_of_patterns(table_name),
        AuthAction::CreateTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateIndex { table_name, .. }
        | AuthAction::DropIndex { table_name, .. }
        | AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::DropTrigger { table_name, .. } => is_ours(table_name),
        _ => false,
    }
}

/// Their rows belong to the application, in the transaction of its work.
fn is_of_patterns(table: &str) -> bool {
    PATTERN_TABLES.iter().any(|name| table.eq_ignore_ascii_case(name))
}

/// Names of tables are compared without case.
fn is_ours(table: &str) -> bool {
    table.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("semel_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_work_cannot_commit_or_change_the_stores_tables() {
        let connection = Connection::open_in_memory().expect("a database");
        connection
            .execute_batch("CREATE TABLE orders (id); CREATE TABLE semel_records (id)")
            .expect("two tables");
        let guard = Guard::on(&connection).expect("a guard");
        connection
            .execute_batch("BEGIN; SAVEPOINT a; INSERT INTO semel_records VALUES (1); COMMIT")
            .expect("free");
        let watch = guard.watch(Duration::from_mins(1));
        for denied in [
            "BEGIN",
            "BEGIN IMMEDIATE",
            "COMMIT",
            "END",
            "ROLLBACK",
            "SAVEPOINT a",
            "RELEASE a",
            "ROLLBACK TO a",
            "ATTACH ':memory:' AS other",
            "DETACH other",
            "PRAGMA synchronous = OFF",
            "PRAGMA foreign_keys",
            "CREATE TEMP TABLE t (id)",
            "INSERT INTO Semel_Records VALUES (2)",
            "UPDATE semel_records SET id = 2",
            "DELETE FROM semel_records",
            "DROP TABLE semel_records",
            "ALTER TABLE semel_records ADD COLUMN b",
            "CREATE TRIGGER t AFTER INSERT ON semel_records BEGIN SELECT 1; END",
            // Allowed in itself, but it must not be committed.
            "INSERT INTO orders VALUES (1)",
        ] {
            assert!(connection.execute_batch(denied).is_err(), "{denied}");
        }
        drop(watch);
        let count = |table: &str| -> i64 {
            connection
                .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
                .expect("read")
        };
        assert_eq!((count("orders"), count("semel_records")), (0, 1));
        connection.execute_batch("INSERT INTO orders VALUES (1)").expect("free again");
    }

    #[test]
    fn work_may_use_the_patterns_but_not_their_tables() {
        let connection = Connection::open_in_memory().expect("a database");
        for table in PATTERN_TABLES {
            connection.execute_batch(&format!("CREATE TABLE {table} (id)")).expect("a table");
        }
        let guard = Guard::on(&connection).expect("a guard");
        connection.execute_batch("BEGIN; SAVEPOINT semel_work").expect("free");
        let watch = guard.watch(Duration::from_mins(1));
        for table in PATTERN_TABLES {
            let writes =
                format!("INSERT INTO {table} VALUES (1); UPDATE {table} SET id = 2; DELETE FROM {table}");
            connection.execute_batch(&writes).unwrap_or_else(|error| panic!("{table}: {error}"));
            for denied in [format!("DROP TABLE {table}"), format!("ALTER TABLE {table} ADD COLUMN b")] {
                assert!(connection.execute_batch(&denied).is_err(), "{denied}");
            }
        }
        connection
            .execute_batch("SAVEPOINT semel_pattern_7; ROLLBACK TO semel_pattern_7; RELEASE semel_pattern_7")
            .expect("the patterns' own savepoint");
        for denied in [
            "RELEASE semel_work",
            "ROLLBACK TO semel_work",
            "SAVEPOINT semel_patterns",
            "SAVEPOINT semel_pattern",
        ] {
            assert!(connection.execute_batch(denied).is_err(), "{denied}");
        }
        drop(watch);
        connection.execute_batch("RELEASE semel_work; COMMIT").expect("free again");
    }

    #[test]
    fn statements_are_interrupted_only_while_the_limit_is_set() {
        let connection = Connection::open_in_memory().expect("a database");
        let guard = Guard::on(&connection).expect("a guard");
        let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT max(i) FROM n";
        let run = || connection.query_row(long, [], |row| row.get::<_, i64>(0));
        let watch = guard.watch(Duration::ZERO);
        let interrupted = run().expect_err("no time at all");
        assert_eq!(interrupted.sqlite_error_code(), Some(rusqlite::ErrorCode::OperationInterrupted));
        assert!(guard.has_interrupted());
        drop(watch);
        assert_eq!(run().expect("no observer"), 200_000);
        drop(guard.watch(Duration::from_mins(1)));
        assert!(!guard.has_interrupted());
    }
}

//! What an error of the server or of the connection leaves open.

use semel_core::store::{Error, Kind};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What came of a statement that failed.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    cause: String,
    /// What may be done about it where nothing was written.
    pub(super) remedy: Remedy,
}

/// What the writer does with a batch that failed and wrote nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It concerns all of the batch, or nobody knows whom: everybody is told.
    Report,
    /// It may concern one write only: the others are tried without it.
    Split,
    /// Two transactions were in each other's way: trying again may do.
    Repeat,
    /// A row is locked by another session.
    WaitForLock,
}

impl Fault {
    pub(super) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), remedy: Remedy::Report }
    }

    /// Of a statement that writes, once it may have reached the server.
    ///
    /// Only an `ERROR` that the server itself sent proves that its transaction was rolled back. A `FATAL` may have come after
    /// the commit, a pooler's own error says nothing about the server, and a connection that broke says nothing at all.
    pub(super) fn of_write(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) if proves_rollback(db) => Self::of_server(db),
            Some(db) => Self::new(Kind::Ambiguous, described(db)),
            None => Self::new(Kind::Ambiguous, chain(error)),
        }
    }

    /// Of a statement that only reads, or of a connection that was never used.
    pub(super) fn of_read(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) if proves_rollback(db) => Self::of_server(db),
            Some(db) => Self::new(Kind::Unavailable, described(db)),
            None => Self::new(Kind::Unavailable, chain(error)),
        }
    }

    fn of_server(db: &DbError) -> Self {
        let code = db.code();
        let class = code.code().get(..2).unwrap_or_default();
        let (kind, remedy) = if [SqlState::DISK_FULL].contains(code) {
            (Kind::Full, Remedy::Report)
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            (Kind::ReadOnly, Remedy::Report)
        } else if *code == SqlState::LOCK_NOT_AVAILABLE {
            (Kind::Unavailable, Remedy::WaitForLock)
        } else if class == "40" {
            (Kind::Unavailable, Remedy::Repeat)
        } else if *code == SqlState::QUERY_CANCELED || class == "53" {
            (Kind::Unavailable, Remedy::Split)
        } else if class == "57" || class == "55" {
            (Kind::Unavailable, Remedy::Report)
        } else if class == "54" {
            (Kind::TooLarge, Remedy::Split)
        } else if class == "22" || class == "23" || class == "XX" {
            (Kind::Unfit, Remedy::Split)
        } else {
            (Kind::Unfit, Remedy::Report)
        };
        Self { kind, cause: described(db), remedy }
    }

    pub(super) fn error(&self, context: &str) -> Error {
        let error = match self.remedy {
            Remedy::WaitForLock => Error::entry_locked(context),
            _ => Error::new(self.kind, context),
        };
        error.because(self.cause.clone())
    }
}

/// Whether the server says that this statement's transaction is gone. Class 08 is what poolers say; 40003 that nobody knows.
fn proves_rollback(db: &DbError) -> bool {
    let is_error =
        db.parsed_severity().map_or(db.severity() == "ERROR", |severity| severity == Severity::Error);
    is_error
        && !db.code().code().starts_with("08")
        && *db.code() != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// What the server said, with what helps.
fn described(db: &DbError) -> String {
    let code = db.code();
    let mut text = format!("{} (SQLSTATE {})", db.message(), code.code());
    let is_missing = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::DATATYPE_MISMATCH,
    ];
    if is_missing.contains(code) {
        text.push_str(
            "; the tables are missing or were changed by hand: run `semel schema apply --store URL`",
        );
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        text.push_str("; grant the store's role USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables");
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        text.push_str(
            "; a transaction of another session holds a lock on the record or its table: find it in pg_stat_activity by \
             pg_blocking_pids, and end it",
        );
    } else if *code == SqlState::DISK_FULL {
        text.push_str("; free space on the database server");
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        text.push_str("; this server is a standby, or is set to default_transaction_read_only");
    }
    text
}

/// An error with everything behind it. The driver's own text names only its first layer.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause.source();
    }
    text
}

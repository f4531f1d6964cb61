//! Classifies errors of the server and the connection by what they prove about the write.

use super::own_row;
use semel_core::store::{Error, Kind};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The result of a failed statement.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    cause: String,
    /// The remedy, if nothing was written.
    pub(super) remedy: Remedy,
    /// The server accepts no connections yet.
    is_starting: bool,
}

/// How the writer continues with a batch that failed and wrote nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It concerns the whole batch, or an unknown part of it: all callers get the error.
    Report,
    /// It may concern one write only: the others are tried without it.
    Split,
    /// Two transactions conflicted: a retry may succeed.
    Repeat,
    /// A row is locked by another session.
    WaitForLock,
}

impl Fault {
    pub(super) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), remedy: Remedy::Report, is_starting: false }
    }

    /// For a call that got no connection.
    pub(super) fn of_connecting(error: &Error, cause: impl Into<String>) -> Self {
        Self { is_starting: error.is_starting(), ..Self::new(error.kind(), cause) }
    }

    /// For a statement that writes, after it may have reached the server.
    ///
    /// Only an `ERROR` from the server itself proves that its transaction was rolled back. A `FATAL` may
    /// follow the commit, a pooler's own error does not come from the server, and a broken connection proves
    /// nothing.
    pub(super) fn of_write(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) if proves_rollback(db) => Self::of_server(db),
            Some(db) => Self::new(Kind::Ambiguous, described(db)),
            None => Self::new(Kind::Ambiguous, chain(error)),
        }
    }

    /// For a statement that only reads, or a connection that was never used.
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
        let (kind, remedy) = if code.code() == own_row::LOST {
            (Kind::DataLost, Remedy::Report)
        } else if [SqlState::DISK_FULL].contains(code) {
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
        Self { kind, cause: described(db), remedy, is_starting: false }
    }

    pub(super) fn error(&self, context: &str) -> Error {
        let error = match self.remedy {
            Remedy::WaitForLock => Error::entry_locked(context),
            _ if self.is_starting => Error::starting(context),
            _ => Error::new(self.kind, context),
        };
        error.because(self.cause.clone())
    }
}

/// Whether the server reports that this statement's transaction was rolled back. Class 08 comes from poolers;
/// 40003 means that it is unknown.
fn proves_rollback(db: &DbError) -> bool {
    let is_error =
        db.parsed_severity().map_or(db.severity() == "ERROR", |severity| severity == Severity::Error);
    is_error
        && !db.code().code().starts_with("08")
        && *db.code() != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// The server's message, with advice.
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
    if code.code() == own_row::LOST {
        text.push_str("; ");
        text.push_str(own_row::FIX);
    } else if is_missing.contains(code) {
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

/// An error with all its sources. The driver's own text has only the first.
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

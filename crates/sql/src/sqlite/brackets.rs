//! The beginning and the end of a batch's transaction, and the savepoints of application work.
//!
//! The statements are prepared once and kept here, never in the connection's own cache: work on the same
//! connection could find them there and end the transaction.

use rusqlite::{Connection, Statement};

pub(super) struct Brackets<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    roll_back: Statement<'c>,
    mark: Statement<'c>,
    release: Statement<'c>,
    undo: Statement<'c>,
}

impl<'c> Brackets<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            roll_back: connection.prepare("ROLLBACK")?,
            mark: connection.prepare("SAVEPOINT semel_work")?,
            release: connection.prepare("RELEASE semel_work")?,
            undo: connection.prepare("ROLLBACK TO semel_work")?,
        })
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute([]).map(drop)
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute([]).map(drop)
    }

    /// Some errors roll back by themselves. Returns whether the transaction is over.
    pub(super) fn roll_back(&mut self) -> bool {
        self.is_over() || (self.roll_back.execute([]).is_ok() && self.is_over())
    }

    /// Whether no transaction is open.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// From here on everything can be [undone](Self::undo).
    pub(super) fn mark(&mut self) -> rusqlite::Result<()> {
        self.mark.execute([]).map(drop)
    }

    /// Keeps the changes since the mark, as part of the transaction.
    pub(super) fn release(&mut self) -> rusqlite::Result<()> {
        self.release.execute([]).map(drop)
    }

    /// Undoes the changes since the mark, which stays.
    pub(super) fn undo(&mut self) -> rusqlite::Result<()> {
        self.undo.execute([]).map(drop)
    }
}

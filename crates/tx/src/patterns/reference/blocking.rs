//! Business references on a `rusqlite` connection.

use super::{BindStatements, Binding, BusinessReferences, TRIES_MAX};
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::Connection;
use semel_core::id::OperationId;
use sqlx::SqliteConnection;

impl BusinessReferences {
    /// [`bind`](Self::bind) on a `rusqlite` connection with an open transaction: in the work of
    /// [`sqlite::transact`](crate::sqlite::transact).
    ///
    /// ```no_run
    /// # fn example(tx: &rusqlite::Connection, local: semel_tx::Local) -> Result<semel_tx::LocalEnding, semel_tx::BoxError> {
    /// # use semel_tx::sqlite::rusqlite;
    /// use semel::core::outcome::Outcome;
    /// use semel_tx::LocalEnding;
    /// use semel_tx::patterns::{Binding, BusinessReferences};
    ///
    /// // In the work of sqlite::transact:
    /// let references = BusinessReferences::new("acme", "create-payment");
    /// if let Binding::Taken { operation_id } = references.bind_blocking(tx, "invoice-2026-117", local.operation_id)? {
    ///     let body = format!(r#"{{"paidBy":"{operation_id}"}}"#);
    ///     return Ok(LocalEnding::Refused(Outcome::http(409, [("content-type", "application/json")], body)));
    /// }
    /// // … the payment …
    /// # Ok(LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "")))
    /// # }
    /// ```
    pub fn bind_blocking(
        &self,
        connection: &Connection,
        reference: &str,
        operation_id: OperationId,
    ) -> Result<Binding, PatternError> {
        let statements = self.statements::<SqliteConnection>(reference, operation_id)?;
        let savepoint = Savepoint::begin(connection)?;
        let bound = bind(Statements(connection), &statements);
        savepoint.close(bound)
    }
}

fn bind(on: Statements<'_>, statements: &BindStatements) -> Result<Binding, PatternError> {
    for _ in 0..TRIES_MAX {
        if on.run(&statements.insert, &statements.bound)? == 1 {
            return Ok(Binding::Bound);
        }
        if let Some(first) = on.first::<String>(&statements.find, &statements.key_binds)? {
            return Binding::taken_by(&first);
        }
    }
    Err(unsettled())
}

//! Natural keys, versions and states on a `rusqlite` connection.

use super::insert::InsertStatements;
use super::transition::StepStatements;
use super::{
    Bind, CompareAndSet, InsertOrGet, NaturalTable, TRIES_MAX, Transition, TransitionResult, Value, Version,
};
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::{Connection, Row};
use sqlx::SqliteConnection;

impl NaturalTable {
    /// [`insert_or_get`](Self::insert_or_get) on a `rusqlite` connection with an open transaction: in the
    /// work of [`sqlite::transact`](crate::sqlite::transact), or in the application's own transaction. Begin
    /// that with `BEGIN IMMEDIATE`.
    ///
    /// `read` extracts what is needed from the row.
    ///
    /// ```no_run
    /// # fn example(tx: &rusqlite::Connection) -> Result<(), semel_tx::BoxError> {
    /// # use semel_tx::sqlite::rusqlite;
    /// use semel_tx::patterns::{InsertOrGet, NaturalTable};
    ///
    /// let orders = NaturalTable::new("orders", &["customer", "number"]);
    /// let values = [("customer", "c-17".into()), ("number", 42.into()), ("item", "book".into())];
    /// match orders.insert_or_get_blocking(tx, &values, |row| row.get::<_, String>("item"))? {
    ///     InsertOrGet::Inserted(item) => println!("ordered: {item}"),
    ///     InsertOrGet::Existing(item) => println!("ordered before: {item}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert_or_get_blocking<T>(
        &self,
        connection: &Connection,
        values: &[(&str, Value)],
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<InsertOrGet<T>, PatternError> {
        let key = self.key_of(values)?;
        let statements = self.inserting::<SqliteConnection>(values, &key);
        let savepoint = Savepoint::begin(connection)?;
        let row = insert_or_get(Statements(connection), &statements, read);
        savepoint.close(row)
    }

    /// [`upsert`](Self::upsert) on a `rusqlite` connection with an open transaction. `read` extracts what is
    /// needed from the row.
    pub fn upsert_blocking<T>(
        &self,
        connection: &Connection,
        values: &[(&str, Value)],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, PatternError> {
        let (sql, binds) = self.upserting::<SqliteConnection>(values)?;
        let savepoint = Savepoint::begin(connection)?;
        let row = Statements(connection).row(&sql, &binds, read);
        savepoint.close(row.and_then(|row| row.ok_or_else(unsettled)))
    }

    /// [`compare_and_set`](Self::compare_and_set) on a `rusqlite` connection with an open transaction.
    pub fn compare_and_set_blocking(
        &self,
        connection: &Connection,
        key: &[(&str, Value)],
        version: &Version,
        changes: &[(&str, Value)],
    ) -> Result<CompareAndSet, PatternError> {
        let update = self.updating::<SqliteConnection>(key, version, changes);
        let find = self.finding::<SqliteConnection>(key, version, changes);
        let savepoint = Savepoint::begin(connection)?;
        let set = compare_and_set(Statements(connection), version, &update, &find);
        savepoint.close(set)
    }

    /// [`transition`](Self::transition) on a `rusqlite` connection with an open transaction.
    pub fn transition_blocking(
        &self,
        connection: &Connection,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> Result<TransitionResult, PatternError> {
        let statements = self.stepping::<SqliteConnection>(key, transition, changes);
        let savepoint = Savepoint::begin(connection)?;
        let taken = take(Statements(connection), transition, &statements);
        savepoint.close(taken)
    }
}

fn insert_or_get<T>(
    on: Statements<'_>,
    statements: &InsertStatements,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<InsertOrGet<T>, PatternError> {
    for _ in 0..TRIES_MAX {
        if let Some(row) = on.row(&statements.insert, &statements.inserted, &read)? {
            return Ok(InsertOrGet::Inserted(row));
        }
        if let Some(row) = on.row(&statements.find, &statements.key_binds, &read)? {
            return Ok(InsertOrGet::Existing(row));
        }
    }
    Err(unsettled())
}

fn compare_and_set(
    on: Statements<'_>,
    version: &Version,
    (update, changed): &(String, Vec<Bind>),
    (find, key_binds): &(String, Vec<Bind>),
) -> Result<CompareAndSet, PatternError> {
    for _ in 0..TRIES_MAX {
        if on.run(update, changed)? > 0 {
            return Ok(version.applied());
        }
        let found = on.row(find, key_binds, |row| {
            let found = row.get::<_, Option<i64>>(0)?.unwrap_or_default();
            Ok((found, row.get::<_, Option<bool>>(1)? == Some(true)))
        })?;
        let Some((found, is_ours)) = found else { return Ok(CompareAndSet::Missing) };
        if let Some(result) = version.objection(found, is_ours) {
            return Ok(result);
        }
    }
    Err(unsettled())
}

fn take(
    on: Statements<'_>,
    transition: &Transition,
    statements: &StepStatements,
) -> Result<TransitionResult, PatternError> {
    for _ in 0..TRIES_MAX {
        if on.run(&statements.update, &statements.changed)? > 0 {
            return Ok(TransitionResult::Taken);
        }
        let state = on.first::<Option<String>>(&statements.find, &statements.key_binds)?;
        let Some(state) = state else { return Ok(TransitionResult::Missing) };
        if let Some(result) = transition.objection(state.unwrap_or_default()) {
            return Ok(result);
        }
    }
    Err(unsettled())
}

//! Insert, unless it is there.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::{PatternConnection, PatternRow, close, savepoint};
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::value::{Value, placed};

/// What came of [`NaturalTable::insert_or_get`].
#[derive(Debug)]
pub enum InsertOrGet<R> {
    /// The row is new.
    Inserted(R),
    /// A row with that key was there, and is as it was.
    Existing(R),
}

impl NaturalTable {
    /// Inserts a row, or answers with the one that has its key. Of several at once, one inserts, and the others wait for it and get its row.
    ///
    /// `values` has the key's columns and any others. An existing row is not changed: compare it with what was asked for.
    ///
    /// An error leaves the transaction as it was.
    pub async fn insert_or_get<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
    ) -> Result<InsertOrGet<PatternRow<C>>, PatternError> {
        let key = self.key_of(values)?;
        let mut savepoint = savepoint(connection).await?;
        let row = self.insert_or_get_in(&mut *savepoint, values, &key).await;
        close::<C, _>(savepoint, row).await
    }

    async fn insert_or_get_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
        key: &[(&str, Value)],
    ) -> Result<InsertOrGet<PatternRow<C>>, PatternError> {
        let mut binds = Vec::new();
        let insert = format!(
            "{} ON CONFLICT ({}) DO NOTHING RETURNING *",
            self.insert::<C>(&mut binds, values),
            self.key.join(", ")
        );
        let mut key_binds = Vec::new();
        let find = format!("SELECT * FROM {} WHERE {}", self.name, Self::is_at::<C>(&mut key_binds, key));
        for _ in 0..TRIES_MAX {
            let mut rows = connection.rows(insert.clone(), binds.clone()).await.map_err(failed::<C>)?;
            if let Some(row) = rows.pop() {
                return Ok(InsertOrGet::Inserted(row));
            }
            let mut rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            if let Some(row) = rows.pop() {
                return Ok(InsertOrGet::Existing(row));
            }
        }
        Err(unsettled())
    }

    /// Inserts a row, or gives the one that has its key these values. Repeated, it changes nothing more. The last writer wins: where that is
    /// not wanted, use [`compare_and_set`](Self::compare_and_set).
    ///
    /// An error leaves the transaction as it was.
    pub async fn upsert<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
    ) -> Result<PatternRow<C>, PatternError> {
        self.key_of(values)?;
        let mut binds = Vec::new();
        let insert = self.insert::<C>(&mut binds, values);
        let columns = values.iter().map(|(column, _)| quoted(column));
        let changes: Vec<String> = columns.map(|column| format!("{column} = excluded.{column}")).collect();
        let (key, changes) = (self.key.join(", "), changes.join(", "));
        let sql = format!("{insert} ON CONFLICT ({key}) DO UPDATE SET {changes} RETURNING *");
        let mut savepoint = savepoint(connection).await?;
        let rows = savepoint.rows(sql, binds).await.map_err(failed::<C>);
        let row = rows.and_then(|mut rows| {
            rows.pop().ok_or_else(|| PatternError::Database(sqlx::Error::RowNotFound.into()))
        });
        close::<C, _>(savepoint, row).await
    }

    fn insert<C: PatternConnection>(
        &self,
        binds: &mut Vec<crate::patterns::value::Bind>,
        values: &[(&str, Value)],
    ) -> String {
        let columns: Vec<String> = values.iter().map(|(column, _)| quoted(column)).collect();
        let places: Vec<String> = values.iter().map(|(_, value)| placed::<C>(binds, value)).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, columns.join(", "), places.join(", "))
    }

    /// The key's part of the values.
    fn key_of<'v>(&self, values: &[(&'v str, Value)]) -> Result<Vec<(&'v str, Value)>, PatternError> {
        let of = |key: &String| {
            let found = values.iter().find(|(column, value)| quoted(column) == *key && *value != Value::Null);
            found.cloned().ok_or_else(|| {
                PatternError::Invalid(format!("the column {key} of the natural key has no value"))
            })
        };
        self.key.iter().map(of).collect()
    }
}

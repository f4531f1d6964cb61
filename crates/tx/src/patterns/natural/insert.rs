//! Insert or find a row.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::{PatternConnection, PatternRow};
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::transaction::Savepoint;
use crate::patterns::value::{Bind, Value, placeholder};

/// The result of [`NaturalTable::insert_or_get`].
#[derive(Debug)]
pub enum InsertOrGet<R> {
    /// The row is new.
    Inserted(R),
    /// A row with that key existed, and is unchanged.
    Existing(R),
}

/// The statements that insert or find a row, and their binds.
pub(super) struct InsertStatements {
    pub(super) insert: String,
    pub(super) find: String,
    /// For `insert`: the values.
    pub(super) inserted: Vec<Bind>,
    /// For `find`: the key.
    pub(super) key_binds: Vec<Bind>,
}

impl NaturalTable {
    /// Inserts a row, or returns the one with its key. If several callers try at once, one inserts, and the
    /// others wait for it and get its row.
    ///
    /// `values` has the key's columns and any others. An existing row is not changed: compare it with your
    /// values.
    ///
    /// An error leaves the transaction as it was.
    pub async fn insert_or_get<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
    ) -> Result<InsertOrGet<PatternRow<C>>, PatternError> {
        let key = self.key_of(values)?;
        let mut savepoint = Savepoint::begin(connection).await?;
        let row = self.insert_or_get_in(&mut *savepoint, values, &key).await;
        savepoint.close(row).await
    }

    async fn insert_or_get_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
        key: &[(&str, Value)],
    ) -> Result<InsertOrGet<PatternRow<C>>, PatternError> {
        let InsertStatements { insert, find, inserted, key_binds } = self.inserting::<C>(values, key);
        for _ in 0..TRIES_MAX {
            let mut rows = connection.rows(insert.clone(), inserted.clone()).await.map_err(failed::<C>)?;
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

    /// The statements that insert a row unless its key exists, and find the existing one.
    pub(super) fn inserting<C: Dialect>(
        &self,
        values: &[(&str, Value)],
        key: &[(&str, Value)],
    ) -> InsertStatements {
        let (mut inserted, mut key_binds) = (Vec::new(), Vec::new());
        let insert = self.insert::<C>(&mut inserted, values);
        let at = Self::is_at::<C>(&mut key_binds, key);
        InsertStatements {
            insert: format!("{insert} ON CONFLICT ({}) DO NOTHING RETURNING *", self.key.join(", ")),
            find: format!("SELECT * FROM {} WHERE {at}", self.name),
            inserted,
            key_binds,
        }
    }

    /// Inserts a row, or sets these values in the one with its key. A repetition changes nothing more. The
    /// last writer wins: if you do not want that, use [`compare_and_set`](Self::compare_and_set).
    ///
    /// An error leaves the transaction as it was.
    pub async fn upsert<C: PatternConnection>(
        &self,
        connection: &mut C,
        values: &[(&str, Value)],
    ) -> Result<PatternRow<C>, PatternError> {
        let (sql, binds) = self.upserting::<C>(values)?;
        let mut savepoint = Savepoint::begin(connection).await?;
        let rows = savepoint.rows(sql, binds).await.map_err(failed::<C>);
        let row = rows.and_then(|mut rows| {
            rows.pop().ok_or_else(|| PatternError::Database(sqlx::Error::RowNotFound.into()))
        });
        savepoint.close(row).await
    }

    /// The statement that inserts a row, or sets these values in the one with its key, and returns it.
    pub(super) fn upserting<C: Dialect>(
        &self,
        values: &[(&str, Value)],
    ) -> Result<(String, Vec<Bind>), PatternError> {
        self.key_of(values)?;
        let mut binds = Vec::new();
        let insert = self.insert::<C>(&mut binds, values);
        let columns = values.iter().map(|(column, _)| quoted(column));
        let changes: Vec<String> = columns.map(|column| format!("{column} = excluded.{column}")).collect();
        let (key, changes) = (self.key.join(", "), changes.join(", "));
        Ok((format!("{insert} ON CONFLICT ({key}) DO UPDATE SET {changes} RETURNING *"), binds))
    }

    fn insert<C: Dialect>(&self, binds: &mut Vec<Bind>, values: &[(&str, Value)]) -> String {
        let columns: Vec<String> = values.iter().map(|(column, _)| quoted(column)).collect();
        let placeholders: Vec<String> =
            values.iter().map(|(_, value)| placeholder::<C>(binds, value)).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, columns.join(", "), placeholders.join(", "))
    }

    /// The key's part of the values.
    pub(super) fn key_of<'v>(
        &self,
        values: &[(&'v str, Value)],
    ) -> Result<Vec<(&'v str, Value)>, PatternError> {
        let of = |key: &String| {
            let found = values.iter().find(|(column, value)| quoted(column) == *key && *value != Value::Null);
            found.cloned().ok_or_else(|| {
                PatternError::Invalid(format!("the column {key} of the natural key has no value"))
            })
        };
        self.key.iter().map(of).collect()
    }
}

//! A change that is made only to the version that was read.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::transaction::Savepoint;
use crate::patterns::value::{Bind, Value, placeholder};

/// The version that a change applies to.
#[derive(Debug, Clone)]
pub struct Version {
    column: String,
    expected: i64,
    by: Option<(String, Value)>,
}

impl Version {
    /// The column with the version, and the version that was read. Every change increments it.
    pub fn of(column: &str, expected: i64) -> Self {
        Self { column: quoted(column), expected, by: None }
    }

    /// A column with the operation ID of the last change. With it, a repeated change is recognised for
    /// certain. Without it, a row counts as changed by this call if it is exactly one version further and has
    /// these values.
    #[must_use]
    pub fn by(self, column: &str, operation_id: impl Into<Value>) -> Self {
        Self { by: Some((quoted(column), operation_id.into())), ..self }
    }

    pub(super) fn applied(&self) -> CompareAndSet {
        CompareAndSet::Applied { version: self.expected + 1 }
    }

    /// Why a row with that version was not changed; `None` if it has the expected version again.
    pub(super) fn objection(&self, found: i64, is_ours: bool) -> Option<CompareAndSet> {
        let is_next = found == self.expected + 1;
        match (found == self.expected, is_ours && (is_next || self.by.is_some())) {
            (true, _) => None,
            (false, true) => Some(CompareAndSet::AlreadyApplied { version: found }),
            (false, false) => Some(CompareAndSet::Changed { version: found }),
        }
    }
}

/// The result of [`NaturalTable::compare_and_set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the change may not have been made"]
pub enum CompareAndSet {
    /// The change was made.
    Applied {
        /// The row's new version.
        version: i64,
    },
    /// The same change was already made: a retry. Nothing was changed.
    AlreadyApplied {
        /// The row's version.
        version: i64,
    },
    /// The row was changed by another caller since it was read. Nothing was changed: read it again and
    /// decide.
    Changed {
        /// The row's version.
        version: i64,
    },
    /// There is no such row.
    Missing,
}

impl NaturalTable {
    /// Changes the row under `key`, if it still has the expected version.
    ///
    /// An error leaves the transaction as it was.
    pub async fn compare_and_set<C: PatternConnection>(
        &self,
        connection: &mut C,
        key: &[(&str, Value)],
        version: &Version,
        changes: &[(&str, Value)],
    ) -> Result<CompareAndSet, PatternError> {
        let mut savepoint = Savepoint::begin(connection).await?;
        let set = self.compare_and_set_in(&mut *savepoint, key, version, changes).await;
        savepoint.close(set).await
    }

    async fn compare_and_set_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        key: &[(&str, Value)],
        version: &Version,
        changes: &[(&str, Value)],
    ) -> Result<CompareAndSet, PatternError> {
        let (update, changed) = self.updating::<C>(key, version, changes);
        let (find, key_binds) = self.finding::<C>(key, version, changes);
        for _ in 0..TRIES_MAX {
            if connection.run(update.clone(), changed.clone()).await.map_err(failed::<C>)? > 0 {
                return Ok(version.applied());
            }
            let rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { return Ok(CompareAndSet::Missing) };
            let found = C::integer(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            let is_ours = C::boolean(row, 1).map_err(failed::<C>)? == Some(true);
            if let Some(result) = version.objection(found, is_ours) {
                return Ok(result);
            }
        }
        Err(unsettled())
    }

    /// The statement that changes the row if it has the expected version.
    pub(super) fn updating<C: Dialect>(
        &self,
        key: &[(&str, Value)],
        version: &Version,
        changes: &[(&str, Value)],
    ) -> (String, Vec<Bind>) {
        let mut binds = Vec::new();
        let mut assigned = Self::assigned::<C>(&mut binds, changes);
        let column = &version.column;
        assigned.push(format!("{column} = {column} + 1"));
        if let Some((by, operation_id)) = &version.by {
            assigned.push(format!("{by} = {}", placeholder::<C>(&mut binds, operation_id)));
        }
        let at = Self::is_at::<C>(&mut binds, key);
        binds.push(Bind::from(version.expected));
        let (assigned, last) = (assigned.join(", "), binds.len());
        (format!("UPDATE {} SET {assigned} WHERE {at} AND {column} = ${last}", self.name), binds)
    }

    /// The query for the row's version, and whether this change seems to be the last one.
    pub(super) fn finding<C: Dialect>(
        &self,
        key: &[(&str, Value)],
        version: &Version,
        changes: &[(&str, Value)],
    ) -> (String, Vec<Bind>) {
        let mut binds = Vec::new();
        let mut same = |column: &str, value: &Value| {
            format!("{column} IS NOT DISTINCT FROM {}", placeholder::<C>(&mut binds, value))
        };
        let ours = match &version.by {
            Some((by, operation_id)) => same(by, operation_id),
            None => changes
                .iter()
                .map(|(column, value)| same(&quoted(column), value))
                .collect::<Vec<_>>()
                .join(" AND "),
        };
        let ours = if ours.is_empty() { "TRUE".to_owned() } else { ours };
        let at = Self::is_at::<C>(&mut binds, key);
        let sql = format!("SELECT CAST({} AS bigint), {ours} FROM {} WHERE {at}", version.column, self.name);
        (sql, binds)
    }
}

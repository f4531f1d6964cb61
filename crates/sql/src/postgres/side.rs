//! The rows of the tables that applications use beside the records, read and added as text.

use super::doubts::WITH_WARNINGS;
use super::fault::Remedy;
use super::reader::proved;
use super::scan::{Scanner, get};
use super::slot::{OwnedParameter, owned};
use semel_core::store::{Error, Kind, SideColumn, SideRow, SideTable};
use tokio_postgres::types::Type;

const ADDING: &str = "adding rows to a table in PostgreSQL";
const TRIES_MAX: u32 = 5;

/// A column's value as text.
fn read(column: SideColumn) -> String {
    let name = column.name();
    match column {
        SideColumn::Text(_) => name.to_owned(),
        SideColumn::Number(_) => format!("{name}::pg_catalog.text"),
        SideColumn::Flag(_) => format!("{name}::pg_catalog.int4::pg_catalog.text"),
        SideColumn::Bytes(_) => format!("pg_catalog.encode({name}, 'hex')"),
    }
}

/// The column's value of a text.
fn value(column: SideColumn, text: &str) -> String {
    match column {
        SideColumn::Text(_) => text.to_owned(),
        SideColumn::Number(_) => format!("{text}::pg_catalog.int8"),
        SideColumn::Flag(_) => format!("{text}::pg_catalog.int4::pg_catalog.bool"),
        SideColumn::Bytes(_) => format!("pg_catalog.decode({text}, 'hex')"),
    }
}

fn list(columns: &[SideColumn], of: impl Fn((usize, &SideColumn)) -> String) -> String {
    columns.iter().enumerate().map(of).collect::<Vec<_>>().join(", ")
}

fn name((_, column): (usize, &SideColumn)) -> String {
    column.name().to_owned()
}

impl Scanner {
    pub(super) async fn side_rows(
        &self,
        table: &SideTable,
        after: Option<&SideRow>,
        limit: usize,
    ) -> Result<Vec<SideRow>, Error> {
        let key = list(table.key(), name);
        let parameter = |(number, column): (usize, &SideColumn)| value(*column, &format!("${}", number + 1));
        let beyond = match after {
            Some(_) => format!("WHERE ({key}) > ({})", list(table.key(), parameter)),
            None => String::new(),
        };
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), side.* FROM (SELECT 1) AS one LEFT JOIN (SELECT {}, \
             pg_catalog.row_number() OVER (ORDER BY {key}) AS place FROM {}.{} {beyond} ORDER BY {key} LIMIT {limit}) \
             AS side ON true ORDER BY side.place",
            list(table.columns, |(number, column)| format!("{} AS text_{number}", read(*column))),
            self.schema,
            table.name
        );
        let key = after.into_iter().flatten().take(table.key_columns);
        let parameters = key.map(|text| owned(text.clone(), Type::TEXT)).collect();
        let rows = proved(&self.slot, &sql, parameters, self.any_server).await?;
        let texts = |row| (1..=table.columns.len()).map(|at| get(row, at)).collect();
        let rows = rows.iter().map(texts).collect::<Result<Vec<SideRow>, Error>>()?;
        // A single row without a key means that there are no more.
        Ok(rows.into_iter().filter(|row| row[0].is_some()).collect())
    }

    /// Adds the rows whose keys are absent. Returns how many of the rows are in the table now.
    pub(super) async fn add_side_rows(&self, table: &SideTable, rows: &[SideRow]) -> Result<u64, Error> {
        let target = format!("{}.{}", self.schema, table.name);
        let texts = list(table.columns, |(number, _)| format!("text_{number}"));
        let arrays = list(table.columns, |(number, _)| format!("pg_catalog.unnest(${})", number + 1));
        let given = format!("ROWS FROM ({arrays}) AS given ({texts})");
        let of_text = |(number, column): (usize, &SideColumn)| value(*column, &format!("text_{number}"));
        let insert = format!(
            "WITH added AS (INSERT INTO {target} ({}) SELECT {} FROM {given} ON CONFLICT DO NOTHING RETURNING 1) \
             SELECT pg_catalog.count(*), {WITH_WARNINGS} FROM added",
            list(table.columns, name),
            list(table.columns, of_text)
        );
        let is_same = |(number, column): (usize, &SideColumn)| {
            format!("kept.{} IS NOT DISTINCT FROM {}", column.name(), of_text((number, column)))
        };
        // The key by `=`, so that its index is used.
        let is_at = |(number, column): (usize, &SideColumn)| {
            format!("kept.{} = {}", column.name(), of_text((number, column)))
        };
        let same: Vec<_> = table.columns.iter().enumerate().map(is_same).collect();
        let at: Vec<_> = table.key().iter().enumerate().map(is_at).collect();
        let count = format!(
            "SELECT pg_catalog.count(*) FROM {given} JOIN {target} AS kept ON {} WHERE {}",
            at.join(" AND "),
            same.join(" AND ")
        );
        self.write_side(&insert, table, rows).await?;
        let counted = self.write_side(&count, table, rows).await?;
        let unexpected = || Error::new(Kind::Ambiguous, ADDING).because("the answer cannot be read");
        get::<i64>(counted.first().ok_or_else(unexpected)?, 0).map(i64::unsigned_abs)
    }

    async fn write_side(
        &self,
        sql: &str,
        table: &SideTable,
        rows: &[SideRow],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let array = |at: usize| -> OwnedParameter {
            owned(rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>(), Type::TEXT_ARRAY)
        };
        let mut tries = 0;
        loop {
            match self.slot.write(sql, (0..table.columns.len()).map(array).collect()).await {
                Ok(rows) => return Ok(rows),
                // Added or not: rows that are there already are left alone.
                Err(fault) if fault.remedy == Remedy::Repeat && tries < TRIES_MAX => tries += 1,
                Err(fault) => return Err(fault.error(ADDING)),
            }
        }
    }
}

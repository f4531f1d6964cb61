//! The rows of the tables that applications use beside the records, read and added as text.

use super::reader::{Reader, failed};
use rusqlite::{Connection, params_from_iter};
use semel_core::store::{Error, SideColumn, SideRow, SideTable};

/// A column's value as text.
fn read(column: SideColumn) -> String {
    let name = column.name();
    match column {
        SideColumn::Text(_) => name.to_owned(),
        SideColumn::Number(_) | SideColumn::Flag(_) => format!("CAST({name} AS TEXT)"),
        // hex() makes a NULL an empty text.
        SideColumn::Bytes(_) => format!("iif({name} IS NULL, NULL, hex({name}))"),
    }
}

/// The value of the parameter with this number, counted from 0.
fn value((number, column): (usize, &SideColumn)) -> String {
    let parameter = format!("?{}", number + 1);
    match column {
        SideColumn::Text(_) => parameter,
        SideColumn::Number(_) | SideColumn::Flag(_) => format!("CAST({parameter} AS INTEGER)"),
        SideColumn::Bytes(_) => format!("unhex({parameter})"),
    }
}

fn list(columns: &[SideColumn], of: impl Fn((usize, &SideColumn)) -> String) -> String {
    columns.iter().enumerate().map(of).collect::<Vec<_>>().join(", ")
}

fn name((_, column): (usize, &SideColumn)) -> String {
    column.name().to_owned()
}

impl Reader {
    pub(super) fn side_rows(
        &self,
        table: &SideTable,
        after: Option<&SideRow>,
        limit: usize,
    ) -> Result<Vec<SideRow>, Error> {
        let key = list(table.key(), name);
        let beyond = match after {
            Some(_) => format!("WHERE ({key}) > ({})", list(table.key(), value)),
            None => String::new(),
        };
        let sql = format!(
            "SELECT {} FROM semel_{} {beyond} ORDER BY {key} LIMIT {limit}",
            list(table.columns, |(_, column)| read(*column)),
            table.name
        );
        let parameters = after.into_iter().flatten().take(table.key_columns);
        let read = || -> rusqlite::Result<Vec<SideRow>> {
            let mut statement = self.connection.prepare(&sql)?;
            let row = |row: &rusqlite::Row<'_>| (0..table.columns.len()).map(|at| row.get(at)).collect();
            statement.query_map(params_from_iter(parameters), row)?.collect()
        };
        read().map_err(|error| failed(&error))
    }
}

/// Adds the rows whose keys are absent. Returns how many of the rows are in the table now.
pub(super) fn add(connection: &Connection, table: &SideTable, rows: &[SideRow]) -> rusqlite::Result<u64> {
    let values = list(table.columns, value);
    let target = format!("semel_{}", table.name);
    let mut insert = connection.prepare(&format!(
        "INSERT INTO {target} ({}) VALUES ({values}) ON CONFLICT DO NOTHING",
        list(table.columns, name)
    ))?;
    let is_same =
        |(number, column): (usize, &SideColumn)| format!("{} IS {}", column.name(), value((number, column)));
    let same: Vec<_> = table.columns.iter().enumerate().map(is_same).collect();
    let mut count =
        connection.prepare(&format!("SELECT count(*) FROM {target} WHERE {}", same.join(" AND ")))?;
    let mut present = 0;
    for row in rows {
        insert.execute(params_from_iter(row))?;
        present += count.query_row(params_from_iter(row), |row| row.get::<_, i64>(0))?.unsigned_abs();
    }
    Ok(present)
}

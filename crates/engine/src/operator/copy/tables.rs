//! The tables that applications use beside the records.

use super::Error;
use semel_core::store::{SIDE_TABLES, SideRow, SideTable, Store};

/// How many rows are read and added at a time.
const PAGE: usize = 200;

/// A table that applications use beside the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// Its name, without a store's prefix or schema.
    pub name: &'static str,
    /// How many rows it has in the source.
    pub rows: u64,
    /// Whether they are in the target now. If not, the target has no such tables.
    pub is_copied: bool,
}

/// Copies all of them, and compares every row of the source; more rows in the target are not noticed. Empty if the source has no such tables.
pub(super) async fn copy(source: &dyn Store, target: &dyn Store) -> Result<Vec<TableReport>, Error> {
    let mut reports = Vec::new();
    for table in &SIDE_TABLES {
        let there = target.side_rows(table, None, 1).await.map_err(Error::Target)?;
        let is_copied = there.is_some();
        let (mut rows, mut after) = (0, None);
        loop {
            let page = source.side_rows(table, after.as_ref(), PAGE).await.map_err(Error::Source)?;
            let Some(page) = page else { return Ok(Vec::new()) };
            rows += page.len() as u64;
            after = page.last().cloned();
            if is_copied {
                add(target, table, page).await?;
            }
            if after.is_none() {
                break;
            }
        }
        reports.push(TableReport { name: table.name, rows, is_copied });
    }
    Ok(reports)
}

async fn add(target: &dyn Store, table: &'static SideTable, rows: Vec<SideRow>) -> Result<(), Error> {
    let count = rows.len() as u64;
    if count > 0 && target.add_side_rows(table, rows).await.map_err(Error::Target)? != count {
        return Err(Error::TableDiffers(table.name));
    }
    Ok(())
}

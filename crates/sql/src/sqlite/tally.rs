//! Counts records by operation and state, a part at a time.
//!
//! Contents: counts by the columns beside the entries. Entries are not read, and a part reads no more rows
//! than requested.

use super::reader::{Reader, failed};
use super::row;
use super::scan::Mark;
use rusqlite::types::ValueRef;
use semel_core::record::StateName;
use semel_core::store::{Cursor, Error, Tallied, Tally};

/// How many rows one part reads, however many are requested.
const ROWS_MAX: usize = 10_000;

macro_rules! counted {
    ($rest:literal) => {
        concat!(
            "SELECT operation, state, count(*), max(row) FROM (SELECT row, operation, state FROM semel_records ",
            $rest,
            " AND row > ?1 ORDER BY row LIMIT ?2) GROUP BY operation, state"
        )
    };
}

const ALL: &str = counted!("WHERE 1");
const UNKNOWN: &str = counted!("INDEXED BY semel_records_unknown WHERE state = 5");

impl Reader {
    pub(super) fn tally(
        &self,
        state: Option<StateName>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Tally, Error> {
        let mark = Mark::read(after)?;
        let sql = if state == Some(StateName::Unknown) { UNKNOWN } else { ALL };
        let limit = i64::try_from(limit.clamp(1, ROWS_MAX)).unwrap_or(i64::MAX);
        let now = self.now();
        let count = || -> rusqlite::Result<Tally> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([mark.row, limit])?;
            let (mut counts, mut looked_at, mut last) = (Vec::new(), 0, mark.row);
            while let Some(found) = rows.next()? {
                let count: i64 = found.get(2)?;
                looked_at += count;
                last = last.max(found.get(3)?);
                // Moved markers, and unknown values of the column.
                let Some(named) = row::number(found.get_ref(1)?).and_then(row::state_name) else { continue };
                if state.is_some_and(|filter| filter != named) {
                    continue;
                }
                let operation = match found.get_ref(0)? {
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => String::new(),
                };
                counts.push(Tallied { operation, state: named, count: count.unsigned_abs() });
            }
            let next = (looked_at >= limit).then(|| Mark { at: 0, row: last }.cursor());
            Ok(Tally { now, counts, next })
        };
        count().map_err(|error| failed(&error))
    }
}

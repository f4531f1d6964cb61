//! Lists rows, one page at a time.
//!
//! Contents: the orders of listings, and the limits of one page. The cost of a page does not grow with the
//! store, and unreadable entries are included.

use super::reader::{Reader, failed};
use super::row::{self, MARKER};
use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Row, ToSql};
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::record::StateName;
use semel_core::store::{Callers, Cursor, Error, Filter, Item, Kind, OperationIds, PAGE_BYTES_MAX, Page};

/// How many rows one page reads, matching or not.
const READS_MAX: usize = 10_000;

/// Where a page ended: a sort key and a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: i64,
    pub(super) row: i64,
}

impl Mark {
    const START: Self = Self { at: i64::MIN, row: i64::MIN };
    /// Newest first.
    const END: Self = Self { at: i64::MAX, row: i64::MAX };

    pub(super) fn cursor(self) -> Cursor {
        Cursor::from_bytes([self.at.to_be_bytes(), self.row.to_be_bytes()].concat())
    }

    /// Cursors come back from clients, and can be anything.
    pub(super) fn read(cursor: Option<&Cursor>) -> Result<Self, Error> {
        let Some(cursor) = cursor else { return Ok(Self::START) };
        let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
        match cursor.as_bytes().split_at_checked(8) {
            Some((at, row)) => number(at).zip(number(row)).map(|(at, row)| Self { at, row }),
            None => None,
        }
        .ok_or_else(|| Error::new(Kind::Unfit, "continuing from a cursor that this store did not make"))
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT row, command_id, entry, state, due_at, updated_at, caller, key, operation FROM semel_records ", $rest)
    };
}

/// Each in the order of age, the oldest first, and then the newest first.
const ALL: [&str; 2] = [select!("WHERE row > ?1 ORDER BY row"), select!("WHERE row < ?1 ORDER BY row DESC")];
const UNKNOWN: [&str; 2] = [
    select!("INDEXED BY semel_records_unknown WHERE state = 5 AND row > ?1 ORDER BY row"),
    select!("INDEXED BY semel_records_unknown WHERE state = 5 AND row < ?1 ORDER BY row DESC"),
];
const BY_IDS: [&str; 2] = [
    select!("WHERE operation_id >= ?2 AND operation_id <= ?3 AND row > ?1 ORDER BY row"),
    select!("WHERE operation_id >= ?2 AND operation_id <= ?3 AND row < ?1 ORDER BY row DESC"),
];
const MARKERS: &str = select!("INDEXED BY semel_records_markers WHERE state = 7 AND row > ?1 ORDER BY row");
const DUE: &str = select!(
    "INDEXED BY semel_records_due_at WHERE due_at IS NOT NULL AND due_at <= ?1 AND (due_at, row) > (?2, ?3) \
     ORDER BY due_at, row"
);

impl Reader {
    pub(super) fn page(&self, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let mark = match after {
            None if filter.newest_first => Mark::END,
            after => Mark::read(after)?,
        };
        let order = usize::from(filter.newest_first);
        let look = |row: &Row<'_>| may_be_wanted(filter, row);
        let matches = |item: &Item| filter.shows(item);
        if let Some(OperationIds { first, last }) = &filter.ids {
            let parameters: [&dyn ToSql; 3] = [&mark.row, first.as_bytes(), last.as_bytes()];
            return self.walk(BY_IDS[order], &parameters, after, limit, look, matches);
        }
        let sql = if filter.state == Some(StateName::Unknown) { UNKNOWN } else { ALL };
        self.walk(sql[order], &[&mark.row], after, limit, look, matches)
    }

    pub(super) fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let mark = Mark::read(after)?;
        let now = self.now();
        let due = |item: &Item| {
            item.record().is_none_or(|record| record.due_at().is_some_and(|due_at| due_at <= now))
        };
        let mut page =
            self.walk(DUE, &[&row::time(now), &mark.at, &mark.row], after, limit, |_| Ok(true), due)?;
        page.now = now;
        Ok(page)
    }

    pub(super) fn markers(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let mark = Mark::read(after)?;
        self.walk(MARKERS, &[&mark.row], after, limit, |_| Ok(true), |_| true)
    }

    /// `look` checks the columns first, so that a large entry is not read for nothing.
    fn walk(
        &self,
        sql: &str,
        parameters: &[&dyn ToSql],
        after: Option<&Cursor>,
        limit: usize,
        look: impl Fn(&Row<'_>) -> rusqlite::Result<bool>,
        matches: impl Fn(&Item) -> bool,
    ) -> Result<Page, Error> {
        let now = self.now();
        let walk = || -> rusqlite::Result<Page> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(parameters)?;
            let (mut items, mut looked_at, mut bytes_held) = (Vec::new(), 0, 0);
            let mut last = after.cloned();
            while let Some(row) = rows.next()? {
                if items.len() >= limit || looked_at >= READS_MAX || bytes_held >= PAGE_BYTES_MAX {
                    return Ok(Page { now, items, next: last });
                }
                looked_at += 1;
                let at = row::number(row.get_ref(4)?).unwrap_or(0);
                last = Some(Mark { at, row: row.get(0)? }.cursor());
                let is_sound = is_sound(row)?;
                if is_sound && !look(row)? {
                    continue;
                }
                let bytes = row::entry_bytes(row.get_ref(2)?);
                bytes_held += bytes.len();
                let mut item = item(row.get_ref(1)?, &bytes);
                if !is_sound {
                    item.entry =
                        Err(codec::Error::Damaged { at: 0, what: "a column beside it is of another type" });
                }
                if matches(&item) {
                    items.push(item);
                }
            }
            Ok(Page { now, items, next: None })
        };
        walk().map_err(|error| failed(&error))
    }
}

/// A row with an invalid ID is listed too: as damaged, under an ID that no other entry has.
fn item(id: ValueRef<'_>, bytes: &Bytes) -> Item {
    match row::command_id(id) {
        Some(id) => Item { id, entry: codec::decode(bytes) },
        None => Item {
            id: CommandId::from_bytes([0; 32]),
            entry: Err(codec::Error::Damaged { at: 0, what: "the id beside it is not 32 bytes" }),
        },
    }
}

/// Whether the columns have the right types. SQLite allows any type in any column.
fn is_sound(row: &Row<'_>) -> rusqlite::Result<bool> {
    let mut sound = matches!(row.get_ref(3)?, ValueRef::Integer(_));
    for column in 4..=7 {
        sound &= matches!(row.get_ref(column)?, ValueRef::Integer(_) | ValueRef::Null);
    }
    Ok(sound)
}

/// Whether the row may match the filter, judged by its columns.
fn may_be_wanted(filter: &Filter, row: &Row<'_>) -> rusqlite::Result<bool> {
    let is = |column: usize, expected: Option<i64>| -> rusqlite::Result<bool> {
        Ok(expected.is_none() || row.get::<_, Option<i64>>(column)? == expected)
    };
    let updated_at = row.get::<_, Option<i64>>(5)?.unwrap_or(0);
    let operation = row.get_ref(8)?;
    Ok(row.get::<_, i64>(3)? != MARKER
        && is(3, filter.state.map(row::state))?
        && is_of(filter.caller.as_ref(), row.get(6)?)
        && is(7, filter.key.as_ref().map(row::key))?
        && filter.operation.as_ref().is_none_or(|expected| operation == ValueRef::Text(expected.as_bytes()))
        && filter.updated_from.is_none_or(|from| updated_at >= row::time(from))
        // Not "less than": the last value of the column represents all later moments.
        && filter.updated_before.is_none_or(|before| updated_at <= row::time(before)))
}

/// Whether a record may belong to these callers. The column has the first bytes of a hash as a signed number;
/// the requested prefix includes the sign, so the lowest and highest values have the same sign.
fn is_of(callers: Option<&Callers>, column: Option<i64>) -> bool {
    let Some(Callers { first, last }) = callers else { return true };
    column.is_some_and(|caller| (row::caller(first)..=row::caller(last)).contains(&caller))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_a_round_trip_to_a_client() {
        for mark in [Mark::START, Mark { at: 5, row: -7 }, Mark { at: i64::MAX, row: i64::MAX }] {
            assert_eq!(Mark::read(Some(&mark.cursor())).expect("ours"), mark);
        }
        assert_eq!(Mark::read(None).expect("the start"), Mark::START);
    }

    #[test]
    fn a_forged_cursor_is_refused() {
        for length in [0, 1, 8, 15, 17, 40] {
            let refused = Mark::read(Some(&Cursor::from_bytes(vec![1; length])));
            assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Unfit), "{length}");
        }
    }
}

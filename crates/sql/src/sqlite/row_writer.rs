//! Applies writes to an open transaction.
//!
//! Contents: the prepared statements of the writer, and each write as a condition and a change. Conditions
//! are decided by the entry's own bytes; an unreadable entry meets none.

use super::fault::Fault;
use super::recent::{Recent, RememberedRow};
use super::row::{self, Row};
use super::side;
use super::write::{EntryLocation, FoundEntry, Work, WriteAnswer};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use semel_core::codec;
use semel_core::machine::{Expect, Found};
use semel_core::record::{Entry, Record};
use semel_core::store::{Change, Kind, Setting};
use semel_core::time::Time;
use std::collections::BTreeMap;

/// Every state, and the marker.
const STATES: usize = 8;
/// Longer entries that refuse an insert are left to the reader threads: a batch of retries would hold all of
/// them at once.
const LARGE_BYTES: i64 = 16 * 1024;

pub(super) struct RowWriter<'c> {
    connection: &'c Connection,
    select: Statement<'c>,
    select_length: Statement<'c>,
    insert: Statement<'c>,
    update: Statement<'c>,
    update_known: Statement<'c>,
    replace: Statement<'c>,
    delete: Statement<'c>,
    count_of_state: Statement<'c>,
    count_of_caller: Statement<'c>,
    /// The change of the number of rows in each state since the transaction began.
    deltas: [i64; STATES],
    /// The same for the records of each caller.
    caller_deltas: BTreeMap<i64, i64>,
    recent: Recent,
}

/// A stored row.
struct Stored {
    row: i64,
    state: i64,
    bytes: Bytes,
}

impl<'c> RowWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            select: connection
                .prepare("SELECT row, command_id, state, entry FROM semel_records WHERE operation_id = ?1")?,
            select_length: connection
                .prepare("SELECT length(entry) FROM semel_records WHERE operation_id = ?1")?,
            insert: connection.prepare(
                "INSERT INTO semel_records \
                 (operation_id, command_id, state, due_at, updated_at, caller, key, operation, entry) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (operation_id) DO NOTHING",
            )?,
            update: connection.prepare(
                "UPDATE semel_records SET state = ?2, due_at = ?3, updated_at = ?4, entry = ?5 WHERE row = ?1",
            )?,
            update_known: connection.prepare(
                "UPDATE semel_records SET state = ?2, due_at = ?3, updated_at = ?4, entry = ?5 \
                 WHERE row = ?1 AND command_id = ?6 AND state = ?7 AND entry = ?8",
            )?,
            replace: connection.prepare(
                "UPDATE semel_records SET state = ?2, due_at = ?3, updated_at = ?4, entry = ?5, caller = ?6, \
                 key = ?7, operation = ?8 WHERE row = ?1",
            )?,
            delete: connection.prepare("DELETE FROM semel_records WHERE row = ?1")?,
            count_of_state: connection.prepare("UPDATE semel_counts SET rows = rows + ?2 WHERE state = ?1")?,
            count_of_caller: connection.prepare(
                "INSERT INTO semel_callers (caller, rows) VALUES (?1, ?2) \
                 ON CONFLICT (caller) DO UPDATE SET rows = rows + excluded.rows",
            )?,
            deltas: [0; STATES],
            caller_deltas: BTreeMap::new(),
            recent: Recent::default(),
        })
    }

    /// A transaction begins: nothing is carried over from one that was rolled back.
    pub(super) fn begin(&mut self) {
        self.deltas = [0; STATES];
        self.caller_deltas.clear();
        self.recent.begin();
    }

    /// Right before the transaction is committed.
    pub(super) fn finish(&mut self) -> rusqlite::Result<()> {
        for (state, delta) in (0_i64..).zip(self.deltas) {
            if delta != 0 {
                self.count_of_state.execute([state, delta])?;
            }
        }
        // In the order of the table: neighbours share a page.
        for (caller, delta) in &self.caller_deltas {
            self.count_of_caller.execute([caller, delta])?;
        }
        Ok(())
    }

    /// The transaction is committed.
    pub(super) fn committed(&mut self) {
        self.recent.committed();
    }

    /// Applies one write. After an error, the transaction has to be rolled back.
    pub(super) fn apply(&mut self, work: &Work, now: Time) -> rusqlite::Result<WriteAnswer> {
        match work {
            Work::Change { location, change } => self.write(*location, change, now),
            Work::Set { name, expect, next } => self.set(name, expect.as_deref(), next.as_deref()),
            Work::AddSideRows { table, rows } => {
                side::add(self.connection, table, rows).map(WriteAnswer::SideRows)
            }
            Work::Inspect => self.inspect(),
            Work::Local(_) => unreachable!("work is run by the writer"),
        }
    }

    /// Whether the expected entry is there; a fault if that cannot be decided.
    pub(super) fn meets(
        &mut self,
        location: EntryLocation,
        expect: &Expect,
    ) -> rusqlite::Result<Result<bool, Fault>> {
        let stored = match self.stored_at(location)? {
            Ok(stored) => stored,
            Err(fault) => return Ok(Err(fault)),
        };
        let entry = stored.map(|stored| codec::decode(&stored.bytes));
        Ok(Ok(expect.met_by(entry.as_ref().map_or(Found::Nothing, codec::found))))
    }

    pub(super) fn write(
        &mut self,
        location: EntryLocation,
        change: &Change<Row>,
        now: Time,
    ) -> rusqlite::Result<WriteAnswer> {
        match change {
            Change::Insert(row) => self.insert(location, row, now),
            Change::InsertMarker => self.insert(location, &Row::marker(), now),
            Change::Replace(unchanged, next) => {
                if let Some(known) = self.recent.take(&location.id, unchanged)
                    && self.replace_known(location, &known, next)?
                {
                    return Ok(WriteAnswer::Done(now));
                }
                self.change(location, change, now)
            }
            Change::Remove(_) | Change::RemoveMarker => self.change(location, change, now),
        }
    }

    fn insert(&mut self, location: EntryLocation, row: &Row, now: Time) -> rusqlite::Result<WriteAnswer> {
        let Row { state, due_at, updated_at, caller, key, operation, entry, unchanged: _ } = row;
        let inserted = self.insert.execute(params![
            location.operation_id.as_bytes(),
            location.id.as_bytes(),
            state,
            due_at,
            updated_at,
            caller,
            key,
            operation.as_deref(),
            entry,
        ])?;
        if inserted == 1 {
            self.count(*state, 1);
            self.count_caller(*caller, 1);
            self.recent.note(location.id, self.connection.last_insert_rowid(), row);
            return Ok(WriteAnswer::Done(now));
        }
        let length = self.select_length.query_row([location.operation_id.as_bytes()], |row| row.get(0));
        if length.optional()?.is_some_and(|bytes: i64| bytes > LARGE_BYTES) {
            return Ok(WriteAnswer::Refused(now, FoundEntry::Large));
        }
        Ok(match self.stored_at(location)? {
            Ok(Some(stored)) => WriteAnswer::Refused(now, FoundEntry::Bytes(stored.bytes)),
            // Within one transaction, the entry that refused the insert cannot disappear.
            Ok(None) => WriteAnswer::Failed(Fault::new(
                Kind::Unfit,
                "inserting into the SQLite store",
                "an index is damaged",
            )),
            Err(fault) => WriteAnswer::Failed(fault),
        })
    }

    /// Changes or removes the stored entry, if it is the one that the change expects.
    fn change(
        &mut self,
        location: EntryLocation,
        change: &Change<Row>,
        now: Time,
    ) -> rusqlite::Result<WriteAnswer> {
        let stored = match self.stored_at(location)? {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(WriteAnswer::Refused(now, FoundEntry::Nothing)),
            Err(fault) => return Ok(WriteAnswer::Failed(fault)),
        };
        let entry = codec::decode(&stored.bytes);
        if !change.is_met_by(codec::found(&entry)) {
            return Ok(WriteAnswer::Refused(now, FoundEntry::Read(entry)));
        }
        match (change.record(), &entry) {
            (Some(next), Ok(Entry::Record(record))) => {
                self.replace_stored(&stored, record, next)?;
                self.recent.note(location.id, stored.row, next);
            }
            // An unreadable entry meets no condition, and a marker none of a swap.
            (Some(_), _) => return Ok(WriteAnswer::Refused(now, FoundEntry::Read(entry))),
            // A trigger decrements the counts, and removes a caller without records. The records that this
            // transaction has added must be counted first.
            (None, entry) => {
                if let Ok(Entry::Record(record)) = entry {
                    self.settle_caller(row::caller(&record.caller_hash()))?;
                }
                self.delete.execute([stored.row])?;
            }
        }
        Ok(WriteAnswer::Done(now))
    }

    /// Replaces a row that this store wrote by `next`, if all its bytes are unchanged. Returns `false`
    /// without a change otherwise, or if one statement cannot decide it.
    fn replace_known(
        &mut self,
        location: EntryLocation,
        known: &RememberedRow,
        next: &Row,
    ) -> rusqlite::Result<bool> {
        if !next.same_command_as(&known.row) {
            return Ok(false);
        }
        let changed = self.update_known.execute(params![
            known.number,
            next.state,
            next.due_at,
            next.updated_at,
            next.entry,
            location.id.as_bytes(),
            known.row.state,
            known.row.entry,
        ])?;
        if changed == 0 {
            return Ok(false);
        }
        self.count(known.row.state, -1);
        self.count(next.state, 1);
        self.recent.note(location.id, known.number, next);
        Ok(true)
    }

    fn replace_stored(&mut self, stored: &Stored, record: &Record, next: &Row) -> rusqlite::Result<()> {
        let Row { state, due_at, updated_at, caller, key, operation, entry, unchanged: _ } = next;
        if next.same_command(record) {
            self.update.execute(params![stored.row, state, due_at, updated_at, entry])?;
        } else {
            // All three are part of the command's ID, so this does not happen; but a store does not rely on
            // it.
            let operation = operation.as_deref();
            self.replace
                .execute(params![stored.row, state, due_at, updated_at, entry, caller, key, operation])?;
            self.count_caller(Some(row::caller(&record.caller_hash())), -1);
            self.count_caller(*caller, 1);
        }
        self.count(stored.state, -1);
        self.count(*state, 1);
        Ok(())
    }

    fn stored_at(&mut self, location: EntryLocation) -> rusqlite::Result<Result<Option<Stored>, Fault>> {
        let mut rows = self.select.query([location.operation_id.as_bytes()])?;
        let Some(found) = rows.next()? else { return Ok(Ok(None)) };
        if row::command_id(found.get_ref(1)?) != Some(location.id) {
            return Ok(Err(other_command()));
        }
        let bytes = row::entry_bytes(found.get_ref(3)?);
        Ok(Ok(Some(Stored { row: found.get(0)?, state: found.get(2)?, bytes })))
    }

    fn count(&mut self, state: i64, delta: i64) {
        let index = usize::try_from(state).ok();
        if let Some(count) = index.and_then(|index| self.deltas.get_mut(index)) {
            *count += delta;
        }
    }

    fn count_caller(&mut self, caller: Option<i64>, delta: i64) {
        if let Some(caller) = caller {
            *self.caller_deltas.entry(caller).or_default() += delta;
        }
    }

    fn settle_caller(&mut self, caller: i64) -> rusqlite::Result<()> {
        let Some(delta) = self.caller_deltas.remove(&caller) else { return Ok(()) };
        self.count_of_caller.execute([caller, delta]).map(drop)
    }

    fn set(
        &mut self,
        name: &str,
        expect: Option<&[u8]>,
        next: Option<&[u8]>,
    ) -> rusqlite::Result<WriteAnswer> {
        let found: Option<Vec<u8>> = self
            .connection
            .prepare_cached("SELECT value FROM semel_settings WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
            .optional()?;
        if found.as_deref() != expect {
            return Ok(WriteAnswer::Set(Setting::Refused(found.map(Bytes::from))));
        }
        match next {
            Some(value) => self
                .connection
                .prepare_cached("INSERT OR REPLACE INTO semel_settings (name, value) VALUES (?1, ?2)")?
                .execute(params![name, value])?,
            None => self
                .connection
                .prepare_cached("DELETE FROM semel_settings WHERE name = ?1")?
                .execute([name])?,
        };
        Ok(WriteAnswer::Set(Setting::Done))
    }

    fn inspect(&self) -> rusqlite::Result<WriteAnswer> {
        Ok(WriteAnswer::Settings {
            synchronous: self.connection.pragma_query_value(None, "synchronous", |row| row.get(0))?,
            journal_mode: self.connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
        })
    }
}

/// Two commands can share an operation ID only by damage, or a broken hash.
pub(super) fn other_command() -> Fault {
    Fault::new(
        Kind::Unfit,
        "looking up a command in the SQLite store",
        "another command's ID is stored under this operation ID; it was left unchanged. Restore the file from a backup, \
         or find out what the command did and remove the row by hand",
    )
}

//! The threads that read.
//!
//! Contents: each question is answered from a snapshot taken after it was asked, on connections that cannot
//! write. No snapshot is kept between questions.

use super::fault::Fault;
use super::queue::Queue;
use super::row::{self, MARKER};
use super::row_writer::other_command;
use super::write::EntryLocation;
use bytes::Bytes;
use rusqlite::Connection;
use semel_core::codec;
use semel_core::id::OperationId;
use semel_core::store::{Census, Clock, Count, Counted, Error, Item, Kind, Reading};
use semel_core::time::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A question, and where to send the answer.
pub(super) type Question = Box<dyn FnOnce(&Reader) + Send>;

/// A question without an answer: its thread panicked. Nothing was changed.
pub(super) fn lost(_: oneshot::error::RecvError) -> Error {
    Error::new(Kind::Unavailable, READING).because("the thread that was reading has failed")
}

const READING: &str = "reading from the SQLite store";

pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) clock: Arc<dyn Clock>,
}

impl Reader {
    /// Serves until the queue is closed and empty.
    pub(super) fn run(self, queue: &Queue<Question>) {
        while let Some(question) = queue.take() {
            // After a panic, the caller gets no answer; the next question is served normally.
            drop(catch_unwind(AssertUnwindSafe(|| question(&self))));
        }
    }

    /// `ask` as an item for the queue, and the receiver of its answer.
    pub(super) fn question<T: Send + 'static>(
        ask: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> (Question, oneshot::Receiver<Result<T, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(move |reader| drop(reply.send(ask(reader)))), answer)
    }

    /// The store's time. Taken before the snapshot, so that a record is never compared with a time after
    /// which it may have been renewed unseen.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn get(&self, location: EntryLocation) -> Result<(Time, Option<Bytes>), Error> {
        let now = self.now();
        let found = self.stored(location.operation_id)?;
        match found {
            None => Ok((now, None)),
            Some((id, _, bytes)) if id == Some(location.id) => Ok((now, Some(bytes))),
            Some(_) => Err(other_command().error()),
        }
    }

    pub(super) fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), Error> {
        let now = self.now();
        match self.stored(operation_id)? {
            None | Some((_, MARKER, _)) => Ok((now, None)),
            Some((Some(id), _, bytes)) if OperationId::of(&id) == operation_id => {
                Ok((now, Some(Item { id, entry: codec::decode(&bytes) })))
            }
            Some(_) => Err(other_command().error()),
        }
    }

    fn stored(&self, operation_id: OperationId) -> Result<Option<Stored>, Error> {
        let read = || -> rusqlite::Result<_> {
            let mut statement = self.connection.prepare_cached(
                "SELECT command_id, state, entry FROM semel_records WHERE operation_id = ?1",
            )?;
            let mut rows = statement.query([operation_id.as_bytes()])?;
            let Some(found) = rows.next()? else { return Ok(None) };
            let id = row::command_id(found.get_ref(0)?);
            Ok(Some((id, found.get(1)?, row::entry_bytes(found.get_ref(2)?))))
        };
        read().map_err(|error| failed(&error))
    }

    pub(super) fn count(&self, what: Count, at_most: u64) -> Result<Counted, Error> {
        const IN_STATE: &str = "SELECT sum(rows) FROM semel_counts WHERE state = ?1";
        let now = self.now();
        let read = |sql: &str, about: i64| {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row([about], |row| row.get::<_, Option<i64>>(0))
        };
        let count = match what {
            Count::Records => read("SELECT sum(rows) FROM semel_counts WHERE state <> ?1", MARKER),
            Count::State(name) => read(IN_STATE, row::state(name)),
            Count::Markers => read(IN_STATE, MARKER),
            // By the first bytes of the hash: enough for a quota.
            Count::Caller(caller) => {
                read("SELECT sum(rows) FROM semel_callers WHERE caller = ?1", row::caller(&caller))
            }
        };
        let count = count.map_err(|error| failed(&error))?;
        let count = count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Ok(Counted { now, count: count.min(at_most) })
    }

    pub(super) fn census(&self) -> Result<Census, Error> {
        let mut census = Census::empty(self.now());
        let read = || -> rusqlite::Result<Vec<(i64, i64)>> {
            self.connection
                .prepare_cached("SELECT state, sum(rows) FROM semel_counts GROUP BY state")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        };
        for (state, rows) in read().map_err(|error| failed(&error))? {
            if let (Some(state), Ok(rows)) = (row::state_name(state), u64::try_from(rows)) {
                census.add(state, rows);
            }
        }
        Ok(census)
    }

    pub(super) fn settings(&self) -> Result<Vec<(String, Bytes)>, Error> {
        let read = || -> rusqlite::Result<Vec<_>> {
            self.connection
                .prepare_cached("SELECT name, value FROM semel_settings ORDER BY name")?
                .query_map([], |row| Ok((row.get(0)?, Bytes::from(row.get::<_, Vec<u8>>(1)?))))?
                .collect()
        };
        read().map_err(|error| failed(&error))
    }

    /// The damage that SQLite finds in the file, and contradictions between the tables. Reads everything.
    pub(super) fn verify(&self) -> Result<Vec<String>, Error> {
        let lines = |sql: &str| -> rusqlite::Result<Vec<String>> {
            self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        let mut found = match lines("PRAGMA integrity_check") {
            Ok(found) => found,
            // Too damaged to be read completely: that is a finding.
            Err(error) if failed(&error).kind() == Kind::Unfit => vec![error.to_string()],
            Err(error) => return Err(failed(&error)),
        };
        found.retain(|line| line != "ok");
        let miscounted = lines(
            "SELECT format('semel_counts has %d rows in state %d, and there are %d', rows, state, real) FROM \
             (SELECT state, rows, (SELECT count(*) FROM semel_records r WHERE r.state = c.state) AS real \
             FROM semel_counts c) WHERE rows <> real UNION ALL \
             SELECT format('semel_callers has %d rows of caller %d, and there are %d', rows, caller, real) FROM \
             (SELECT caller, rows, coalesce(real, 0) AS real FROM semel_callers LEFT JOIN \
             (SELECT caller, count(*) AS real FROM semel_records GROUP BY caller) USING (caller)) \
             WHERE rows <> real",
        );
        found.extend(miscounted.unwrap_or_else(|error| vec![format!("the rows cannot be counted: {error}")]));
        Ok(found)
    }
}

/// The id in the row, its state, and its bytes.
type Stored = (Option<semel_core::id::CommandId>, i64, Bytes);

pub(super) fn failed(error: &rusqlite::Error) -> Error {
    Fault::nothing_written(READING, error).error()
}

/// Decoded in the task that asked.
pub(super) fn reading((now, bytes): (Time, Option<Bytes>)) -> Reading {
    Reading { now, entry: bytes.map(|bytes| codec::decode(&bytes)) }
}

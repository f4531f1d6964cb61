//! Counts the messages that applications have marked as processed in the store's file.

use super::reader::{Reader, failed};
use semel_core::store::{Error, InboxCensus, InboxMarks};
use semel_core::time::Time;
use std::time::Duration;

/// By SQLite's own clock, which the marks use too.
const SQL: &str = "WITH moment (at_ms) AS (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) \
     SELECT at_ms, consumer_group, topic, count(message_id), min(processed_at), max(processed_at), \
     count(message_id) FILTER (WHERE processed_at < at_ms - ?1) FROM moment LEFT JOIN semel_inbox_marks GROUP BY consumer_group, topic";

impl Reader {
    pub(super) fn inboxes(&self, window: Duration) -> Result<InboxCensus, Error> {
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX / 2);
        let read = || -> rusqlite::Result<InboxCensus> {
            let mut census = InboxCensus::empty(Time::default());
            let mut statement = self.connection.prepare(SQL)?;
            let mut rows = statement.query([window])?;
            while let Some(row) = rows.next()? {
                let number =
                    |at| row.get::<_, Option<i64>>(at).map(|number| number.unwrap_or(0).unsigned_abs());
                let time = |at| number(at).map(Time::from_millis);
                census.now = time(0)?;
                // A single row without a group means that there are no marks.
                if let Some(group) = row.get::<_, Option<String>>(1)? {
                    let (marks, overdue) = (number(3)?, number(6)?);
                    let marks = InboxMarks { marks, overdue, oldest: time(4)?, newest: time(5)? };
                    census.add(group, row.get(2)?, marks);
                }
            }
            Ok(census)
        };
        read().map_err(|error| failed(&error))
    }
}

//! Counts the messages that applications have marked as processed in the store's database.

use super::reader::proved;
use super::scan::{Scanner, get};
use super::slot::owned;
use semel_core::store::{Error, InboxCensus, InboxMarks};
use semel_core::time::Time;
use std::time::Duration;
use tokio_postgres::types::Type;

/// How many marks one statement reads, so that listings and sweeps on this connection are not delayed longer.
const PART: i64 = 10_000;

/// The last mark of a part, in the order of the primary key.
#[derive(Default)]
struct LastCount {
    group: String,
    topic: String,
    message_id: String,
}

impl Scanner {
    /// Reads all marks, a part at a time. Marks written meanwhile may be missing.
    pub(super) async fn inboxes(&self, window: Duration) -> Result<InboxCensus, Error> {
        let mut census = InboxCensus::empty(Time::default());
        let mut last = Some(LastCount::default());
        while let Some(after) = last {
            last = self.some_marks(window, &after, &mut census).await?;
        }
        Ok(census)
    }

    /// Adds the next part. `None` at the end.
    async fn some_marks(
        &self,
        window: Duration,
        after: &LastCount,
        census: &mut InboxCensus,
    ) -> Result<Option<LastCount>, Error> {
        let schema = &self.schema;
        let sql = format!(
            "WITH part AS MATERIALIZED (SELECT consumer_group, topic, message_id, processed_at FROM {schema}.inbox_marks \
             WHERE (consumer_group, topic, message_id) > ($2, $3, $4) ORDER BY consumer_group, topic, message_id LIMIT {PART}), \
             moment AS MATERIALIZED (SELECT {schema}.now_ms() AS at_ms) \
             SELECT pg_catalog.pg_is_in_recovery(), m.at_ms, s.consumer_group, s.topic, s.message_id, s.marks, s.oldest, s.newest, \
             s.overdue FROM moment AS m LEFT JOIN LATERAL (SELECT consumer_group, topic, max(message_id) AS message_id, \
             count(*) AS marks, min(processed_at) AS oldest, max(processed_at) AS newest, \
             count(*) FILTER (WHERE processed_at < m.at_ms - $1) AS overdue FROM part GROUP BY consumer_group, topic) AS s ON true \
             ORDER BY s.consumer_group, s.topic"
        );
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX / 2);
        let parameters = vec![
            owned(window, Type::INT8),
            owned(after.group.clone(), Type::TEXT),
            owned(after.topic.clone(), Type::TEXT),
            owned(after.message_id.clone(), Type::TEXT),
        ];
        let rows = proved(&self.slot, &sql, parameters, self.any_server).await?;
        let (mut last, mut looked) = (None, 0);
        for row in &rows {
            census.now = self.time.at(get(row, 1)?);
            let Some(group) = get::<Option<String>>(row, 2)? else { continue };
            let number = |at| get::<i64>(row, at).map(i64::unsigned_abs);
            let marks = InboxMarks {
                marks: number(5)?,
                overdue: number(8)?,
                oldest: number(6).map(Time::from_millis)?,
                newest: number(7).map(Time::from_millis)?,
            };
            looked += marks.marks;
            let (topic, message_id) = (get::<String>(row, 3)?, get(row, 4)?);
            last = Some(LastCount { group: group.clone(), topic: topic.clone(), message_id });
            census.add(group, topic, marks);
        }
        Ok(last.filter(|_| looked >= PART.unsigned_abs()))
    }
}

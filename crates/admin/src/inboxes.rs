//! What the inboxes of applications contain: the report of the admin address and of `semel inbox stats`.
//!
//! A duplicate writes nothing, so only the consumer that received it can count it.

use semel::archive::rfc3339;
use semel::core::store::InboxCensus;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;
use utoipa::ToSchema;

/// The longest window: a hundred years.
const WINDOW_MAX: Duration = Duration::from_hours(24 * 36_500);

/// The window is longer than marks are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a window must be at most {} seconds (a hundred years)", WINDOW_MAX.as_secs())]
pub struct WindowTooLong;

/// Whether marks can be counted for this window.
pub fn check_window(window: Duration) -> Result<(), WindowTooLong> {
    if window <= WINDOW_MAX { Ok(()) } else { Err(WindowTooLong) }
}

/// The report about inboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxStats {
    /// When it was counted, by the database's clock.
    pub counted_at: String,
    /// After how many seconds a mark is overdue.
    pub window_seconds: u64,
    /// By consumer group and topic.
    pub inboxes: Vec<InboxTopic>,
    /// Marks of groups and topics beyond the first thousand, which are not listed.
    pub other_marks: u64,
}

/// What one consumer group has processed of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Inbox)]
pub struct InboxTopic {
    /// The consumer group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// How many messages are marked as processed.
    pub marks: u64,
    /// How many of these marks are older than the window and wait for a purge.
    pub overdue: u64,
    /// When the oldest of them was processed.
    pub oldest: String,
    /// When the newest of them was processed.
    pub newest: String,
}

impl InboxStats {
    /// The report of a census for `window`.
    pub fn of(census: InboxCensus, window: Duration) -> Self {
        let topic =
            |((group, topic), marks): ((String, String), semel::core::store::InboxMarks)| InboxTopic {
                group,
                topic,
                marks: marks.marks,
                overdue: marks.overdue,
                oldest: rfc3339::text(marks.oldest),
                newest: rfc3339::text(marks.newest),
            };
        Self {
            counted_at: rfc3339::text(census.now),
            window_seconds: window.as_secs(),
            inboxes: census.inboxes.into_iter().map(topic).collect(),
            other_marks: census.other_marks,
        }
    }
}

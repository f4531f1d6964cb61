//! The events of an inbox, for metrics and logs, and counters made of them. They contain no message ID or
//! body, and no result depends on them.

use super::{InboxResult, Message};
use crate::patterns::error::PatternError;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

/// How many groups and topics are counted by name; further ones are counted as `other`.
const TOPICS_MAX: usize = 1_000;

/// Observes an inbox. Called while messages are processed: be quick, and never block.
pub trait InboxObserver: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &InboxEvent<'_>);
}

/// What happened in an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboxEvent<'a> {
    /// A message was answered. For a batch that is after the commit; otherwise the caller's own commit
    /// follows, and may fail.
    Answered {
        /// The consumer group.
        group: &'a str,
        /// The message's topic.
        topic: &'a str,
        /// Its result.
        answer: InboxAnswer,
    },
    /// Marks were removed.
    Purged {
        /// The consumer group.
        group: &'a str,
        /// How many.
        count: u64,
    },
}

/// The result of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboxAnswer {
    /// Its work ran.
    Processed,
    /// It had already been processed.
    Duplicate,
    /// Another body had been processed under its ID.
    Mismatch,
    /// Its work failed, or the database did. It has no mark.
    Failed,
    /// Another consumer held it longer than the wait. It has no mark from this call.
    Busy,
}

impl InboxAnswer {
    const ALL: [Self; 5] = [Self::Processed, Self::Duplicate, Self::Mismatch, Self::Failed, Self::Busy];

    /// The answer as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Mismatch => "mismatch",
            Self::Failed => "failed",
            Self::Busy => "busy",
        }
    }

    pub(super) fn of<T>(result: &Result<InboxResult<T>, PatternError>) -> Self {
        match result {
            Ok(InboxResult::Processed(_)) => Self::Processed,
            Ok(InboxResult::Duplicate) => Self::Duplicate,
            Err(PatternError::Mismatch(_)) => Self::Mismatch,
            Err(PatternError::Busy(_)) => Self::Busy,
            Err(_) => Self::Failed,
        }
    }
}

/// The observer, if there is one.
#[derive(Clone, Default)]
pub(super) struct ObserverSlot(pub(super) Option<Arc<dyn InboxObserver>>);

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observed" } else { "Unobserved" })
    }
}

impl ObserverSlot {
    pub(super) fn answered<B>(&self, group: &str, message: &Message<B>, answer: InboxAnswer) {
        if let Some(observer) = &self.0 {
            observer.observe(&InboxEvent::Answered { group, topic: &message.topic, answer });
        }
    }

    pub(super) fn purged(&self, group: &str, count: u64) {
        if let Some(observer) = &self.0 {
            observer.observe(&InboxEvent::Purged { group, count });
        }
    }
}

/// Counts the events of inboxes, for a metrics endpoint. Cheap to clone; all clones share the same numbers.
///
/// ```
/// use semel_tx::patterns::{Inbox, InboxCounts};
///
/// let counts = InboxCounts::default();
/// let inbox = Inbox::new("billing").observer(counts.clone());
/// // … `inbox` processes messages; a scrape of the service is answered with:
/// assert!(counts.text().contains("# TYPE inbox_messages_total counter"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct InboxCounts(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// By group and topic, one for each answer.
    messages: BTreeMap<(String, String), [u64; InboxAnswer::ALL.len()]>,
    purged: BTreeMap<String, u64>,
}

impl InboxCounts {
    /// The numbers since the start of the process, in the Prometheus format:
    /// `inbox_messages_total{group,topic,result}` and `inbox_purged_total{group}`.
    pub fn text(&self) -> String {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from(
            "# HELP inbox_messages_total Messages by result.\n# TYPE inbox_messages_total counter\n",
        );
        // Writing to a string does not fail.
        for ((group, topic), counts) in &numbers.messages {
            let (group, topic) = (quoted(group), quoted(topic));
            for (answer, count) in InboxAnswer::ALL.iter().zip(counts) {
                let result = answer.name();
                let _ = writeln!(
                    text,
                    "inbox_messages_total{{group={group},topic={topic},result=\"{result}\"}} {count}"
                );
            }
        }
        text.push_str("# HELP inbox_purged_total Marks that were removed after their window.\n# TYPE inbox_purged_total counter\n");
        for (group, count) in &numbers.purged {
            let _ = writeln!(text, "inbox_purged_total{{group={}}} {count}", quoted(group));
        }
        text
    }
}

impl InboxObserver for InboxCounts {
    fn observe(&self, event: &InboxEvent<'_>) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *event {
            InboxEvent::Answered { group, topic, answer } => {
                let series = (group.to_owned(), topic.to_owned());
                let other = || ("other".to_owned(), "other".to_owned());
                let counts = numbers.messages.entry_bounded(series, other);
                if let Some(at) = InboxAnswer::ALL.iter().position(|each| *each == answer) {
                    counts[at] += 1;
                }
            }
            InboxEvent::Purged { group, count } => {
                *numbers.purged.entry_bounded(group.to_owned(), || "other".to_owned()) += count;
            }
        }
    }
}

/// A map with untrusted keys.
trait Bounded<K, V> {
    /// The value under `key`, or under `other` if the map is full.
    fn entry_bounded(&mut self, key: K, other: impl FnOnce() -> K) -> &mut V;
}

impl<K: Ord, V: Default> Bounded<K, V> for BTreeMap<K, V> {
    fn entry_bounded(&mut self, key: K, other: impl FnOnce() -> K) -> &mut V {
        let is_full = self.len() >= TOPICS_MAX && !self.contains_key(&key);
        self.entry(if is_full { other() } else { key }).or_default()
    }
}

fn quoted(label: &str) -> String {
    format!("\"{}\"", label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counts: &InboxCounts, topic: &str, answer: InboxAnswer) {
        counts.observe(&InboxEvent::Answered { group: "billing", topic, answer });
    }

    #[test]
    fn each_answer_is_counted_by_group_and_topic() {
        let counts = InboxCounts::default();
        for answer in [InboxAnswer::Processed, InboxAnswer::Duplicate, InboxAnswer::Duplicate] {
            count(&counts, "pay\"ments", answer);
        }
        counts.observe(&InboxEvent::Purged { group: "billing", count: 7 });
        let text = counts.text();
        let line = |result: &str, count: u32| {
            let labels = format!("group=\"billing\",topic=\"pay\\\"ments\",result=\"{result}\"");
            assert!(text.contains(&format!("inbox_messages_total{{{labels}}} {count}\n")), "{text}");
        };
        line("processed", 1);
        line("duplicate", 2);
        line("mismatch", 0);
        assert!(text.contains("inbox_purged_total{group=\"billing\"} 7\n"), "{text}");
    }

    #[test]
    fn excess_topics_are_counted_as_other() {
        let counts = InboxCounts::default();
        for topic in 0..TOPICS_MAX + 7 {
            count(&counts, &topic.to_string(), InboxAnswer::Processed);
        }
        let other = "inbox_messages_total{group=\"other\",topic=\"other\",result=\"processed\"} 7\n";
        assert!(counts.text().contains(other));
    }
}

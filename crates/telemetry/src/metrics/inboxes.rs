//! Counts the inboxes of applications from time to time, slowly enough not to load the store.

use super::family::Gauges;
use super::{gauge, millis};
use semel::Clock;
use semel::core::store::{INBOX_WINDOW, InboxCensus, Store};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of a count, which reads every mark.
const WITHIN: Duration = Duration::from_mins(5);
/// After a count, the pause is this many times as long, within these bounds.
const PAUSE_FACTOR: u32 = 20;
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(15));

/// The numbers of the last count.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    counted_millis: AtomicU64,
    marks: Gauges,
    overdue: Gauges,
    oldest: Gauges,
    newest: Gauges,
}

impl Inboxes {
    /// Counts as long as it is polled. Returns if the store has no inboxes.
    pub(super) async fn run(&self, store: &dyn Store, clock: &dyn Clock) -> Infallible {
        loop {
            let begun = clock.uptime();
            match timeout(WITHIN, store.inboxes(INBOX_WINDOW)).await {
                Ok(Ok(Some(census))) => self.show(&census),
                Ok(Ok(None)) => std::future::pending().await,
                // What cannot be counted now is counted next time; the age of the numbers is a metric.
                Ok(Err(_)) | Err(_) => {}
            }
            let took = clock.uptime().saturating_sub(begun);
            clock.sleep((took * PAUSE_FACTOR).clamp(PAUSE.0, PAUSE.1)).await;
        }
    }

    fn show(&self, census: &InboxCensus) {
        let all = || {
            census.inboxes.iter().map(|((group, topic), marks)| {
                (vec![("group", group.as_str()), ("topic", topic.as_str())], marks)
            })
        };
        self.oldest.replace(all().map(|(labels, marks)| (labels, marks.oldest.as_millis() / 1_000)));
        self.newest.replace(all().map(|(labels, marks)| (labels, marks.newest.as_millis() / 1_000)));
        self.overdue.replace(all().map(|(labels, marks)| (labels, marks.overdue)));
        let others = (census.other_marks > 0)
            .then(|| (vec![("group", super::OTHER), ("topic", super::OTHER)], census.other_marks));
        self.marks.replace(all().map(|(labels, marks)| (labels, marks.marks)).chain(others));
        self.counted_millis.store(census.now.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut String) {
        let families = [
            (&self.marks, "idempotency_inbox_marks", "Messages that inboxes have marked as processed."),
            (&self.overdue, "idempotency_inbox_overdue", "Marks that are older than 7 days."),
            (&self.oldest, "idempotency_inbox_oldest_timestamp_seconds", "When the oldest mark was made."),
            (&self.newest, "idempotency_inbox_newest_timestamp_seconds", "When the newest mark was made."),
        ];
        for (family, name, help) in families {
            family.write(name, help, text);
        }
        let counted = self.counted_millis.load(Ordering::Relaxed);
        if counted > 0 {
            let help = "When the marks of inboxes were last counted.";
            gauge("idempotency_inbox_counted_timestamp_seconds", help, "", &millis(counted), text);
        }
    }
}

//! Counts the records in the store, in the background. A scrape never waits for the store.
//!
//! Two counts go on at once. Every few seconds, what any store can tell at once: how many records there are in each state, and
//! which operations the unknown ones belong to. And a walk through everything, for operations and states together, so slow
//! that traffic does not notice; the larger the store, the older that number, and a metric of its own tells how old.

use super::{Metrics, OTHER};
use semel::core::record::{State, StateName};
use semel::core::store::{Count, Cursor, Error, Filter, Hazard, Item, Severity, Store, StoreSize, Tallied};
use semel::core::time::Time;
use semel::{Call, Clock};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::metrics::census";
/// How often the store is asked for its quick counts.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The timeout of each answer.
const WITHIN: Duration = Duration::from_secs(5);
/// How many unknown records are read each time; the rest is counted without an operation.
const UNKNOWN_MAX: u64 = 10_000;
/// How many records a walk reads at once, and the pause after that.
const PART: usize = 500;
const REST: Duration = Duration::from_millis(50);
/// After a walk, the pause is this many times as long as the walk, within these bounds.
const PAUSE_FACTOR: u32 = 20;
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// How often the store's hazards are checked: about as often as a node's heartbeat.
const HAZARDS_EVERY: Duration = Duration::from_secs(10);

/// Counts the records in a store.
pub struct Census {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where the counts are shown.
    pub metrics: Metrics,
    /// How long the pauses are.
    pub clock: Arc<dyn Clock>,
    /// The codes of the hazards that the start-up text named: only changes since then are logged. Without it, the first
    /// look is where changes begin.
    pub announced: Option<BTreeSet<&'static str>>,
}

impl Census {
    /// Runs as long as it is polled.
    pub async fn run(self) -> Infallible {
        let looking = async {
            loop {
                let found = self.count().await;
                let counted = &self.metrics.0.census;
                counted.is_up.store(u64::from(found.is_some()), Ordering::Relaxed);
                self.clock.sleep(LOOK_EVERY).await;
            }
        };
        let walking = async {
            loop {
                let begun = self.clock.uptime();
                // What cannot be counted now is counted by the next walk; the age of the numbers is a metric.
                let _ = self.walk().await;
                let took = self.clock.uptime().saturating_sub(begun);
                self.clock.sleep((took * PAUSE_FACTOR).clamp(PAUSE.0, PAUSE.1)).await;
            }
        };
        let asking = async {
            let mut known = self.announced.clone();
            loop {
                self.ask_for_hazards(&mut known).await;
                self.clock.sleep(HAZARDS_EVERY).await;
            }
        };
        let measuring = async {
            loop {
                let begun = self.clock.uptime();
                // A store that does not answer keeps its numbers: idempotency_store_up says so.
                let _ = self.find_oldest_unknown().await;
                let _ = self.measure().await;
                let took = self.clock.uptime().saturating_sub(begun);
                self.clock.sleep((took * PAUSE_FACTOR).clamp(HAZARDS_EVERY, PAUSE.1)).await;
            }
        };
        let counting = self.metrics.0.census.inboxes.run(&*self.store, &*self.clock);
        let (never, ..): (Infallible, Infallible, Infallible, Infallible, Infallible) =
            tokio::join!(looking, walking, asking, measuring, counting);
        never
    }

    /// The store's quick counts. If it does not answer, nothing changes.
    async fn count(&self) -> Option<()> {
        let census = self.counted(self.store.census()).await?;
        let unknown = self.unknown().await?;
        let counted = &self.metrics.0.census;
        counted
            .states
            .replace(census.states().map(|(state, count)| (vec![("state", state.as_str())], count)));
        counted.unknown.replace(unknown.iter().map(|(label, count)| (vec![("operation", &**label)], *count)));
        counted.looked_millis.store(census.now.as_millis(), Ordering::Relaxed);
        Some(())
    }

    /// The number of unknown records for each label, including zeros.
    async fn unknown(&self) -> Option<BTreeMap<String, u64>> {
        let (mut sums, mut seen, mut after) = (self.labels(), 0, None);
        loop {
            let tally = self.store.tally(Some(StateName::Unknown), after.as_ref(), PART);
            let tally = self.counted(tally).await?;
            for Tallied { operation, count, .. } in tally.counts {
                *self.metrics.with_label(&operation, |label| sums.entry(label.to_owned()).or_insert(0)) +=
                    count;
                seen += count;
            }
            after = tally.next;
            if after.is_none() {
                return Some(sums);
            }
            if seen >= UNKNOWN_MAX {
                let all = self.counted(self.store.count(Count::State(StateName::Unknown), u64::MAX)).await?;
                *sums.entry(OTHER.to_owned()).or_insert(0) += all.count.saturating_sub(seen);
                return Some(sums);
            }
        }
    }

    /// Since when the outcome is unknown that is unknown for longest, for each label.
    async fn find_oldest_unknown(&self) -> Option<()> {
        let filter = Filter { state: Some(StateName::Unknown), ..Filter::default() };
        let (mut oldest, mut seen, mut after) = (BTreeMap::<String, Time>::new(), 0, None);
        loop {
            let page = self.timed(Call::Page, self.store.page(&filter, after.as_ref(), PART)).await?;
            for record in page.items.iter().filter_map(Item::record) {
                let State::Unknown { since, .. } = record.state() else { continue };
                seen += 1;
                self.metrics.with_label(record.operation(), |label| {
                    let oldest = oldest.entry(label.to_owned()).or_insert(*since);
                    *oldest = (*oldest).min(*since);
                });
            }
            after = page.next;
            if after.is_none() || seen >= UNKNOWN_MAX {
                break;
            }
        }
        let ages =
            oldest.iter().map(|(label, since)| (vec![("operation", &**label)], since.as_millis() / 1_000));
        self.metrics.0.census.oldest_unknown.replace(ages);
        Some(())
    }

    /// The size of the store.
    async fn measure(&self) -> Option<()> {
        let StoreSize { data_bytes, log_bytes } = in_time(self.store.usage()).await?;
        let parts = [("data", data_bytes), ("log", log_bytes)];
        let known = parts.into_iter().filter_map(|(part, bytes)| Some((vec![("what", part)], bytes?)));
        self.metrics.0.census.bytes.replace(known);
        Some(())
    }

    /// Walks through all records once, slowly.
    async fn walk(&self) -> Option<()> {
        let mut sums: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
        for label in self.labels().into_keys() {
            sums.extend(StateName::ALL.map(|state| ((label.clone(), state.as_str()), 0)));
        }
        let mut after: Option<Cursor> = None;
        loop {
            let tally = self.counted(self.store.tally(None, after.as_ref(), PART)).await?;
            for Tallied { operation, state, count } in tally.counts {
                let key = self.metrics.with_label(&operation, |label| (label.to_owned(), state.as_str()));
                *sums.entry(key).or_insert(0) += count;
            }
            after = tally.next;
            if after.is_none() {
                let counted = &self.metrics.0.census;
                let numbers = sums.iter().map(|((label, state), count)| {
                    (vec![("operation", label.as_str()), ("state", *state)], *count)
                });
                counted.records.replace(numbers);
                counted.walked_millis.store(tally.now.as_millis(), Ordering::Relaxed);
                return Some(());
            }
            self.clock.sleep(REST).await;
        }
    }

    /// The current hazards. New ones since `known`, and those that are gone, are logged.
    async fn ask_for_hazards(&self, known: &mut Option<BTreeSet<&'static str>>) {
        let Some(hazards) = in_time(self.store.hazards()).await else { return };
        log_changes(known, &hazards);
        let severities = [
            ("danger", Severity::Danger),
            ("unverified", Severity::Unverified),
            ("notice", Severity::Notice),
        ];
        let numbers = severities.map(|(name, severity)| {
            let count = hazards.iter().filter(|hazard| hazard.severity == severity).count();
            (vec![("severity", name)], count as u64)
        });
        self.metrics.0.census.hazards.replace(numbers);
    }

    /// The answer to one counting call, if it comes in time; it is measured like the engine's own.
    async fn counted<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Option<T> {
        self.timed(Call::Count, answer).await
    }

    async fn timed<T>(&self, call: Call, answer: impl Future<Output = Result<T, Error>>) -> Option<T> {
        let started = self.clock.uptime();
        let answer = in_time(answer).await;
        self.metrics.store_answered(call, self.clock.uptime().saturating_sub(started), answer.is_none());
        answer
    }

    fn labels(&self) -> BTreeMap<String, u64> {
        let routes = self.metrics.0.routes.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        routes.iter().flat_map(semel_http::Routes::labels).map(|label| (label.to_owned(), 0)).collect()
    }
}

fn log_changes(known: &mut Option<BTreeSet<&'static str>>, hazards: &[Hazard]) {
    let codes: BTreeSet<&'static str> = hazards.iter().map(|hazard| hazard.code).collect();
    let Some(before) = known.replace(codes.clone()) else { return };
    for Hazard { severity, code, what, fix } in hazards.iter().filter(|hazard| !before.contains(hazard.code))
    {
        if *severity == Severity::Danger {
            tracing::error!(target: LOG, code, fix = %fix, "the store has become less safe: {what}");
        } else {
            tracing::warn!(target: LOG, code, fix = %fix, "the store has changed: {what}");
        }
    }
    for code in before.difference(&codes) {
        tracing::info!(target: LOG, code, "a hazard of the store is gone");
    }
}

/// An answer, if it comes in time.
async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Option<T> {
    timeout(WITHIN, answer).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::Form;
    use crate::logging::tests::captured;
    use crate::metrics::Kinds;
    use semel::SystemClock;

    /// What a first look at a store that is always dangerous writes to the log.
    fn first_look(announced: Option<&[&'static str]>) -> String {
        let census = Census {
            store: Arc::new(semel::memory::Store::new()),
            metrics: Metrics::new(Time::from_millis(0), Kinds { upstream_errors: &[], admin_refusals: &[] }),
            clock: Arc::new(SystemClock),
            announced: announced.map(|codes| codes.iter().copied().collect()),
        };
        captured(Form::Text, || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            // This store answers at once, so the first look is over when the census first waits.
            let _ = runtime.block_on(async { timeout(Duration::ZERO, census.run()).await });
        })
    }

    #[test]
    fn a_hazard_that_came_between_the_start_up_text_and_the_first_look_is_logged() {
        assert!(first_look(Some(&[])).contains("the store has become less safe"));
        assert_eq!(first_look(Some(&["memory-only"])), "");
        assert!(first_look(Some(&["memory-only", "redis-no-aof"])).contains("a hazard of the store is gone"));
        assert_eq!(first_look(None), "");
    }
}

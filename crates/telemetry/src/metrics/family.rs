//! Counters, gauges and histograms. Every label has a bounded set of values.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The maximum number of label sets in one family; others are counted as `other`.
const SETS_MAX: usize = 1_000;

/// A counter for each set of labels.
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_labels: RwLock<BTreeMap<String, AtomicU64>>,
}

impl Counters {
    /// Counts one more under these labels.
    pub(super) fn add(&self, labels: &[(&str, &str)]) {
        self.add_many(labels, 1);
    }

    /// Adds `many` under these labels.
    pub(super) fn add_many(&self, labels: &[(&str, &str)], many: u64) {
        // Known labels, which are nearly all, are found without allocation.
        with_written(labels, |key| {
            let map = self.by_labels.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(counter) = map.get(key) {
                counter.fetch_add(many, Ordering::Relaxed);
                return;
            }
            drop(map);
            let mut map = self.by_labels.write().unwrap_or_else(PoisonError::into_inner);
            let is_full = map.len() >= SETS_MAX && !map.contains_key(key);
            let others: Vec<_> = labels.iter().map(|(name, _)| (*name, "other")).collect();
            let key = if is_full { written(&others) } else { key.to_owned() };
            map.entry(key).or_default().fetch_add(many, Ordering::Relaxed);
        });
    }

    /// Creates the series with 0. Otherwise, queries for a counter's increase would miss its first event.
    pub(super) fn init(&self, labels: &[(&str, &str)]) {
        self.add_many(labels, 0);
    }

    /// The family in Prometheus format.
    pub(super) fn write(&self, name: &str, help: &str, text: &mut String) {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for (labels, counter) in &*self.by_labels.read().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(text, "{name}{labels} {}", counter.load(Ordering::Relaxed));
        }
    }
}

/// A gauge for each set of labels, all set by one task.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    by_labels: RwLock<BTreeMap<String, u64>>,
}

impl Gauges {
    /// Sets these, and removes all others.
    pub(super) fn replace<'a>(&self, numbers: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, u64)>) {
        let mut map = BTreeMap::new();
        for (labels, number) in numbers {
            *map.entry(written(&labels)).or_insert(0) += number;
        }
        *self.by_labels.write().unwrap_or_else(PoisonError::into_inner) = map;
    }

    /// The family in Prometheus format.
    pub(super) fn write(&self, name: &str, help: &str, text: &mut String) {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (labels, number) in &*self.by_labels.read().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(text, "{name}{labels} {number}");
        }
    }
}

/// How many of something are running, for each label.
#[derive(Debug, Default)]
pub(super) struct InProgress {
    by_label: RwLock<BTreeMap<String, AtomicI64>>,
}

impl InProgress {
    /// Adds to the number of this label; there are no more labels than routes.
    pub(super) fn add(&self, label: &str, more: i64) {
        let map = self.by_label.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = map.get(label) {
            number.fetch_add(more, Ordering::Relaxed);
            return;
        }
        drop(map);
        let mut map = self.by_label.write().unwrap_or_else(PoisonError::into_inner);
        map.entry(label.to_owned()).or_default().fetch_add(more, Ordering::Relaxed);
    }

    /// The family in Prometheus format.
    pub(super) fn write(&self, name: &str, help: &str, text: &mut String) {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (label, number) in &*self.by_label.read().unwrap_or_else(PoisonError::into_inner) {
            let labels = written(&[("operation", label)]);
            let _ = writeln!(text, "{name}{labels} {}", number.load(Ordering::Relaxed));
        }
    }
}

/// Labels in Prometheus format: `{operation="charge"}`, empty if there are none.
fn written(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    write_labels(labels, &mut text);
    text
}

/// Passes the same to `use_it`, in a buffer that each thread reuses.
fn with_written(labels: &[(&str, &str)], use_it: impl FnOnce(&str)) {
    thread_local! {
        static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
    }
    TEXT.with_borrow_mut(|text| {
        text.clear();
        write_labels(labels, text);
        use_it(text);
    });
}

fn write_labels(labels: &[(&str, &str)], text: &mut String) {
    for (name, value) in labels {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
}

/// The upper bounds of a histogram's buckets, in microseconds.
type Bounds = &'static [u64];

/// For calls to the store.
pub(super) const STORE_BOUNDS: Bounds =
    &[50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000, 10_000_000];

/// For requests and for the upstream: from a millisecond to the longest that most clients wait.
pub(super) const REQUEST_BOUNDS: Bounds = &[
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000,
];

/// How long something took.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Bounds,
    buckets: Vec<AtomicU64>,
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: Bounds) -> Self {
        let buckets = bounds.iter().map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, count: AtomicU64::new(0), micros: AtomicU64::new(0) }
    }

    pub(super) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(at) = self.bounds.iter().position(|bound| micros <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Its samples, with these labels in common.
    pub(super) fn write(&self, name: &str, common: &[(&str, &str)], text: &mut String) {
        let and = |more: &[(&str, &str)]| written(&[common, more].concat());
        let mut sum = 0;
        for (bucket, bound) in self.buckets.iter().zip(self.bounds) {
            sum += bucket.load(Ordering::Relaxed);
            let labels = and(&[("le", &seconds(*bound))]);
            let _ = writeln!(text, "{name}_bucket{labels} {sum}");
        }
        // Read last, so that no bucket is larger than the total.
        let count = self.count.load(Ordering::Relaxed).max(sum);
        let _ = writeln!(text, "{name}_bucket{} {count}", and(&[("le", "+Inf")]));
        let labels = and(&[]);
        let _ = writeln!(text, "{name}_sum{labels} {}", seconds(self.micros.load(Ordering::Relaxed)));
        let _ = writeln!(text, "{name}_count{labels} {count}");
    }
}

/// A histogram for each operation; there are no more of them than routes.
#[derive(Debug)]
pub(super) struct Histograms {
    bounds: Bounds,
    by_operation: RwLock<BTreeMap<String, Histogram>>,
}

impl Histograms {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, by_operation: RwLock::default() }
    }

    pub(super) fn record(&self, operation: &str, took: Duration) {
        let map = self.by_operation.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = map.get(operation) {
            return histogram.record(took);
        }
        drop(map);
        self.init(operation);
        let map = self.by_operation.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = map.get(operation) {
            histogram.record(took);
        }
    }

    /// Creates the operation's histogram before anything is recorded.
    pub(super) fn init(&self, operation: &str) {
        let mut map = self.by_operation.write().unwrap_or_else(PoisonError::into_inner);
        map.entry(operation.to_owned()).or_insert_with(|| Histogram::new(self.bounds));
    }

    /// The family in Prometheus format.
    pub(super) fn write(&self, name: &str, help: &str, text: &mut String) {
        write_head(name, help, text);
        self.write_series(name, None, text);
    }

    /// Its samples without the family's head, with one more label if there is one.
    pub(super) fn write_series(&self, name: &str, more: Option<(&str, &str)>, text: &mut String) {
        for (operation, histogram) in &*self.by_operation.read().unwrap_or_else(PoisonError::into_inner) {
            let mut common = vec![("operation", operation.as_str())];
            common.extend(more);
            histogram.write(name, &common, text);
        }
    }
}

/// The head of a family of histograms.
pub(super) fn write_head(name: &str, help: &str, text: &mut String) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} histogram\n");
}

/// Microseconds as seconds, exactly.
pub(super) fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        assert_eq!(written(&[("a", "x\"} 1\n"), ("b", "\\")]), "{a=\"x\\\"} 1\\n\",b=\"\\\\\"}");
        assert_eq!(written(&[]), "");
    }

    #[test]
    fn a_flood_of_labels_ends_up_under_other() {
        let counters = Counters::default();
        for number in 0..SETS_MAX + 500 {
            counters.add(&[("caller", &number.to_string())]);
        }
        let mut text = String::new();
        counters.write("x_total", "X.", &mut text);
        assert!(text.contains("x_total{caller=\"other\"} 500\n"), "{text}");
        assert_eq!(text.lines().count(), SETS_MAX + 1 + 2);
    }

    #[test]
    fn buckets_hold_all_that_is_not_longer() {
        let histogram = Histogram::new(STORE_BOUNDS);
        for micros in [50, 51, 20_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let mut text = String::new();
        histogram.write("took_seconds", &[("call", "get")], &mut text);
        assert!(text.contains("took_seconds_bucket{call=\"get\",le=\"0.00005\"} 1\n"), "{text}");
        assert!(text.contains("took_seconds_bucket{call=\"get\",le=\"0.0001\"} 2\n"), "{text}");
        assert!(text.contains("took_seconds_bucket{call=\"get\",le=\"+Inf\"} 3\n"), "{text}");
        assert!(text.contains("took_seconds_sum{call=\"get\"} 20.000101\n"), "{text}");
    }
}

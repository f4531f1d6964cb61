//! Counts latencies, within one part in 64, and prints them on one line. There is no mean.

use std::fmt::Write as _;

/// Below this, each microsecond has its own bucket.
const EXACT: u64 = 128;
/// Buckets per doubling above that.
const STEPS: u64 = 64;

/// Counts of microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram(Vec<u64>);

impl Histogram {
    pub(crate) fn count(&mut self, micros: u64) {
        self.add(bucket(micros), 1);
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(bucket, *count);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency in milliseconds that this many of a thousand requests stay below.
    pub(crate) fn quantile(&self, of_thousand: u64) -> f64 {
        let rank = self.total() * of_thousand / 1000;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen > rank {
                return micros(bucket) as f64 / 1000.0;
            }
        }
        f64::NAN
    }

    /// As one word: `bucket:count,…`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _ = write!(text, "{bucket}:{count},");
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut histogram = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (bucket, count) = pair.split_once(':')?;
            histogram.add(bucket.parse().ok()?, count.parse().ok()?);
        }
        Some(histogram)
    }
}

fn bucket(micros: u64) -> usize {
    let doublings = micros.max(EXACT).ilog2() - EXACT.ilog2();
    let bucket = if micros < EXACT {
        micros
    } else {
        // The leading bit and the six bits after it select the bucket.
        EXACT + u64::from(doublings) * STEPS + ((micros >> (doublings + 1)) - STEPS)
    };
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The lowest value of a bucket.
fn micros(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (doublings, step) = ((bucket - EXACT) / STEPS, (bucket - EXACT) % STEPS);
    (STEPS + step) << (doublings + 1)
}

//! Counts latencies, within one part in 128, and prints them on one line. There is no mean.

use hdrhistogram::Histogram as Counts;
use std::fmt::Write as _;

const SIGNIFICANT_DIGITS: u8 = 2;

/// Counts of microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram(Counts<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Counts::new(SIGNIFICANT_DIGITS).expect("as many digits as the crate allows"))
    }
}

impl Histogram {
    pub(crate) fn count(&mut self, micros: u64) {
        self.0 += micros;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.len()
    }

    /// The latency in milliseconds that this many of a thousand requests stay below.
    pub(crate) fn quantile(&self, of_thousand: u64) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        let micros = self.0.value_at_quantile(of_thousand as f64 / 1000.0);
        self.0.lowest_equivalent(micros) as f64 / 1000.0
    }

    /// As one word: `microseconds:count,…`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for bucket in self.0.iter_recorded() {
            let _ = write!(text, "{}:{},", bucket.value_iterated_to(), bucket.count_at_value());
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut histogram = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (micros, count) = pair.split_once(':')?;
            histogram.0.record_n(micros.parse().ok()?, count.parse().ok()?).ok()?;
        }
        Some(histogram)
    }
}

//! Counts latencies, within one part in 64, and prints them on one line. There is no mean.

use std::fmt::Write as _;

/// Below this many microseconds each has its own count.
const EXACT: u64 = 128;
/// Counts for each doubling above.
const STEPS: u64 = 64;

/// Counts of microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram(Vec<u64>);

impl Histogram {
    pub(crate) fn count(&mut self, micros: u64) {
        self.add(place(micros), 1);
    }

    fn add(&mut self, place: usize, count: u64) {
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (place, count) in other.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(place, *count);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Milliseconds that so many of a thousand stay below.
    pub(crate) fn quantile(&self, of_thousand: u64) -> f64 {
        let wanted = self.total() * of_thousand / 1000;
        let mut seen = 0;
        for (place, count) in self.0.iter().enumerate() {
            seen += count;
            if seen > wanted {
                return micros(place) as f64 / 1000.0;
            }
        }
        f64::NAN
    }

    /// As one word: `place:count,…`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (place, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _ = write!(text, "{place}:{count},");
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut histogram = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (place, count) = pair.split_once(':')?;
            histogram.add(place.parse().ok()?, count.parse().ok()?);
        }
        Some(histogram)
    }
}

fn place(micros: u64) -> usize {
    let doublings = micros.max(EXACT).ilog2() - EXACT.ilog2();
    let place = if micros < EXACT {
        micros
    } else {
        // The leading bit and the six after it say where.
        EXACT + u64::from(doublings) * STEPS + ((micros >> (doublings + 1)) - STEPS)
    };
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// The least that is counted there.
fn micros(place: usize) -> u64 {
    let place = place as u64;
    if place < EXACT {
        return place;
    }
    let (doublings, step) = ((place - EXACT) / STEPS, (place - EXACT) % STEPS);
    (STEPS + step) << (doublings + 1)
}

//! The events of a history, line by line.

use std::fmt::{self, Write as _};

/// Everything that happened in a history.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
struct Line {
    at: u64,
    key: Option<usize>,
    text: String,
}

impl Trace {
    pub(crate) fn push(&mut self, at: u64, key: Option<usize>, text: String) {
        self.lines.push(Line { at, key, text });
    }

    /// One hash over all lines: equal histories have equal hashes (FNV-1a).
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for line in &self.lines {
            take(&line.at.to_le_bytes());
            take(line.text.as_bytes());
        }
        hash
    }

    /// The lines about one key, and about nodes and the store.
    pub fn about(&self, key: Option<usize>) -> impl fmt::Display {
        let wanted = |line: &&Line| line.key.is_none() || key.is_none() || line.key == key;
        let mut text = String::new();
        for Line { at, text: what, .. } in self.lines.iter().filter(wanted) {
            let (seconds, micros) = (at / 1_000_000_000, at / 1_000 % 1_000_000);
            let _ = writeln!(text, "  {seconds:>4}.{micros:06}  {what}");
        }
        text
    }
}

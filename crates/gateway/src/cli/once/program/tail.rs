//! The end of a stream.

use std::collections::VecDeque;

/// The last bytes of a stream, and how many there were before them.
#[derive(Debug)]
pub(in crate::cli::once) struct Tail {
    kept: VecDeque<u8>,
    bytes_max: usize,
    cut: u64,
}

impl Tail {
    pub(in crate::cli::once) fn new(bytes_max: usize) -> Self {
        Self { kept: VecDeque::new(), bytes_max, cut: 0 }
    }

    pub(in crate::cli::once) fn push(&mut self, bytes: &[u8]) {
        let (dropped, kept) = bytes.split_at(bytes.len().saturating_sub(self.bytes_max));
        let too_many = (self.kept.len() + kept.len()).saturating_sub(self.bytes_max);
        self.cut += (dropped.len() + too_many) as u64;
        self.kept.drain(..too_many);
        self.kept.extend(kept);
    }

    /// The kept bytes, and how many were cut before them.
    pub(in crate::cli::once) fn parts(&self) -> (Vec<u8>, u64) {
        (self.kept.iter().copied().collect(), self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(bytes_max: usize, pushed: &[&str]) -> (String, u64) {
        let mut tail = Tail::new(bytes_max);
        for bytes in pushed {
            tail.push(bytes.as_bytes());
        }
        let (kept, cut) = tail.parts();
        (String::from_utf8(kept).expect("text"), cut)
    }

    #[test]
    fn the_last_bytes_are_kept() {
        assert_eq!(tail(4, &[]), (String::new(), 0));
        assert_eq!(tail(4, &["ab", "cd"]), ("abcd".to_owned(), 0));
        assert_eq!(tail(4, &["ab", "cde"]), ("bcde".to_owned(), 1));
        assert_eq!(tail(4, &["ab", "cdefgh", "i"]), ("fghi".to_owned(), 5));
        assert_eq!(tail(0, &["ab", "c"]), (String::new(), 3));
    }
}

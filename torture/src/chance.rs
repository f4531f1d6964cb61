//! Repeatable randomness: a generator that depends only on its seed (`SplitMix64`).

use std::ops::Range;

/// A sequence of numbers that is determined by its seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate sequence for each name.
    pub(crate) fn named(seed: u64, name: &str) -> Self {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut sequence = Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold));
        sequence.bits();
        sequence
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `range`, which must not be empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start)
    }

    /// An index of a list of `len`, which must not be zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.bits() % (len as u64)).unwrap_or(0)
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.bits() % 100 < chance
    }
}

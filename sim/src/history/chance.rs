//! All random choices of a history, from its seed.
//!
//! There is only this one stream of numbers, so the seed alone repeats a history.

/// A stream of numbers determined by a seed (`SplitMix64`).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        // So that neighbouring seeds start differently.
        let mut chance = Self(seed ^ 0x5eed_0fa1_1c0f_fee5);
        chance.bits();
        Self(chance.bits() ^ seed.rotate_left(17))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// An index into something of this length, which must not be zero.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with this probability in a thousand.
    pub(crate) fn permille(&mut self, times: u64) -> bool {
        times > 0 && self.below(1_000) < times
    }

    /// True with this probability in a hundred.
    pub(crate) fn percent(&mut self, times: u64) -> bool {
        self.permille(times * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_seeds_give_different_streams() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            [chance.bits(), chance.bits(), chance.bits()]
        };
        assert_eq!(draw(1), draw(1));
        assert!(draw(1).iter().all(|bits| !draw(2).contains(bits)));
        let mut chance = Chance::new(3);
        assert!((0..1_000).all(|_| (4..=6).contains(&chance.between(4, 6))));
        assert_eq!((0..1_000).filter(|_| chance.permille(0)).count(), 0);
    }
}

//! The source of all chance: the same seed gives the same numbers, on every machine and forever.

/// A pseudo-random sequence that depends on its seed alone (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Returns the sequence of a seed.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Draws a number of 64 bits.
    pub(crate) fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range has a lower and an upper end");
        low + self.draw() % (high - low + 1)
    }

    /// Draws an index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        let drawn = self.between(0, count.saturating_sub(1) as u64);
        usize::try_from(drawn).unwrap_or(0)
    }

    /// Draws whether something happens that happens `permille` times in a thousand. Draws nothing
    /// if it never happens.
    pub(crate) fn happens(&mut self, permille: u64) -> bool {
        permille > 0 && self.between(1, 1_000) <= permille
    }
}

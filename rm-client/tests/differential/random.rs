//! Choices from a seed: the same seed gives the same choices on every machine and in every version.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns independent choices for a part, so that the choices of one part do not affect those
    /// of another.
    pub(crate) fn part(seed: u64, part: u64) -> Self {
        let mut random = Self::new(seed ^ part.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize fits 64 bits");
        usize::try_from(self.next() % end).expect("it is below a usize")
    }

    /// Returns a number from `start` to `end`, both included.
    pub(crate) fn between(&mut self, start: usize, end: usize) -> usize {
        start + self.below(end - start + 1)
    }

    /// Returns `true` with the given chance.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the given items, of which there is at least one.
    pub(crate) fn pick<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.below(things.len())]
    }

    /// Returns different numbers below `end`, in any order.
    pub(crate) fn some_below(&mut self, count: usize, end: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..end).collect();
        for place in 0..count.min(end) {
            let other = self.between(place, end - 1);
            all.swap(place, other);
        }
        all.truncate(count);
        all
    }
}

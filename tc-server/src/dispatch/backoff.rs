//! Exponential back-off with jitter.

/// The pauses between attempts. The jitter comes from a seed, so the same seed and the same calls
/// give the same pauses.
#[derive(Clone, Debug)]
pub struct Backoff {
    delay_ms_min: u64,
    delay_ms_max: u64,
    random: u64,
}

impl Backoff {
    /// Pauses from `delay_ms_min`, doubling up to `delay_ms_max`.
    #[must_use]
    pub fn new(delay_ms_min: u64, delay_ms_max: u64, seed: u64) -> Self {
        Self { delay_ms_min, delay_ms_max: delay_ms_max.max(delay_ms_min), random: seed }
    }

    /// Returns the pause after so many failures. It lies between half of the full pause and all of
    /// it, so that calls that failed together are not retried together.
    pub fn delay_ms(&mut self, failures: u32) -> u64 {
        let factor = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        self.jittered(self.delay_ms_min.saturating_mul(factor).min(self.delay_ms_max))
    }

    /// Returns a random pause between half of `full_ms` and all of it.
    pub fn jittered(&mut self, full_ms: u64) -> u64 {
        let half_ms = full_ms / 2;
        half_ms + self.draw() % (full_ms - half_ms).saturating_add(1)
    }

    /// Returns the next value of the SplitMix64 sequence.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_are_at_least_half() {
        let mut backoff = Backoff::new(100, 30_000, 7);
        for (failures, full_ms) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (5, 1_600),
            (9, 25_600),
            (10, 30_000),
            (u32::MAX, 30_000),
        ] {
            for _ in 0..100 {
                let delay_ms = backoff.delay_ms(failures);
                assert!((full_ms / 2..=full_ms).contains(&delay_ms), "{failures}: {delay_ms}");
            }
        }
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let draws = |seed| {
            let mut backoff = Backoff::new(100, 30_000, seed);
            (1..20).map(|failures| backoff.delay_ms(failures)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}

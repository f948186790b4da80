//! The time that a restart leaves to everything that was to run out (GRACE).
//!
//! Records hold moments of the wall clock, and between two processes that may have jumped either
//! way, or no process may have led for hours. So what has begun before a start ends neither sooner
//! than a grace after it, or its whole length if that is less, nor later than its whole length
//! after it. Nothing of this is stored: the next start computes it again from the same records.

use crate::contract::Timestamp;

/// The start under which the coordinator decides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restart {
    at: Timestamp,
    grace_ms: u64,
}

impl Restart {
    pub(crate) fn new(at: Timestamp, grace_ms: u64) -> Self {
        Self { at, grace_ms }
    }

    /// Returns when a recorded event happened, at the latest at the start: the clock of then may
    /// have been ahead.
    pub(crate) fn no_later(self, happened_at: Timestamp) -> Timestamp {
        happened_at.min(self.at)
    }

    /// Returns when something ends that began at `began_at` and lasts `length_ms`, with its grace.
    pub(crate) fn end_of(self, began_at: Timestamp, length_ms: u64) -> Timestamp {
        let earliest = self.at.after_ms(length_ms.min(self.grace_ms));
        began_at.after_ms(length_ms).max(earliest)
    }

    /// Returns until when something that ended at `ended_at` is kept. The time counts from the
    /// start at the earliest, which takes no more memory, since the number of kept things is
    /// limited.
    pub(crate) fn kept_until(self, ended_at: Timestamp, retention_ms: u64) -> Timestamp {
        ended_at.max(self.at).after_ms(retention_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_begun_before_a_start_end_within_grace_and_length() {
        let restart = Restart::new(Timestamp(1_000_000), 1_000);
        let end = |began_at, length_ms| {
            restart.end_of(restart.no_later(Timestamp(began_at)), length_ms).0 - 1_000_000
        };
        assert_eq!(end(999_900, 300), 300, "a short one begins again");
        assert_eq!(end(999_900, 5_000), 4_900, "a long one goes on");
        assert_eq!(end(999_000, 1_500), 1_000, "with the grace at least");
        assert_eq!(end(0, 5_000), 1_000, "however far the clock has jumped");
        assert_eq!(end(9_000_000, 5_000), 5_000, "or was set back");
    }

    #[test]
    fn times_begun_after_a_start_are_unchanged() {
        let restart = Restart::new(Timestamp(1_000_000), 1_000);
        assert_eq!(restart.end_of(Timestamp(1_000_000), 7), Timestamp(1_000_007));
        assert_eq!(restart.end_of(Timestamp(1_000_001), 7), Timestamp(1_000_008));
        assert_eq!(restart.kept_until(Timestamp(1_000_001), 7), Timestamp(1_000_008));
    }
}

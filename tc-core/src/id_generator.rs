//! The numbers that a coordinator draws: XIDs, fencing tokens and ids of leases.
//!
//! All are the epoch of the leadership followed by a counter that starts again with each epoch, so
//! they grow across restarts and leaders without a write of their own.
//!
//! Epoch and counter begin at the time of the clock, unless the records show that they are further.
//! So no number that others remember is drawn again after the records are lost or a backup is
//! restored (decision 0014).

use crate::contract::{COUNTER_BITS, Epoch, FencingToken, LeaseId, Rejection, Timestamp, Xid};

const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// When 2026 began, in milliseconds of the Unix epoch.
const CLOCK_BEGINS_MS: u64 = 1_767_225_600_000;
const MINUTE_MS: u64 = 60_000;
/// The last epoch that follows the clock, reached in 2041. Its numbers fit into 64 bits with a
/// sign, which databases' columns and Seata's clients have. From then on epochs are counted.
const EPOCH_OF_CLOCK_MAX: u64 = (1 << 23) - 1;
/// More numbers than are drawn in a millisecond, and less than a sixteenth of the counter in a
/// minute.
const NUMBERS_A_MS: u64 = 1 << 20;

impl Epoch {
    /// Returns the epoch of the minute that this time is in.
    #[must_use]
    pub fn of_clock(now: Timestamp) -> Self {
        Self((since_clock_begins(now) / MINUTE_MS).min(EPOCH_OF_CLOCK_MAX))
    }

    /// Returns the next epoch.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

fn since_clock_begins(now: Timestamp) -> u64 {
    now.0.saturating_sub(CLOCK_BEGINS_MS)
}

/// Draws numbers within one epoch.
#[derive(Clone, Debug)]
pub(crate) struct IdGenerator {
    epoch: Epoch,
    xids: u64,
    tokens: u64,
    leases: u64,
}

impl IdGenerator {
    /// `epoch` is at most [`EPOCH_MAX`].
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self { epoch, xids: 0, tokens: 0, leases: 0 }
    }

    /// Begins the counters at the position of the clock within its minute. Of two coordinators that
    /// begin in the same minute and know nothing of each other, the later one draws greater
    /// numbers.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        let counted = since_clock_begins(now) % MINUTE_MS * NUMBERS_A_MS;
        (self.xids, self.tokens, self.leases) = (counted, counted, counted);
    }

    pub(crate) fn xid(&mut self) -> Result<Xid, Rejection> {
        draw(self.epoch, &mut self.xids, "globals begun under one leadership").map(Xid)
    }

    /// Draws this many XIDs, one after the other, and returns the first of them.
    pub(crate) fn xids(&mut self, count: u32) -> Result<Xid, Rejection> {
        let after_first = u64::from(count.saturating_sub(1));
        if self.xids.saturating_add(after_first) >= COUNTER_MAX {
            let what = "globals begun under one leadership";
            return Err(Rejection::LimitReached { what, max: COUNTER_MAX });
        }
        let first = self.xid()?;
        self.xids += after_first;
        Ok(first)
    }

    /// Returns the epoch of the numbers that are drawn.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn token(&mut self) -> Result<FencingToken, Rejection> {
        draw(self.epoch, &mut self.tokens, "grants under one leadership").map(FencingToken)
    }

    pub(crate) fn lease(&mut self) -> Result<LeaseId, Rejection> {
        draw(self.epoch, &mut self.leases, "leases under one leadership").map(LeaseId)
    }
}

fn draw(epoch: Epoch, counter: &mut u64, what: &'static str) -> Result<u64, Rejection> {
    // A counter that ran over would draw the numbers of the next epoch.
    if *counter == COUNTER_MAX {
        return Err(Rejection::LimitReached { what, max: COUNTER_MAX });
    }
    // The counter grows before it is used: 0 is never drawn, and stands for no number elsewhere.
    *counter += 1;
    Ok((epoch.0 << COUNTER_BITS) | *counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_draws_greater_numbers() {
        let mut earlier = IdGenerator { xids: COUNTER_MAX - 1, ..IdGenerator::new(Epoch(1)) };
        let last = earlier.xid().expect("one is left");
        assert!(matches!(earlier.xid(), Err(Rejection::LimitReached { .. })));
        let first = IdGenerator::new(Epoch(2)).xid().expect("a fresh counter");
        assert!(first > last);
    }

    #[test]
    fn several_xids_are_drawn_at_once_or_none() {
        let mut numbers = IdGenerator { xids: COUNTER_MAX - 3, ..IdGenerator::new(Epoch(0)) };
        assert!(numbers.xids(4).is_err());
        assert_eq!(numbers.xids(2), Ok(Xid(COUNTER_MAX - 2)));
        assert_eq!(numbers.xid(), Ok(Xid(COUNTER_MAX)));
        assert!(numbers.xids(1).is_err());
    }

    #[test]
    fn ids_drawn_after_a_total_loss_are_greater() {
        let first = |now_ms| {
            let now = Timestamp(now_ms);
            let mut numbers = IdGenerator::new(Epoch::of_clock(now));
            numbers.begin(now);
            numbers.xid().expect("there are many")
        };
        let times = [0, 1, 59_999, 60_000, 15 * 365 * 24 * 3_600_000];
        let drawn = times.map(|ms| first(CLOCK_BEGINS_MS + ms));
        assert!(drawn.is_sorted_by(|one, next| next.0 - one.0 >= NUMBERS_A_MS), "{drawn:?}");
        assert!(first(u64::MAX).0 < 1 << 63, "it has a sign elsewhere");
        assert_eq!(first(0), Xid(1), "a clock that was never set");
    }
}

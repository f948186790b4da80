//! The numbers that a coordinator draws: XIDs, fencing tokens and ids of leases.
//!
//! All are the epoch of the leadership followed by a counter that starts again with each epoch, so
//! they grow across restarts and leaders without a write of their own.

use crate::{Epoch, FencingToken, LeaseId, Rejection, Xid};

/// Bits of the counter below the epoch.
pub(crate) const COUNTER_BITS: u32 = 40;
const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
/// The last epoch that leaves room for the counter.
pub(crate) const EPOCH_MAX: u64 = u64::MAX >> COUNTER_BITS;

/// Draws numbers within one epoch.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    epoch: Epoch,
    xids: u64,
    tokens: u64,
    leases: u64,
}

impl Numbers {
    /// `epoch` is at most [`EPOCH_MAX`].
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self { epoch, xids: 0, tokens: 0, leases: 0 }
    }

    pub(crate) fn xid(&mut self) -> Result<Xid, Rejection> {
        draw(self.epoch, &mut self.xids, "globals begun under one leadership").map(Xid)
    }

    pub(crate) fn token(&mut self) -> Result<FencingToken, Rejection> {
        draw(self.epoch, &mut self.tokens, "grants under one leadership").map(FencingToken)
    }

    pub(crate) fn lease(&mut self) -> Result<LeaseId, Rejection> {
        draw(self.epoch, &mut self.leases, "leases under one leadership").map(LeaseId)
    }
}

fn draw(epoch: Epoch, counter: &mut u64, what: &'static str) -> Result<u64, Rejection> {
    if *counter == COUNTER_MAX {
        return Err(Rejection::LimitReached { what, max: COUNTER_MAX });
    }
    *counter += 1;
    Ok((epoch.0 << COUNTER_BITS) | *counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_draws_greater_numbers() {
        let mut earlier = Numbers { xids: COUNTER_MAX - 1, ..Numbers::new(Epoch(1)) };
        let last = earlier.xid().expect("one is left");
        assert!(matches!(earlier.xid(), Err(Rejection::LimitReached { .. })));
        let first = Numbers::new(Epoch(2)).xid().expect("a fresh counter");
        assert!(first > last);
    }
}

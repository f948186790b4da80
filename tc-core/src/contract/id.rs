//! Names of things: globals, branches, tokens, requests, and points in time.
//!
//! All are newtypes over integers. None of them is drawn here: ids come from the state's epoch and
//! counter, branch ids from clients, correlations and time from the shell (PURE).

use std::fmt;

/// Bits of the counter below the epoch.
pub(crate) const COUNTER_BITS: u32 = 40;
/// The last epoch that leaves room for the counter.
pub(crate) const EPOCH_MAX: u64 = u64::MAX >> COUNTER_BITS;

/// A point in time: milliseconds since the Unix epoch, as the shell's clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The point `duration_ms` milliseconds later, at most the largest representable one.
    #[must_use]
    pub fn after_ms(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_add(duration_ms))
    }

    /// The point `duration_ms` milliseconds earlier, at least the smallest representable one.
    #[must_use]
    pub fn before_ms(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_sub(duration_ms))
    }
}

/// The term of one leader: greater than that of every leader before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The id of a global transaction: epoch in the upper bits, counter in the lower 40.
///
/// Its text form, `{address}:{number}`, is made at the edge with [`XidText`](crate::XidText).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u64);

impl Xid {
    /// Returns the epoch of the leader that has drawn it.
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(self.0 >> COUNTER_BITS)
    }

    /// Returns whether some leader may have drawn it: no counter draws 0.
    pub(crate) fn may_be_drawn(self) -> bool {
        self.0 << (u64::BITS - COUNTER_BITS) != 0
    }
}

/// The id of a branch within its global, made by the client that registers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(pub u64);

/// A number that grows with every grant of a global lock, across restarts and leaders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

/// Names the request that a reply answers. Unique among unanswered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Correlation(pub u64);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! The sizes of the coordinator's state, kept up to date with each change.

use std::ops::Add;

use super::status::StatusKind;

/// Sizes of the coordinator's state, for gauges. A saga counts as a global of the corresponding
/// status, and its steps as branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Undecided globals.
    pub active: usize,
    /// Globals decided for commit, with branches to be finished.
    pub committing: usize,
    /// Globals rolling back without an operator's help.
    pub rolling_back: usize,
    /// Globals rolling back that need an operator.
    pub needs_operator: usize,
    /// Finished globals that are remembered.
    pub remembered: usize,
    /// Rows held or waited for. Each counts once, however many holders and waiters it has.
    pub locks: usize,
    /// Requests waiting for locks.
    pub waiters: usize,
    /// Branches of decided globals whose phase two is not carried out, and is not refused, and
    /// branches that are asked whether they have decided theirs.
    pub pending_branches: usize,
    /// Leases of named locks.
    pub leases: usize,
    /// Requests waiting for named locks.
    pub lock_queue: usize,
}

/// The part of the counts that one global or saga adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) status: StatusKind,
    /// Branches that are owed a call.
    pub(crate) pending: usize,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            active: self.active + other.active,
            committing: self.committing + other.committing,
            rolling_back: self.rolling_back + other.rolling_back,
            needs_operator: self.needs_operator + other.needs_operator,
            remembered: self.remembered + other.remembered,
            locks: self.locks + other.locks,
            waiters: self.waiters + other.waiters,
            pending_branches: self.pending_branches + other.pending_branches,
            leases: self.leases + other.leases,
            lock_queue: self.lock_queue + other.lock_queue,
        }
    }
}

impl Counts {
    pub(crate) fn enter(&mut self, share: Counted) {
        self.pending_branches += share.pending;
        if let Some(count) = self.count_of(share.status) {
            *count += 1;
        }
    }

    pub(crate) fn leave(&mut self, share: Counted) {
        self.pending_branches -= share.pending;
        if let Some(count) = self.count_of(share.status) {
            *count -= 1;
        }
    }

    fn count_of(&mut self, status: StatusKind) -> Option<&mut usize> {
        match status {
            StatusKind::Active => Some(&mut self.active),
            StatusKind::Committing => Some(&mut self.committing),
            StatusKind::RollingBack => Some(&mut self.rolling_back),
            StatusKind::NeedsOperator => Some(&mut self.needs_operator),
            StatusKind::Unknown | StatusKind::Committed | StatusKind::RolledBack => None,
        }
    }
}

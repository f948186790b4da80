//! The finished globals that are remembered, so that "unknown" is never mistaken for an outcome.

use std::collections::VecDeque;

use super::finished::FinishedGlobal;
use crate::collections::xid_map::XidMap;
use crate::contract::{Decision, GlobalRecord, GlobalState, GlobalStatus, Limits, Timestamp, Xid};
use crate::restart::Restart;

/// Finished globals, by XID and in the order in which they finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    globals: XidMap<FinishedGlobal>,
    finished: VecDeque<(Timestamp, Xid)>,
}

impl GlobalRecord {
    /// How the global stands, as far as its record alone shows.
    #[must_use]
    pub fn status(&self) -> GlobalStatus {
        self.state.status()
    }

    /// When the global finished, if it did.
    #[must_use]
    pub fn finished_at(&self) -> Option<Timestamp> {
        self.state.finished_at()
    }
}

impl GlobalState {
    pub(crate) fn status(self) -> GlobalStatus {
        match self {
            Self::Active => GlobalStatus::Active,
            Self::Committing => GlobalStatus::Committing,
            Self::Committed(_) => GlobalStatus::Committed,
            Self::RollingBack(reason) => GlobalStatus::RollingBack(reason),
            Self::RolledBack(reason, _) => GlobalStatus::RolledBack(reason),
        }
    }

    pub(crate) fn finished_at(self) -> Option<Timestamp> {
        match self {
            Self::Committed(at) | Self::RolledBack(_, at) => Some(at),
            Self::Active | Self::Committing | Self::RollingBack(_) => None,
        }
    }

    pub(crate) fn decision(self) -> Option<Decision> {
        match self {
            Self::Active => None,
            Self::Committing | Self::Committed(_) => Some(Decision::Commit),
            Self::RollingBack(_) | Self::RolledBack(..) => Some(Decision::RollBack),
        }
    }
}

impl History {
    pub(crate) fn len(&self) -> usize {
        self.globals.len()
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&FinishedGlobal> {
        self.globals.get(xid)
    }

    /// Remembers a finished global, behind all that finished before it.
    pub(crate) fn add(&mut self, global: FinishedGlobal) {
        let finished_at =
            global.finished_at().expect("DECIDED-ONCE: only finished globals end here");
        self.finished.push_back((finished_at, global.xid));
        self.globals.insert(global.xid, global);
    }

    /// Puts globals that were added in another order into that in which they finished.
    pub(crate) fn put_in_order(&mut self) {
        self.finished.make_contiguous().sort_unstable();
    }

    /// Limits the times of finishing to that of the restart: the clock may have been ahead.
    pub(crate) fn resume(&mut self, restart: Restart) {
        // The times stay in order, and so does the order of forgetting.
        for (finished_at, _) in &mut self.finished {
            *finished_at = restart.no_later(*finished_at);
        }
    }

    /// Returns when the first of the remembered globals finished.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.finished.front().map(|&(finished_at, _)| finished_at)
    }

    /// Returns when the first of the remembered globals is to be forgotten.
    pub(crate) fn forgetting_due(&self, limits: &Limits, restart: Restart) -> Option<Timestamp> {
        let oldest = self.oldest()?;
        let is_crowded = self.len() > limits.history_max;
        Some(if is_crowded { oldest } else { restart.kept_until(oldest, limits.retention_ms) })
    }

    /// Forgets the global that finished first.
    pub(crate) fn pop(&mut self) -> Option<Box<FinishedGlobal>> {
        let (_, xid) = self.finished.pop_front()?;
        self.globals.remove(xid)
    }

    /// Newest XIDs first, from below `before`.
    pub(crate) fn newest_before(&self, before: Xid) -> impl Iterator<Item = &FinishedGlobal> {
        self.globals.below(before)
    }

    /// Oldest XIDs first, from `first` on.
    pub(crate) fn oldest_from(&self, first: Xid) -> impl Iterator<Item = &FinishedGlobal> {
        self.globals.from(first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FinishedGlobal> {
        self.globals.iter()
    }
}

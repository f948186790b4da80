//! The unfinished globals, with what must always agree with them: deadlines and counts.

use std::collections::BTreeSet;

use crate::by_xid::ByXid;
use crate::counts::{Counts, Share};
use crate::global::{Global, Phase};
use crate::restart::Restart;
use crate::{Timestamp, Xid};

/// Every unfinished global. Changes go through [`Globals::change`], so that exactly the undecided
/// ones are in the deadline set (DEADLINE) and the counts are right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globals {
    by_xid: ByXid<Global>,
    deadlines: BTreeSet<(Timestamp, Xid)>,
    counts: Counts,
}

impl Globals {
    pub(crate) fn len(&self) -> usize {
        self.by_xid.len()
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&Global> {
        self.by_xid.get(xid)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Global> {
        self.by_xid.iter()
    }

    /// Oldest XIDs first, from `first` on.
    pub(crate) fn oldest_from(&self, first: Xid) -> impl Iterator<Item = &Global> {
        self.by_xid.from(first)
    }

    /// Newest XIDs first, from below `before`.
    pub(crate) fn newest_before(&self, before: Xid) -> impl Iterator<Item = &Global> {
        self.by_xid.below(before)
    }

    pub(crate) fn insert(&mut self, global: Global) {
        self.counts.enter(Share::of(&global));
        if global.phase == Phase::Active {
            self.deadlines.insert((global.deadline, global.xid));
        }
        self.by_xid.insert(global.xid, global);
    }

    pub(crate) fn remove(&mut self, xid: Xid) -> Option<Box<Global>> {
        let global = self.by_xid.remove(xid)?;
        self.counts.leave(Share::of(&global));
        if global.phase == Phase::Active {
            self.deadlines.remove(&(global.deadline, xid));
        }
        Some(global)
    }

    /// Changes a global; `None` if it is not there.
    pub(crate) fn change<T>(
        &mut self,
        xid: Xid,
        change: impl FnOnce(&mut Global) -> T,
    ) -> Option<T> {
        let global = self.by_xid.get_mut(xid)?;
        let was = global.phase;
        self.counts.leave(Share::of(global));
        let result = change(global);
        self.counts.enter(Share::of(global));
        if was == Phase::Active && global.phase != Phase::Active {
            self.deadlines.remove(&(global.deadline, xid));
        }
        Some(result)
    }

    /// Gives each undecided global what the restart leaves of its time.
    pub(crate) fn begin_anew(&mut self, restart: Restart) {
        let undecided = std::mem::take(&mut self.deadlines);
        for (_, xid) in undecided {
            let Some(global) = self.by_xid.get_mut(xid) else { continue };
            let begun_at = restart.no_later(global.begun_at);
            global.deadline = restart.end_of(begun_at, global.timeout_ms);
            self.deadlines.insert((global.deadline, xid));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The undecided global whose deadline is the first to have passed.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<Xid> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, xid)| xid)
    }

    pub(crate) fn deadlines(&self) -> &BTreeSet<(Timestamp, Xid)> {
        &self.deadlines
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}

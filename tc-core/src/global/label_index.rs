//! Finds globals by their labels, unfinished ones and remembered ones; sagas have an index of their
//! own.

use std::collections::BTreeSet;

use crate::contract::{Label, Labels, Xid};

/// The labels of all globals. A global without one takes no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelIndex {
    globals: BTreeSet<(Label, Xid)>,
}

impl LabelIndex {
    pub(crate) fn insert(&mut self, labels: &Labels, xid: Xid) {
        self.globals.extend(labels.iter().map(|label| (label.clone(), xid)));
    }

    /// Forgets a global with everything that is known of it.
    pub(crate) fn remove(&mut self, labels: &Labels, xid: Xid) {
        for label in labels.iter() {
            self.globals.remove(&(label.clone(), xid));
        }
    }

    /// The globals with a label: newest XIDs first, from below `before`.
    pub(crate) fn newest_before(&self, label: &Label, before: Xid) -> impl Iterator<Item = Xid> {
        let (first, end) = ((label.clone(), Xid(0)), (label.clone(), before));
        self.globals.range(first..end).rev().map(|&(_, xid)| xid)
    }

    /// The globals with a label: oldest XIDs first, from `first` on.
    pub(crate) fn oldest_from(&self, label: &Label, first: Xid) -> impl Iterator<Item = Xid> {
        let (first, last) = ((label.clone(), first), (label.clone(), Xid(u64::MAX)));
        self.globals.range(first..=last).map(|&(_, xid)| xid)
    }
}

//! The branches of one global: in the order of their registration, and found by id.

use std::ops::Deref;

use smallvec::SmallVec;

use super::branch::Branch;
use crate::collections::hash_index::{HashIndex, hash_of};
use crate::contract::BranchId;
use crate::row_lock::held_locks::HeldLocks;

/// The number of branches up to which a look at each is as quick as an index, and takes no memory.
const UNINDEXED_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Branches {
    /// In the order of their sequence.
    list: SmallVec<[Branch; 2]>,
    /// The sequence of each branch, where there are many: every request names its branch by id.
    sequences: Option<Box<HashIndex<(BranchId, u32)>>>,
}

impl Branches {
    pub(crate) fn get(&self, id: BranchId) -> Option<&Branch> {
        self.place(id).map(|place| &self.list[place])
    }

    pub(crate) fn get_mut(&mut self, id: BranchId) -> Option<&mut Branch> {
        self.place(id).map(|place| &mut self.list[place])
    }

    /// The branch with a sequence number.
    pub(crate) fn at(&self, sequence: u32) -> Option<&Branch> {
        self.place_of(sequence).map(|place| &self.list[place])
    }

    /// Takes the locks of each branch out, together with its sequence.
    pub(crate) fn take_locks(&mut self) -> impl Iterator<Item = (u32, HeldLocks)> + '_ {
        self.list.iter_mut().map(|branch| (branch.sequence, std::mem::take(&mut branch.locks)))
    }

    /// Adds a branch, whose sequence must be above that of every other.
    pub(crate) fn push(&mut self, branch: Branch) {
        let entry = (branch.id, branch.sequence);
        self.list.push(branch);
        if let Some(index) = &mut self.sequences {
            index.insert(hash_of(&entry.0), entry, |(id, _)| hash_of(id));
        } else if self.list.len() > UNINDEXED_MAX {
            let mut index = HashIndex::new();
            for branch in &self.list {
                let entry = (branch.id, branch.sequence);
                index.insert(hash_of(&entry.0), entry, |(id, _)| hash_of(id));
            }
            self.sequences = Some(Box::new(index));
        }
    }

    pub(crate) fn remove(&mut self, id: BranchId) -> Option<Branch> {
        let place = self.place(id)?;
        if let Some(index) = &mut self.sequences {
            index.remove(hash_of(&id), |entry| entry.0 == id);
        }
        Some(self.list.remove(place))
    }

    fn place(&self, id: BranchId) -> Option<usize> {
        let Some(index) = &self.sequences else {
            return self.list.iter().position(|branch| branch.id == id);
        };
        let (_, sequence) = index.find(hash_of(&id), |entry| entry.0 == id)?;
        self.place_of(*sequence)
    }

    fn place_of(&self, sequence: u32) -> Option<usize> {
        self.list.binary_search_by_key(&sequence, |branch| branch.sequence).ok()
    }
}

impl Deref for Branches {
    type Target = [Branch];

    fn deref(&self) -> &[Branch] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Branches {
    type Item = &'a Branch;
    type IntoIter = std::slice::Iter<'a, Branch>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::interner::Names;
    use crate::contract::{FencingToken, Mode, Timestamp};
    use crate::global::branch::BranchStage;

    fn branch(names: &mut Names, id: u64, sequence: u32) -> Branch {
        Branch {
            id: BranchId(id),
            sequence,
            mode: Mode::At,
            stage: BranchStage::Registered,
            resource: names.name(&"stock".into()),
            registered_by: None,
            token: FencingToken(id),
            registered_at: Timestamp(0),
            phase_one_at: Timestamp(0),
            finished_at: Timestamp(0),
            locks: HeldLocks::default(),
            extras: None,
        }
    }

    /// The same few or many, with others removed before and after there is an index.
    #[test]
    fn a_branch_is_found_by_id_and_by_sequence() {
        for count in [1, UNINDEXED_MAX, UNINDEXED_MAX + 1, 100] {
            let (mut names, mut branches) = (Names::new(), Branches::default());
            for (id, sequence) in (1_000..).zip((0..).step_by(2)).take(count) {
                branches.push(branch(&mut names, id, sequence));
                if id % 5 == 0 {
                    assert_eq!(branches.remove(BranchId(id)).unwrap().sequence, sequence);
                }
                assert!(branches.remove(BranchId(1)).is_none());
            }
            let (removed, kept): (Vec<u64>, Vec<u64>) =
                (1_000..).take(count).partition(|id| id % 5 == 0);
            assert!(removed.iter().all(|id| branches.get(BranchId(*id)).is_none()), "{count}");
            assert!(kept.iter().all(|id| branches.get_mut(BranchId(*id)).unwrap().id.0 == *id));
            assert!(branches.iter().map(|branch| branch.id.0).eq(kept), "{count}");
            assert!(branches.iter().all(|it| branches.at(it.sequence).unwrap().id == it.id));
            assert!(branches.at(1).is_none());
        }
    }
}

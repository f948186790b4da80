//! The branches of one global: in the order of their registration, and found by id.

use std::mem;
use std::ops::Deref;
use std::slice;

use super::branch::Branch;
use super::branch_rows::GivenUpRows;
use crate::collections::hash_index::{HashIndex, hash_of};
use crate::contract::BranchId;

/// The number of branches up to which a look at each is as quick as an index, and takes no memory.
const UNINDEXED_MAX: usize = 16;

/// Nearly all globals have one or two, which take no memory of their own.
#[derive(Clone, Debug, Default)]
pub(crate) enum Branches {
    #[default]
    None,
    One(Branch),
    Two([Branch; 2]),
    /// Boxed, so that the rare case does not make every global larger.
    Many(Box<ManyBranches>),
}

#[derive(Clone, Debug)]
pub(crate) struct ManyBranches {
    /// In the order of their sequence.
    list: Vec<Branch>,
    /// The sequence of each branch, where there are many: every request names its branch by id.
    sequences: Option<HashIndex<(BranchId, u32)>>,
}

impl Branches {
    pub(crate) fn get(&self, id: BranchId) -> Option<&Branch> {
        self.place(id).map(|place| &self[place])
    }

    pub(crate) fn get_mut(&mut self, id: BranchId) -> Option<&mut Branch> {
        self.place(id).map(|place| &mut self.as_mut_slice()[place])
    }

    /// The branch with a sequence number.
    pub(crate) fn at(&self, sequence: u32) -> Option<&Branch> {
        place_of(self, sequence).map(|place| &self[place])
    }

    /// Takes the locks of each branch out, together with its sequence.
    pub(crate) fn take_locks(&mut self) -> impl Iterator<Item = (u32, GivenUpRows)> + '_ {
        let branches = self.as_mut_slice().iter_mut();
        branches.map(|branch| (branch.sequence, branch.take_locks()))
    }

    /// Adds a branch, whose sequence must be above that of every other.
    pub(crate) fn push(&mut self, branch: Branch) {
        *self = match mem::take(self) {
            Self::None => Self::One(branch),
            Self::One(first) => Self::Two([first, branch]),
            Self::Two([first, second]) => {
                let list = vec![first, second, branch];
                Self::Many(Box::new(ManyBranches { list, sequences: None }))
            }
            Self::Many(mut many) => {
                many.push(branch);
                Self::Many(many)
            }
        };
    }

    pub(crate) fn remove(&mut self, id: BranchId) -> Option<Branch> {
        let place = self.place(id)?;
        let removed;
        (*self, removed) = match mem::take(self) {
            Self::None => return None,
            Self::One(branch) => (Self::None, branch),
            Self::Two([first, second]) if place == 0 => (Self::One(second), first),
            Self::Two([first, second]) => (Self::One(first), second),
            Self::Many(mut many) => {
                let removed = many.remove(place);
                (Self::Many(many), removed)
            }
        };
        Some(removed)
    }

    /// Gives a branch another sequence number, which is its own or above that of every other.
    pub(crate) fn move_to(&mut self, id: BranchId, sequence: u32) -> Option<&mut Branch> {
        if self.get(id)?.sequence != sequence {
            let branch = self.remove(id)?;
            self.push(Branch { sequence, ..branch });
        }
        self.get_mut(id)
    }

    fn place(&self, id: BranchId) -> Option<usize> {
        if let Self::Many(many) = self
            && let Some(index) = &many.sequences
        {
            let (_, sequence) = index.find(hash_of(&id), |entry| entry.0 == id)?;
            return place_of(self, *sequence);
        }
        self.iter().position(|branch| branch.id == id)
    }

    fn as_mut_slice(&mut self) -> &mut [Branch] {
        match self {
            Self::None => &mut [],
            Self::One(branch) => slice::from_mut(branch),
            Self::Two(branches) => branches,
            Self::Many(many) => &mut many.list,
        }
    }
}

impl ManyBranches {
    fn push(&mut self, branch: Branch) {
        self.list.push(branch);
        let unindexed = match &self.sequences {
            Some(_) => self.list.len() - 1,
            None if self.list.len() > UNINDEXED_MAX => 0,
            None => return,
        };
        let index = self.sequences.get_or_insert_with(HashIndex::new);
        for branch in &self.list[unindexed..] {
            let entry = (branch.id, branch.sequence);
            index.insert(hash_of(&entry.0), entry, |(id, _)| hash_of(id));
        }
    }

    fn remove(&mut self, place: usize) -> Branch {
        let removed = self.list.remove(place);
        if let Some(index) = &mut self.sequences {
            index.remove(hash_of(&removed.id), |entry| entry.0 == removed.id);
        }
        removed
    }
}

fn place_of(branches: &[Branch], sequence: u32) -> Option<usize> {
    branches.binary_search_by_key(&sequence, |branch| branch.sequence).ok()
}

impl Deref for Branches {
    type Target = [Branch];

    fn deref(&self) -> &[Branch] {
        match self {
            Self::None => &[],
            Self::One(branch) => slice::from_ref(branch),
            Self::Two(branches) => branches,
            Self::Many(many) => &many.list,
        }
    }
}

impl<'a> IntoIterator for &'a Branches {
    type Item = &'a Branch;
    type IntoIter = slice::Iter<'a, Branch>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::interner::Names;
    use crate::contract::{FencingToken, Mode, Timestamp};
    use crate::global::branch::BranchStage;
    use crate::global::branch_rows::BranchRows;

    fn branch(names: &mut Names, id: u64, sequence: u32) -> Branch {
        Branch {
            id: BranchId(id),
            sequence,
            mode: Mode::At,
            stage: BranchStage::Registered,
            is_ahead: false,
            site: names.site(&"stock".into(), None),
            token: FencingToken(id),
            registered_at: Timestamp(0),
            phase_one_at: Timestamp(0),
            rows: BranchRows::None,
            extras: None,
        }
    }

    /// The same few or many, with others removed before and after there is an index.
    #[test]
    fn a_branch_is_found_by_id_and_by_sequence() {
        for count in [1, 2, 3, UNINDEXED_MAX, UNINDEXED_MAX + 1, 100] {
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

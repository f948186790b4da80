//! The branches of this process that may still commit locally.
//!
//! A rollback that finds no undo row puts a guard row in its place, so that a local transaction
//! that is still open somewhere cannot commit afterwards. For a branch that this process made and
//! knows to have ended the guard would bar nothing: none is put there, so that a rollback asked for
//! twice leaves nothing behind. Branches of other processes, and those whose COMMIT had no answer,
//! are guarded.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::xid::Xid;

/// Guard rows that may wait for their removal. More are left to the daily sweep (BOUNDED).
const STALE_GUARDS_MAX: usize = 1_024;
/// How many branches whose COMMIT had no answer are tracked one by one (BOUNDED). When there are so
/// many, all branches up to the last of them count as able to commit: too many guard rows are
/// written, never too few.
const IN_DOUBT_MAX: usize = 1_024;

/// A guard row that bars no branch any more.
pub(super) type StaleGuard = (String, u64);

/// The branches that this process has made on one resource.
pub(crate) struct RunningBranches {
    /// The upper 31 of the 63 bits of the branch ids of this process and resource.
    process: u64,
    made: AtomicU32,
    running: Mutex<Running>,
    stale_guards: mpsc::Sender<StaleGuard>,
}

#[derive(Default)]
struct Running {
    /// The branches that have not ended, and whether a guard row bars each.
    open: HashMap<u64, bool>,
    /// The branches that have ended here, and whose COMMIT had no answer.
    in_doubt: BTreeSet<u64>,
    /// Branches up to this one may all be in doubt.
    in_doubt_up_to: u64,
    /// The branches of each global that has an open one.
    of_global: HashMap<Xid, GlobalBranches>,
}

/// The branches of one global, counted since none of them was open.
#[derive(Clone, Copy, Default)]
struct GlobalBranches {
    made: u32,
    open: u32,
}

impl Running {
    fn may_commit(&self, branch: u64) -> bool {
        branch <= self.in_doubt_up_to
            || self.open.contains_key(&branch)
            || self.in_doubt.contains(&branch)
    }

    fn start(&mut self, xid: &Xid, branch: u64) {
        self.open.insert(branch, false);
        let of_global = self.of_global.entry(xid.clone()).or_default();
        of_global.made += 1;
        of_global.open += 1;
    }

    fn end_of(&mut self, xid: &Xid) {
        let Some(of_global) = self.of_global.get_mut(xid) else { return };
        of_global.open -= 1;
        if of_global.open == 0 {
            self.of_global.remove(xid);
        }
    }

    /// The database may carry the COMMIT out later, so that a rollback puts a guard row there.
    fn doubt(&mut self, branch: u64) {
        self.open.remove(&branch);
        self.in_doubt.insert(branch);
        if self.in_doubt.len() >= IN_DOUBT_MAX {
            let last = mem::take(&mut self.in_doubt).pop_last();
            self.in_doubt_up_to = self.in_doubt_up_to.max(last.unwrap_or_default());
        }
    }
}

/// A branch that may still commit; it has ended when the last reference to this is dropped.
pub(crate) struct RunningBranch {
    pub(crate) id: u64,
    xid: Xid,
    in_doubt: AtomicBool,
    branches: Arc<RunningBranches>,
}

/// Whether a branch whose undo row is missing may still commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitPossibility {
    /// It has ended here.
    Impossible,
    /// It may be open here, or in another process.
    Possible,
}

impl RunningBranches {
    /// Makes a set without branches. The receiver gets the guard rows that are to be removed.
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<StaleGuard>) {
        let (stale_guards, receiver) = mpsc::channel(STALE_GUARDS_MAX);
        // Never 0, so that no branch id is.
        let process = u64::from((rand::random::<u32>() >> 1).max(1)) << 32;
        let running = Mutex::default();
        (Arc::new(Self { process, made: AtomicU32::new(0), running, stale_guards }), receiver)
    }

    /// Makes a branch. Its id is positive and has 63 bits, so that it fits every database's BIGINT.
    pub(super) fn start(self: &Arc<Self>, xid: &Xid) -> Arc<RunningBranch> {
        let id = self.process | u64::from(self.made.fetch_add(1, Ordering::Relaxed));
        self.lock().start(xid, id);
        let (xid, branches) = (xid.clone(), Arc::clone(self));
        Arc::new(RunningBranch { id, xid, in_doubt: AtomicBool::new(false), branches })
    }

    /// Whether a branch may still commit.
    pub(super) fn commit_possibility(&self, branch: u64) -> CommitPossibility {
        let made_here = branch & !u64::from(u32::MAX) == self.process;
        if made_here && !self.lock().may_commit(branch) {
            CommitPossibility::Impossible
        } else {
            CommitPossibility::Possible
        }
    }

    /// Takes note of a guard row that bars a branch: it is removed when the branch has ended.
    pub(super) fn guarded(&self, xid: &str, branch: u64) {
        if let Some(guarded) = self.lock().open.get_mut(&branch) {
            *guarded = true;
            return;
        }
        // The branch may have ended while the guard row was written, and then took no note of it.
        if self.commit_possibility(branch) == CommitPossibility::Impossible {
            self.remove_guard(xid, branch);
        }
    }

    fn remove_guard(&self, xid: &str, branch: u64) {
        if self.stale_guards.try_send((xid.to_owned(), branch)).is_err() {
            tracing::debug!(xid, branch, "guard row left to the daily sweep");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // No change panics, so a panic elsewhere leaves nothing half done.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningBranch {
    /// Marks a branch whose COMMIT was sent and not answered: this process does not learn when it
    /// has ended.
    pub(super) fn mark_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// Returns how many branches of its global this process has made on the resource, if it is the
    /// only open one of them. The number stays as long as it lives and no other one is made.
    pub(super) fn made_if_alone(&self) -> Option<u32> {
        let running = self.branches.lock();
        running.of_global.get(&self.xid).filter(|it| it.open == 1).map(|it| it.made)
    }
}

impl Drop for RunningBranch {
    fn drop(&mut self) {
        let mut running = self.branches.lock();
        running.end_of(&self.xid);
        if self.in_doubt.load(Ordering::Relaxed) {
            return running.doubt(self.id);
        }
        let guarded = running.open.remove(&self.id);
        drop(running);
        if guarded == Some(true) {
            self.branches.remove_guard(self.xid.as_str(), self.id);
        }
    }
}

impl fmt::Debug for RunningBranches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningBranches").field("process", &self.process).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunningBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningBranch").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Counts a last branch among those that run on a resource, as long as it lives.
pub(crate) struct RunningLastBranch(Arc<AtomicUsize>);

impl RunningLastBranch {
    pub(super) fn start(running: &Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(running))
    }

    /// Returns whether no other last branch runs on the resource.
    pub(super) fn is_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for RunningLastBranch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid() -> Xid {
        Xid::new("127.0.0.1:7091:42").unwrap()
    }

    #[test]
    fn a_branch_may_commit_until_it_has_ended_here() {
        let (branches, _stale) = RunningBranches::new();
        let branch = branches.start(&xid());
        let id = branch.id;
        assert_eq!(branches.commit_possibility(id), CommitPossibility::Possible);
        drop(branch);
        assert_eq!(branches.commit_possibility(id), CommitPossibility::Impossible);
    }

    #[test]
    fn branches_elsewhere_or_in_doubt_may_still_commit() {
        let (branches, _stale) = RunningBranches::new();
        let (others, _theirs) = RunningBranches::new();
        assert_eq!(
            branches.commit_possibility(others.start(&xid()).id),
            CommitPossibility::Possible
        );
        let branch = branches.start(&xid());
        let id = branch.id;
        branch.mark_in_doubt();
        drop(branch);
        assert_eq!(branches.commit_possibility(id), CommitPossibility::Possible);
    }

    /// Regression: each unanswered COMMIT was kept for as long as the process ran.
    #[test]
    fn branches_in_doubt_are_bounded_and_stay_in_doubt() {
        let (branches, _stale) = RunningBranches::new();
        let ids: Vec<u64> = (0..3 * IN_DOUBT_MAX / 2)
            .map(|_| {
                let branch = branches.start(&xid());
                branch.mark_in_doubt();
                branch.id
            })
            .collect();
        assert!(branches.lock().in_doubt.len() < IN_DOUBT_MAX);
        assert!(branches.lock().open.is_empty());
        for id in ids {
            assert_eq!(branches.commit_possibility(id), CommitPossibility::Possible);
        }
        let later = branches.start(&xid()).id;
        assert_eq!(branches.commit_possibility(later), CommitPossibility::Impossible);
    }

    #[test]
    fn a_guard_goes_when_its_branch_has_ended() {
        let (branches, mut stale) = RunningBranches::new();
        let branch = branches.start(&xid());
        let id = branch.id;
        branches.guarded(xid().as_str(), id);
        assert!(stale.try_recv().is_err());
        drop(branch);
        assert_eq!(stale.try_recv().unwrap(), (xid().to_string(), id));
        // It ended between the look and the guard.
        branches.guarded(xid().as_str(), id);
        assert_eq!(stale.try_recv().unwrap(), (xid().to_string(), id));
    }
}

//! The branches of this process that may still commit locally.
//!
//! A rollback that finds no undo row puts a guard row in its place, so that a local transaction
//! that is still open somewhere cannot commit afterwards. For a branch that this process made and
//! knows to have ended the guard would bar nothing: none is put there, so that a rollback asked for
//! twice leaves nothing behind. Branches of other processes, and those whose COMMIT had no answer,
//! are guarded.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::xid::Xid;

/// Guard rows that may wait for their removal. More are left to the daily sweep (BOUNDED).
const STALE_GUARDS_MAX: usize = 1_024;

/// A guard row that bars no branch any more.
pub(super) type StaleGuard = (String, u64);

/// The branches that this process has made on one resource.
pub(crate) struct RunningBranches {
    /// The upper 31 of the 63 bits of the branch ids of this process and resource.
    process: u64,
    made: AtomicU32,
    /// The branches that may still commit, and whether a guard row bars each.
    running: Mutex<HashMap<u64, bool>>,
    stale_guards: mpsc::Sender<StaleGuard>,
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

    /// Makes a branch: positive and 63 bits, so that its id fits every database's BIGINT.
    pub(super) fn start(self: &Arc<Self>, xid: &Xid) -> Arc<RunningBranch> {
        let id = self.process | u64::from(self.made.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(id, false);
        let (xid, branches) = (xid.clone(), Arc::clone(self));
        Arc::new(RunningBranch { id, xid, in_doubt: AtomicBool::new(false), branches })
    }

    /// Whether a branch may still commit.
    pub(super) fn commit_possibility(&self, branch: u64) -> CommitPossibility {
        let made_here = branch & !u64::from(u32::MAX) == self.process;
        if made_here && !self.lock().contains_key(&branch) {
            CommitPossibility::Impossible
        } else {
            CommitPossibility::Possible
        }
    }

    /// Takes note of a guard row that bars a branch: it is removed when the branch has ended.
    pub(super) fn guarded(&self, xid: &str, branch: u64) {
        if let Some(guarded) = self.lock().get_mut(&branch) {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        // Every change is one call, so a panic elsewhere leaves nothing half done.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningBranch {
    /// Marks a branch whose COMMIT was sent and not answered: this process does not learn when it
    /// has ended.
    pub(super) fn mark_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }
}

impl Drop for RunningBranch {
    fn drop(&mut self) {
        if self.in_doubt.load(Ordering::Relaxed) {
            // It stays among the branches that may commit: the database may carry the COMMIT out
            // later, so that a rollback puts a guard row there.
            return;
        }
        let guarded = self.branches.lock().remove(&self.id);
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

//! Branches that wait to change a counter of one row in one local transaction.
//!
//! A row that many change is changed by one local transaction after the other, and each ends with a
//! sync of the database. While one runs, branches gather here; the next one takes them together, up
//! to [`MEMBERS_MAX`], in few different numbers. Each is a branch of its own global, with an undo
//! row of its own. All of them hold the row's global lock already.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_proto::v1;
use tokio::sync::oneshot;

use super::ahead::CountingStatement;
use super::attempts::Attempts;
use super::branch::{Branch, Role};
use super::joint_transaction;
use super::registration::failed_if_dropped;
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::Managed;
use crate::at::database::{AtDatabase, Backend, Steps};
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::last_commit::Known;
use crate::unknown_outcome::UnknownOutcomeGuard;

/// How many branches share a local transaction. More: the first of them waits for the last, and
/// rows of the undo log that one statement inserts. Fewer: less of a sync is saved.
const MEMBERS_MAX: usize = 32;

/// The queues of a resource, by table and key of the row. A queue is there as long as a task serves
/// it. A branch in it is waited for by its application, so there are no more than those are.
pub(crate) struct JointQueues<DB: Backend> {
    rows: Mutex<HashMap<RowName, VecDeque<Member<DB>>>>,
}

type RowName = (String, Box<[u8]>);

impl<DB: Backend> fmt::Debug for JointQueues<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointQueues").field("rows", &self.lock().len()).finish()
    }
}

impl<DB: Backend> Default for JointQueues<DB> {
    fn default() -> Self {
        Self { rows: Mutex::default() }
    }
}

impl<DB: Backend> JointQueues<DB> {
    fn lock(&self) -> MutexGuard<'_, HashMap<RowName, VecDeque<Member<DB>>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a branch. Returns whether its queue needs a task.
    fn enter(&self, row: RowName, member: Member<DB>) -> bool {
        match self.lock().entry(row) {
            Entry::Occupied(queue) => {
                queue.into_mut().push_back(member);
                false
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([member]));
                true
            }
        }
    }

    /// Takes a branch out again. Returns whether it was still there.
    fn leave(&self, row: &RowName, branch: u64) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(row) else { return false };
        let before = queue.len();
        queue.retain(|member| member.branch.id != branch);
        queue.len() < before
    }

    /// Takes the next branches: a power of two of them, so that the statements for all numbers of
    /// branches are few, and the database has them prepared. Without any, the queue is gone, and
    /// the next branch begins another.
    fn next(&self, row: &RowName) -> Vec<Member<DB>> {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(row) else { return Vec::new() };
        let waiting = queue.len().min(MEMBERS_MAX);
        let together = waiting.checked_ilog2().map_or(0, |power| 1 << power);
        let members: Vec<Member<DB>> = queue.drain(..together).collect();
        if members.is_empty() {
            queues.remove(row);
        }
        members
    }
}

/// A branch that waits.
pub(super) struct Member<DB: Backend> {
    pub(super) branch: Branch,
    pub(super) query: BoundQuery<DB>,
    pub(super) managed: Managed,
    pub(super) statement: Arc<CountingStatement<DB>>,
    answer: oneshot::Sender<JointEnd<DB>>,
}

/// The end of a branch in a joint local transaction.
pub(super) enum JointEnd<DB: Backend> {
    /// Its local commit is done.
    Committed(Steps<DB>),
    /// Nothing of it has happened: it is to run by itself.
    Alone,
    /// COMMIT had no answer, for this reason.
    Unknown(String),
}

impl<DB: AtDatabase> Member<DB> {
    /// Answers a branch. One that nothing waits for any more gives up its row if it has not
    /// committed.
    pub(super) fn answer(self, shared: &ResourceState<DB>, answer: JointEnd<DB>) {
        let Self { branch, answer: waits, .. } = self;
        if let JointEnd::Unknown(_) = &answer {
            branch.running.mark_in_doubt();
        }
        if let Err(JointEnd::Alone) = waits.send(answer) {
            drop(failed_if_dropped(shared, &branch));
        }
    }
}

impl<DB: AtDatabase> Attempts<DB> {
    /// Runs a statement whose row is granted already together with those of other globals. `None`:
    /// it is to run by itself.
    pub(crate) async fn run_joined(
        &mut self,
        query: &BoundQuery<DB>,
        managed: &Managed,
    ) -> Result<Option<Steps<DB>>, sqlx::Error> {
        let Role::Branch(branch) = &self.role else { return Ok(None) };
        let Some(statement) = self.counting.clone() else { return Ok(None) };
        let Some((table, key)) = branch.granted.only() else { return Ok(None) };
        // The marks of a guarded table are one branch's.
        if self.shared.catalogue.knows_guards() {
            return Ok(None);
        }
        let row: RowName = (table.to_owned(), Box::from(key));
        let (branch, query, managed) = (branch.clone(), query.clone(), managed.clone());
        let (answer, answered) = oneshot::channel();
        let member = Member { branch: branch.clone(), query, managed, statement, answer };
        // From here on a report that the branch has failed could be wrong.
        self.hand_over();
        let waiting = Waiting { shared: &self.shared, row: &row, branch: &branch };
        if self.shared.joint_queues.enter(row.clone(), member) {
            tokio::spawn(serve(Arc::clone(&self.shared), row.clone()));
        }
        let lost = || JointEnd::Unknown("its task has ended".to_owned());
        let end = answered.await.unwrap_or_else(|_| lost());
        waiting.has_ended();
        match end {
            JointEnd::Committed(steps) => Ok(Some(steps)),
            JointEnd::Alone => {
                self.take_back();
                Ok(None)
            }
            JointEnd::Unknown(reason) => {
                branch.running.mark_in_doubt();
                branch.note_last_commit(Known::InDoubt);
                let unknown = v1::PhaseOneOutcome::Unknown;
                let (coordinator, id) = (&self.shared.coordinator, branch.id);
                drop(UnknownOutcomeGuard::new(coordinator, &branch.xid, id, unknown));
                Err(AtError::CommitUnknown { reason }.into())
            }
        }
    }
}

/// A wait that is cut off by a dropped future. The application may commit the global at once, and
/// the branch may have its local commit still to come: that must not be left to chance.
struct Waiting<'w, DB: Backend> {
    shared: &'w ResourceState<DB>,
    row: &'w RowName,
    branch: &'w Branch,
}

impl<DB: Backend> Waiting<'_, DB> {
    fn has_ended(self) {
        std::mem::forget(self);
    }
}

impl<DB: Backend> Drop for Waiting<'_, DB> {
    fn drop(&mut self) {
        let Self { shared, row, branch } = self;
        if shared.joint_queues.leave(row, branch.id) {
            drop(failed_if_dropped(shared, branch));
        } else {
            // The local transaction that it is in may commit, or has.
            let unknown = v1::PhaseOneOutcome::Unknown;
            drop(UnknownOutcomeGuard::new(&shared.coordinator, &branch.xid, branch.id, unknown));
        }
    }
}

/// Serves a queue until it is empty.
async fn serve<DB: AtDatabase>(shared: Arc<ResourceState<DB>>, row: RowName) {
    /// Lets go of those that wait, should the task end in the midst of its work.
    struct Served<'s, DB: Backend>(&'s JointQueues<DB>, &'s RowName);
    impl<DB: Backend> Drop for Served<'_, DB> {
        fn drop(&mut self) {
            self.0.lock().remove(self.1);
        }
    }
    let served = Served(&shared.joint_queues, &row);
    loop {
        let members = shared.joint_queues.next(&row);
        if members.is_empty() {
            // It is gone already, and the next one is not this task's.
            std::mem::forget(served);
            return;
        }
        joint_transaction::run(&shared, members).await;
    }
}

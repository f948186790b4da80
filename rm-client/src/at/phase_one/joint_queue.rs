//! Branches that wait for one local transaction: to change a counter of one row in it, or, on
//! SQLite, to commit in it as the last branches of their globals.
//!
//! A row that many change is changed by one local transaction after the other, and each ends with a
//! sync of the database; on SQLite so are all rows. While one runs, branches gather here; the next
//! one takes them together, up to [`MEMBERS_MAX`], in few different numbers. Each is a branch of
//! its own global, with an undo row of its own. All of them hold the global locks of their rows
//! already.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_rm_core::plan::ComposedEnd;
use tokio::sync::oneshot;

use super::ahead::CountingStatement;
use super::attempts::Attempts;
use super::branch::{Branch, Role};
use super::composed::{self, ComposedStatement};
use super::joint_transaction;
use super::registration::{report_failed_unawaited, report_in_doubt};
use crate::at::database::bound_query::BoundQuery;
use crate::at::database::catalogue::{Managed, Planned};
use crate::at::database::{AtDatabase, Backend, Steps, affected};
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::last_commit::Known;

/// How many branches share a local transaction. More: the first of them waits for the last, and
/// rows of the undo log that one statement inserts. Fewer: less of a sync is saved.
const MEMBERS_MAX: usize = 32;

/// The queues of a resource. A queue is there as long as a task serves it. A branch in it is waited
/// for by its application, so there are no more than those are.
pub(crate) struct JointQueues<DB: Backend> {
    queues: Mutex<HashMap<QueueName, VecDeque<Member<DB>>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum QueueName {
    /// Those that change a counter of a row, by its table and its key.
    Counter(String, Box<[u8]>),
    /// Last branches.
    Last,
}

impl<DB: Backend> fmt::Debug for JointQueues<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointQueues").field("queues", &self.lock().len()).finish()
    }
}

impl<DB: Backend> Default for JointQueues<DB> {
    fn default() -> Self {
        Self { queues: Mutex::default() }
    }
}

impl<DB: Backend> JointQueues<DB> {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, VecDeque<Member<DB>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a branch. Returns whether its queue needs a task.
    fn enter(&self, name: QueueName, member: Member<DB>) -> bool {
        match self.lock().entry(name) {
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
    fn leave(&self, name: &QueueName, branch: u64) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(name) else { return false };
        let before = queue.len();
        queue.retain(|member| member.branch.id != branch);
        queue.len() < before
    }

    /// Takes the next branches: a power of two of them, so that the statements for all numbers of
    /// branches are few, and the database has them prepared. Without any, the queue is gone, and
    /// the next branch begins another.
    fn next(&self, name: &QueueName) -> Vec<Member<DB>> {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(name) else { return Vec::new() };
        let waiting = queue.len().min(MEMBERS_MAX);
        let together = waiting.checked_ilog2().map_or(0, |power| 1 << power);
        let members: Vec<Member<DB>> = queue.drain(..together).collect();
        if members.is_empty() {
            queues.remove(name);
        }
        members
    }
}

/// A branch that waits.
pub(super) struct Member<DB: Backend> {
    pub(super) branch: Branch,
    pub(super) query: BoundQuery<DB>,
    pub(super) managed: Managed,
    pub(super) work: JointWork<DB>,
    answer: oneshot::Sender<JointEnd<DB>>,
}

/// The reason why a branch is in a joint local transaction.
pub(super) enum JointWork<DB: Backend> {
    /// It changes a counter that others change too.
    Counter(Arc<CountingStatement<DB>>),
    /// It is the last one of its global, and changes a row given by whole numbers by this plan,
    /// where one local transaction writes at a time.
    Named(Arc<Planned<DB>>),
}

impl<DB: Backend> Clone for JointWork<DB> {
    fn clone(&self) -> Self {
        match self {
            Self::Counter(statement) => Self::Counter(Arc::clone(statement)),
            Self::Named(planned) => Self::Named(Arc::clone(planned)),
        }
    }
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
    /// Whether it may still commit without being registered again.
    pub(super) fn may_commit(&self) -> bool {
        match self.work {
            JointWork::Counter(_) => self.branch.keeps_its_place(),
            JointWork::Named(_) => self.branch.may_decide(),
        }
    }

    /// Whether the database composes its undo row.
    pub(super) fn is_composed(&self) -> bool {
        matches!(self.work, JointWork::Named(_))
    }

    /// Its composed statement, in a local transaction that it begins if it is
    /// the first one there. `None` for one that does not.
    pub(super) fn composed(
        &self,
        shared: &ResourceState<DB>,
        is_first: bool,
    ) -> Option<ComposedStatement<DB>> {
        let JointWork::Named(planned) = &self.work else { return None };
        let end = if is_first { ComposedEnd::Open } else { ComposedEnd::Within };
        let call = composed::call(shared, planned, &self.query, &self.branch, end)?;
        let (planned, row) = (Arc::clone(planned), self.branch.granted.clone());
        Some(ComposedStatement { planned, row, call, end })
    }

    /// Answers a branch. One that nothing waits for any more gives up its row if it has not
    /// committed.
    pub(super) fn answer(self, shared: &ResourceState<DB>, answer: JointEnd<DB>) {
        let Self { branch, answer: waits, .. } = self;
        if let JointEnd::Unknown(_) = &answer {
            branch.running.mark_in_doubt();
        }
        if let Err(JointEnd::Alone) = waits.send(answer) {
            report_failed_unawaited(shared, &branch);
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
        let branch = branch.clone();
        let Some((name, work)) = self.joint_work(&branch, query) else { return Ok(None) };
        // The marks of a guarded table are one branch's.
        if self.shared.catalogue.knows_guards() {
            return Ok(None);
        }
        let (query, managed) = (query.clone(), managed.clone());
        let (answer, answered) = oneshot::channel();
        let member = Member { branch: branch.clone(), query, managed, work: work.clone(), answer };
        // From here on a report that the branch has failed could be wrong.
        self.hand_over();
        branch.note_last_commit(Known::InDoubt);
        let waiting = Waiting { shared: &self.shared, name: &name, branch: &branch };
        if self.shared.joint_queues.enter(name.clone(), member) {
            tokio::spawn(serve(Arc::clone(&self.shared), name.clone()));
        }
        let lost = || JointEnd::Unknown("its task has ended".to_owned());
        let end = answered.await.unwrap_or_else(|_| lost());
        waiting.has_ended();
        match end {
            JointEnd::Committed(steps) => {
                if let JointWork::Named(_) = work {
                    self.report_joint_commit(&branch, affected::<DB>(&steps) > 0).await;
                }
                Ok(Some(steps))
            }
            JointEnd::Alone => {
                branch.note_last_commit_failed();
                self.take_back();
                Ok(None)
            }
            JointEnd::Unknown(reason) => {
                branch.running.mark_in_doubt();
                report_in_doubt(&self.shared, &branch);
                Err(AtError::CommitUnknown { reason }.into())
            }
        }
    }

    /// The queue of the branch, and the reason why it is there.
    fn joint_work(
        &self,
        branch: &Branch,
        query: &BoundQuery<DB>,
    ) -> Option<(QueueName, JointWork<DB>)> {
        if let Some(statement) = self.counting.clone() {
            let (table, key) = branch.granted.only()?;
            let name = QueueName::Counter(table.to_owned(), Box::from(key));
            return Some((name, JointWork::Counter(statement)));
        }
        let planned = self.named.clone().filter(|_| self.joins_writers())?;
        composed::call(&self.shared, &planned, query, branch, ComposedEnd::Within)?;
        Some((QueueName::Last, JointWork::Named(planned)))
    }
}

/// A wait that is cut off by a dropped future. The application may commit the global at once, and
/// the branch may have its local commit still to come: that must not be left to chance.
struct Waiting<'w, DB: Backend> {
    shared: &'w ResourceState<DB>,
    name: &'w QueueName,
    branch: &'w Branch,
}

impl<DB: Backend> Waiting<'_, DB> {
    fn has_ended(self) {
        std::mem::forget(self);
    }
}

impl<DB: Backend> Drop for Waiting<'_, DB> {
    fn drop(&mut self) {
        let Self { shared, name, branch } = self;
        if shared.joint_queues.leave(name, branch.id) {
            branch.note_last_commit_failed();
            report_failed_unawaited(shared, branch);
        } else {
            // The local transaction that it is in may commit, or has.
            report_in_doubt(shared, branch);
        }
    }
}

/// Serves a queue until it is empty.
async fn serve<DB: AtDatabase>(shared: Arc<ResourceState<DB>>, name: QueueName) {
    /// Lets go of those that wait, should the task end in the midst of its work.
    struct Served<'s, DB: Backend>(&'s JointQueues<DB>, &'s QueueName);
    impl<DB: Backend> Drop for Served<'_, DB> {
        fn drop(&mut self) {
            self.0.lock().remove(self.1);
        }
    }
    let served = Served(&shared.joint_queues, &name);
    loop {
        let members = shared.joint_queues.next(&name);
        if members.is_empty() {
            // It is gone already, and the next one is not this task's.
            std::mem::forget(served);
            return;
        }
        joint_transaction::run(&shared, members).await;
    }
}

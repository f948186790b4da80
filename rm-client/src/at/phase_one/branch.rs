//! The role of a local transaction in a global, and the branch that it may be.

use std::sync::Arc;

use handfast_rm_core::plan::{Dialect, Reads};
use tracing::Span;

use super::row_locks::RowLocks;
use crate::at::database::Backend;
use crate::at::error::AtError;
use crate::at::resource_state::ResourceState;
use crate::at::running_branches::{RunningBranch, RunningBranches};
use crate::context::{self, Context, OpenBranch};
use crate::last_commit::Known;
use crate::trace;
use crate::xid::Xid;

/// The part that the local transactions of a resource take in globals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Branches of the ambient global, or plain ones outside of any.
    Branch,
    /// The same, and a branch is the last one of its global.
    LastBranch,
    /// None: they are outside of any global, and respect the rows that globals hold.
    Checked,
}

/// The role of a local transaction in a global.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// None: exactly sqlx's transaction.
    Plain,
    /// None, but its commit respects the rows that globals hold.
    Checked(OnConflict),
    /// A branch of a global.
    Branch(Branch),
}

/// A branch, registered or to be.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) xid: Xid,
    pub(super) id: u64,
    /// Held until the local transaction has ended.
    pub(super) running: Arc<RunningBranch>,
    /// Held as long; restarted, it is the same work.
    _open: Arc<OpenBranch>,
    pub(super) reads: Reads,
    pub(super) on_conflict: OnConflict,
    /// Whether the coordinator may know of the branch.
    pub(super) registered: bool,
    /// The rows that were granted to it before its local transaction began.
    pub(super) granted: RowLocks,
    /// How many branches of the global this process had made on the resource before these rows were
    /// asked for, if it was the only open one.
    made_before: Option<u32>,
    /// Whether it is the last one of its global.
    is_last: bool,
    /// Whether its local commit decides the global.
    pub(super) decides: bool,
    /// Whether a crash of the coordinator may lose the branch: nothing else is stored of its
    /// global.
    pub(super) may_be_lost: bool,
    context: Context,
    /// From its beginning to its local COMMIT.
    pub(super) span: Span,
}

/// The action of a commit when another global holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    /// Wait, holding the database's locks.
    Wait,
    /// Fail, so that the caller can release them, wait with nothing held, and repeat.
    Fail,
}

impl Role {
    /// Returns the role of a local transaction that begins now.
    ///
    /// # Errors
    /// [`AtError::CheckedInsideGlobal`] and [`AtError::OutsideGlobal`].
    pub(super) fn of<DB: Backend>(
        shared: &ResourceState<DB>,
        part: Part,
        on_conflict: OnConflict,
    ) -> Result<Self, AtError> {
        if part == Part::Checked {
            return match context::current() {
                Some(Context { xid, .. }) => {
                    Err(AtError::CheckedInsideGlobal { xid: xid.to_string() })
                }
                None => Ok(Self::Checked(on_conflict)),
            };
        }
        let Some(context) = shared.context()? else { return Ok(Self::Plain) };
        let (branches, resource) = (&shared.branches, &shared.identity.resource_id);
        let branch = Branch::new(branches, resource, DB::DIALECT, context, on_conflict);
        Ok(Self::Branch(Branch { is_last: part == Part::LastBranch, ..branch }))
    }
}

impl Branch {
    fn new(
        branches: &Arc<RunningBranches>,
        resource: &str,
        dialect: Dialect,
        context: Context,
        on_conflict: OnConflict,
    ) -> Self {
        let reads = if context.read_committed { Reads::Committed } else { Reads::Local };
        let running = branches.start(&context.xid);
        let id = running.id;
        let span = trace::branch(&context.xid, id, resource, "AT", Some(dialect));
        Self {
            xid: context.xid.clone(),
            id,
            running,
            _open: Arc::new(context.open_branch()),
            reads,
            on_conflict,
            registered: false,
            granted: RowLocks::default(),
            made_before: None,
            is_last: false,
            decides: false,
            may_be_lost: false,
            context,
            span,
        }
    }

    /// Lets branches that are begun at the same time be counted, before this one is taken for the
    /// last. Its own work may not have waited for anything.
    pub(super) async fn let_others_begin(&self) {
        if self.is_last {
            tokio::task::yield_now().await;
        }
    }

    /// Returns whether its local commit may decide the global, as far as this process knows.
    pub(super) fn may_decide(&self) -> bool {
        self.is_last && self.context.may_be_decided()
    }

    /// Returns whether this process has made no other branch of the global.
    pub(super) fn is_only(&self) -> bool {
        self.context.has_one_branch()
    }

    /// Takes note that rows are asked for before the local transaction begins.
    pub(super) fn ask_ahead(&mut self) {
        self.made_before = self.running.made_if_alone();
    }

    /// Returns whether no other branch of the global can have changed the rows since they were
    /// asked for, as far as this process knows. Otherwise the branch has to register again, to be
    /// undone before that one.
    pub(super) fn keeps_its_place(&self) -> bool {
        self.decides
            || self.made_before.is_some() && self.made_before == self.running.made_if_alone()
    }

    /// Takes note of the local commit that decides the global.
    pub(super) fn note_last_commit(&self, known: Known) {
        if let Some(last_commit) = self.context.last_commit.as_ref().filter(|_| self.decides) {
            last_commit.set(known);
        }
    }

    /// Takes note that the local commit which was to decide the global has not happened.
    pub(super) fn note_last_commit_failed(&self) {
        if let Some(last_commit) = self.context.last_commit.as_ref().filter(|_| self.decides) {
            last_commit.note_failure();
        }
    }

    /// Returns another branch for the same work, of which the coordinator does not know.
    pub(super) fn restarted(
        &self,
        branches: &Arc<RunningBranches>,
        resource: &str,
        dialect: Dialect,
    ) -> Self {
        let running = branches.start(&self.xid);
        let id = running.id;
        let span = trace::branch(&self.xid, id, resource, "AT", Some(dialect));
        let granted = RowLocks::default();
        Self {
            id,
            running,
            registered: false,
            granted,
            made_before: None,
            decides: false,
            span,
            ..self.clone()
        }
    }
}

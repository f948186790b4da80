//! The ambient global: the XID that the running code is part of.
//!
//! It is a task-local that only [`scope`] sets, for the length of a future. There is no global
//! setter whose reset could be forgotten, and no thread-local that would leak into another request.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::futures::TaskLocalFuture;

use crate::error::Error;
use crate::last_commit::LastCommit;
use crate::link::BeginAnswer;
use crate::xid::Xid;

tokio::task_local! {
    /// `None` inside a scope that suspends the outer one (requires-new begins, not-supported).
    static CURRENT: Option<Context>;
}

/// The global that the running code is part of, and what this process knows about it.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The global.
    pub(crate) xid: Xid,
    /// Whether plain reads through AT resources wait for the global locks of other globals.
    pub(crate) read_committed: bool,
    /// The rollback-only flag of the code that began the global, if that is in this process.
    pub(crate) rollback_only: Option<Arc<AtomicBool>>,
    /// Whether code in this process has joined participants, whose votes take time.
    pub(crate) has_participants: Arc<AtomicBool>,
    /// The branches that code in this process has made.
    pub(crate) branches: Arc<BranchCounts>,
    /// The local commit of the last branch. `None` where none can decide the global, such as where
    /// it began elsewhere.
    pub(crate) last_commit: Option<Arc<LastCommit>>,
    /// The answer to the begin, if that was not waited for.
    pub(crate) begin_answer: Option<Arc<BeginAnswer>>,
}

impl Context {
    /// The context of a global that began elsewhere.
    pub(crate) fn new(xid: Xid) -> Self {
        let (has_participants, branches) = (Arc::default(), Arc::default());
        let (rollback_only, last_commit, begin_answer) = (None, None, None);
        let read_committed = false;
        Self {
            xid,
            read_committed,
            rollback_only,
            has_participants,
            branches,
            last_commit,
            begin_answer,
        }
    }

    /// Returns whether the local commit of a last branch may decide the global, as far as this
    /// process knows. The branch is open itself.
    pub(crate) fn may_be_decided(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let rolls_back = self.rollback_only.as_deref().is_some_and(is_set);
        // Another one may fail yet, and would have been committed without.
        let is_alone = self.branches.open.load(Ordering::Acquire) <= 1;
        self.last_commit.is_some() && !rolls_back && !is_set(&self.has_participants) && is_alone
    }

    /// Counts a branch as open, as long as what is returned lives.
    pub(crate) fn open_branch(&self) -> OpenBranch {
        self.branches.made.fetch_add(1, Ordering::AcqRel);
        self.branches.open.fetch_add(1, Ordering::AcqRel);
        OpenBranch(Arc::clone(&self.branches))
    }

    /// Returns whether code in this process has made no more than one branch.
    pub(crate) fn has_one_branch(&self) -> bool {
        self.branches.made.load(Ordering::Acquire) <= 1
    }
}

/// Counts the branches of a global that code in this process has made.
#[derive(Debug, Default)]
pub(crate) struct BranchCounts {
    made: AtomicUsize,
    /// Those of them that may still commit.
    open: AtomicUsize,
}

/// A branch that may still commit, in the counts of its global.
#[derive(Debug)]
pub(crate) struct OpenBranch(Arc<BranchCounts>);

impl Drop for OpenBranch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the context of the running code, if that is part of a global.
pub(crate) fn current() -> Option<Context> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Returns the XID that the running code is part of, if any.
///
/// The XID is set by [`run`](crate::NewTransaction::run), by
/// [`Global::scope`](crate::Global::scope), by the server [layer](crate::propagation) and by
/// [`Xid::scope`](crate::Xid::scope).
///
/// The coordinator may not know the global yet: see [`begun_xid`].
#[must_use]
pub fn current_xid() -> Option<Xid> {
    CURRENT.try_with(|context| context.as_ref().map(|context| context.xid.clone())).ok().flatten()
}

/// Returns the XID that the running code is part of, if any, when the coordinator knows the global.
///
/// A global may be begun without waiting for the coordinator's answer. Code that hands its XID to
/// another process by itself, in a message or by a header of its own, calls this in place of
/// [`current_xid`]: the other process could otherwise ask the coordinator before that has begun the
/// global, and be refused. The [propagation](crate::propagation) layers do the same.
///
/// ```
/// # async fn publish(xid: String) {}
/// # async fn example() -> Result<(), handfast::Error> {
/// if let Some(xid) = handfast::begun_xid().await? {
///     publish(xid.to_string()).await;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The coordinator has refused to begin the global, or has not answered in time.
pub async fn begun_xid() -> Result<Option<Xid>, Error> {
    begun().await?;
    Ok(current_xid())
}

/// Waits until the coordinator has begun the global of the running code.
pub(crate) async fn begun() -> Result<(), Error> {
    match begin_answer() {
        Some(answer) => answer.wait().await.map(drop),
        None => Ok(()),
    }
}

/// Returns the answer to the begin of the global of the running code, if it was not waited for.
pub(crate) fn begin_answer() -> Option<Arc<BeginAnswer>> {
    let answer = |context: &Option<Context>| context.as_ref()?.begin_answer.clone();
    CURRENT.try_with(answer).ok().flatten()
}

/// A future that runs in a given context, or outside any global.
pub(crate) type Scoped<F> = TaskLocalFuture<Option<Context>, F>;

/// Runs a future in the given context, or outside any global.
pub(crate) fn scope<F: Future>(context: Option<Context>, future: F) -> Scoped<F> {
    CURRENT.scope(context, future)
}

/// Runs a future in the context of the code that polls it first. If that code is in no scope, the
/// future runs in the context of the code that created it.
///
/// In `global.scope(resource.execute(sql))` a statement is created and awaited in different places:
/// the argument is evaluated outside the scope, and the resulting future is polled inside it.
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(dead_code, reason = "statements alone are made and awaited in different places")
)]
pub(crate) fn scope_of_poll<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let created_in = current();
    async move {
        let context = CURRENT.try_with(Clone::clone).unwrap_or(created_in);
        scope(context, future).await
    }
}

/// Runs a function in the given context.
pub(crate) fn sync_scope<R>(context: Option<Context>, function: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(context, function)
}

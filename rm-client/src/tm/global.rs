//! A global that this process has begun and must decide.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast_proto::v1::{BeginRequest, Decision, EndRequest, ReplyWhen};
use handfast_rm_core::GlobalStatus;
use tokio::time::Instant;

use super::error::{EndError, RollbackCause, TransactionError};
use crate::connect::Handfast;
use crate::context::{self, Context};
use crate::error::{Error, RejectionDetail};
use crate::xid::Xid;

/// The coordinator's code for an XID that it has no memory of.
const UNKNOWN_XID: &str = "HF-TC-UNKNOWN-XID";

/// A global that was begun explicitly, with [`begin`](crate::NewTransaction::begin).
///
/// Dropped undecided, it is rolled back: the request is queued at once and sent in the background,
/// without waiting and without an answer. If that request gets lost, because the process ends or
/// the coordinator is away for longer than the request deadline, the coordinator rolls back at the
/// global's timeout.
///
/// ```no_run
/// # async fn example(handfast: handfast::Handfast) -> Result<(), Box<dyn std::error::Error>> {
/// let global = handfast.transaction("move-stock").begin().await?;
/// global.scope(async { /* branches */ }).await;
/// global.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a global that is dropped is rolled back"]
pub struct Global {
    handfast: Handfast,
    context: Context,
    rollback_only: Arc<AtomicBool>,
    deadline: Instant,
    /// Asks participants whether they can commit before they are asked to prepare.
    can_commit_first: bool,
    /// Whether a decision has been asked for: then a drop must not ask for another.
    decided: bool,
}

/// What came of asking for a rollback.
enum Undone {
    Finished,
    UnderWay(Option<Error>),
    NeedsOperator,
    Forgotten,
    Committed,
}

impl Global {
    pub(super) async fn begin(
        handfast: Handfast,
        name: String,
        timeout: Option<Duration>,
        read_committed: bool,
        can_commit_first: bool,
    ) -> Result<Self, Error> {
        let application = handfast.application().to_owned();
        let timeout_ms = timeout.map_or(0, at_least_one_ms);
        let request = BeginRequest { application, name, timeout_ms };
        let reply = handfast.coordinator().begin(request).await?;
        let rollback_only = Arc::new(AtomicBool::new(false));
        let context = Context {
            xid: Xid::new(&reply.xid)?,
            read_committed,
            rollback_only: Some(Arc::clone(&rollback_only)),
            has_participants: Arc::default(),
        };
        // The coordinator's own deadline is the one that counts; this one, a little later, saves
        // asking in vain.
        let deadline = Instant::now() + Duration::from_millis(reply.timeout_ms);
        Ok(Self { handfast, context, rollback_only, deadline, can_commit_first, decided: false })
    }

    /// Its id.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.context.xid
    }

    /// Runs a future within this global: local transactions that it begins become branches of it,
    /// and calls that it makes through the [propagation](crate::propagation) layers carry it.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        context::scope(Some(self.context.clone()), future)
    }

    /// Lets [`commit`](Self::commit) roll back instead.
    pub fn set_rollback_only(&self) {
        self.rollback_only.store(true, Ordering::Release);
    }

    /// Commits. Ok when the decision is durable; what is left to do for the branches, deleting undo
    /// logs, follows in the background.
    ///
    /// Rolls back instead, and says so, when the global was set rollback-only or its time is over.
    ///
    /// # Errors
    /// How it did not commit. A commit without an answer is [`TransactionError::Unknown`] and is
    /// never followed by a rollback, also not when this future is dropped.
    pub async fn commit(self) -> Result<(), EndError> {
        self.commit_or().await
    }

    /// Rolls back and waits until every branch is undone. `reason` is for operators; its first
    /// 1,024 bytes are kept.
    ///
    /// # Errors
    /// Every way in which it is not rolled back and finished.
    pub async fn rollback(self, reason: &str) -> Result<(), EndError> {
        let end = self.undo(reason, RollbackCause::Requested).await;
        if let TransactionError::RolledBack { .. } = end { Ok(()) } else { Err(end) }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) async fn commit_or<E>(mut self) -> Result<(), TransactionError<E>> {
        if self.rollback_only.load(Ordering::Acquire) {
            return Err(self.undo("set rollback-only", RollbackCause::RollbackOnly).await);
        }
        if Instant::now() >= self.deadline {
            return Err(self.undo("not committed in time", RollbackCause::Timeout).await);
        }
        // The votes may take until the deadline, at which the coordinator answers.
        let voting = self.can_commit_first || self.context.has_participants.load(Ordering::Acquire);
        let left = self.deadline.duration_since(Instant::now());
        let wait = if voting { left } else { Duration::ZERO };
        match self.end(Decision::Commit, ReplyWhen::Decided, "", wait).await {
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => Ok(()),
            Ok(
                GlobalStatus::RollingBack(reason)
                | GlobalStatus::RolledBack(reason)
                | GlobalStatus::NeedsOperator(reason),
            ) => Err(self.undo("commit refused", reason.into()).await),
            Ok(status @ (GlobalStatus::Active | GlobalStatus::Unknown | _)) => {
                let source =
                    Error::UnexpectedAnswer { request: "end", got: format!("status {status}") };
                Err(TransactionError::Unknown { xid: self.context.xid.clone(), source })
            }
            Err(source) => Err(TransactionError::Unknown { xid: self.context.xid.clone(), source }),
        }
    }

    /// Asks for a rollback, or waits for one that is decided, and tells how far it came.
    pub(super) async fn undo<E>(
        mut self,
        reason: &str,
        by: RollbackCause<E>,
    ) -> TransactionError<E> {
        let wait = self.handfast.rollback_wait();
        let undone = match self.end(Decision::RollBack, ReplyWhen::Finished, reason, wait).await {
            Ok(GlobalStatus::RolledBack(_)) => Undone::Finished,
            Ok(GlobalStatus::NeedsOperator(_)) => Undone::NeedsOperator,
            Ok(GlobalStatus::Committing | GlobalStatus::Committed) => Undone::Committed,
            Ok(GlobalStatus::RollingBack(_)) => Undone::UnderWay(None),
            Ok(GlobalStatus::Active) => Undone::UnderWay(Some(Error::UnexpectedAnswer {
                request: "end",
                got: "status active".to_owned(),
            })),
            Ok(GlobalStatus::Unknown | _) => Undone::Forgotten,
            Err(error) if error.code() == UNKNOWN_XID => Undone::Forgotten,
            Err(error) => Undone::UnderWay(Some(error)),
        };
        let xid = self.context.xid.clone();
        match undone {
            Undone::Finished => TransactionError::RolledBack { xid, by },
            Undone::UnderWay(source) => TransactionError::RollingBack { xid, by, source },
            Undone::NeedsOperator => TransactionError::NeedsOperator { xid, by },
            Undone::Forgotten => TransactionError::Forgotten { xid, by },
            Undone::Committed => TransactionError::Committed { xid, by },
        }
    }

    /// Asks for a decision and tells how the global stands, also when another one was taken before.
    async fn end(
        &mut self,
        decision: Decision,
        reply_when: ReplyWhen,
        reason: &str,
        wait: Duration,
    ) -> Result<GlobalStatus, Error> {
        // Before the first await: from here on the outcome may be unknown, and a dropped future
        // must not ask for the opposite. A rollback that is dropped may not have been sent: it is
        // asked for again.
        self.decided |= decision == Decision::Commit;
        let request = EndRequest {
            xid: self.context.xid.as_str().to_owned(),
            decision: decision.into(),
            reply_when: reply_when.into(),
            reason: reason.to_owned(),
            can_commit_first: self.can_commit_first,
        };
        let ended = self.handfast.coordinator().end(request, wait).await;
        self.decided = true;
        match ended {
            Ok(reply) => Ok(GlobalStatus::from_wire(reply.status(), reply.rollback_reason())),
            Err(Error::Rejected(rejection)) => match rejection.detail() {
                RejectionDetail::AlreadyDecided { status } => Ok(*status),
                RejectionDetail::Plain
                | RejectionDetail::RowLocked { .. }
                | RejectionDetail::RowNeedsOperator { .. }
                | RejectionDetail::Deadlock { .. }
                | _ => Err(Error::Rejected(rejection)),
            },
            Err(error) => Err(error),
        }
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        if self.decided {
            return;
        }
        let xid = &self.context.xid;
        match self.handfast.coordinator().abandon(xid, "dropped undecided") {
            Ok(()) => tracing::info!(%xid, "dropped undecided: rolling back"),
            Err(error) => {
                tracing::warn!(%xid, %error, "dropped undecided: left to its timeout");
            }
        }
    }
}

impl fmt::Debug for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global").field("xid", self.xid()).finish_non_exhaustive()
    }
}

/// 0 would ask for the coordinator's default.
fn at_least_one_ms(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1)
}

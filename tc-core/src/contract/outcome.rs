//! The outcome of a decision: changes to be stored, and effects that leave when they may.

use std::sync::Arc;

use super::id::{BranchId, Correlation, FencingToken, Xid};
use super::loan::XidLoan;
use super::named_lock::LockHeld;
use super::record::{Record, RecordKey};
use super::rejection::Rejection;
use super::request::{Decision, Mode, Resolution, VoteRequest};
use super::saga_record::{SagaRecord, StepCall};
use super::status::GlobalStatus;
use super::trace::CallTrace;

/// The result of one or more calls of [`Coordinator::decide`](crate::Coordinator::decide).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Changes to be stored, in this order. Each effect says what must be stored before it leaves
    /// ([`After`]).
    pub changes: Vec<Change>,
    /// Replies and phase-two calls. Each may be sent twice; receivers are idempotent
    /// (EFFECTS-REPEAT).
    pub effects: Vec<Effect>,
    /// Whether a commit is decided that a crash would undo before it is stored. Its rows are free.
    pub has_committed: bool,
}

/// One change of the stored records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes a record under its key.
    Put(Record),
    /// Removes a record.
    Delete(RecordKey),
}

impl Change {
    /// Returns the key of the record that it changes.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Put(record) => record.key(),
            Self::Delete(key) => *key,
        }
    }
}

/// Something that leaves the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The answer to a request; a lock grant is one that comes later.
    Reply {
        /// The request that is answered.
        to: Correlation,
        /// The answer.
        reply: Reply,
        /// When it may leave.
        when: After,
    },
    /// Phase two of a branch is due at once. For a branch that the dispatcher already knows it
    /// means "now", whatever the back-off.
    PhaseTwo(PhaseTwoCall),
    /// A participant is to be asked, at once.
    Vote(VoteCall),
    /// Neither votes nor phase two of this global, or of this branch alone, must be tried until
    /// further calls come.
    Hold {
        /// The global.
        xid: Xid,
        /// The branch, if it is that one alone.
        branch: Option<BranchId>,
    },
    /// An alert for operators. Sent once each time; after a crash
    /// [`Coordinator::alerts`](crate::Coordinator::alerts) has those whose cause stands.
    Alert(Alert),
}

impl Effect {
    /// When the effect may leave. Only a reply ever leaves before its batch.
    #[must_use]
    pub fn when(&self) -> After {
        match self {
            Self::Reply { when, .. } => *when,
            // It deletes undo rows, of rows that are released already.
            Self::PhaseTwo(PhaseTwoCall { mode: Mode::At, decision: Decision::Commit, .. }) => {
                After::AnyBatch
            }
            Self::PhaseTwo(_) | Self::Vote(_) | Self::Hold { .. } | Self::Alert(_) => After::Batch,
        }
    }
}

/// The condition under which an effect leaves (DURABLE-FIRST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Every change decided up to it is durable, as soon as can be.
    Batch,
    /// Every change decided up to it is durable. Nothing waits for that, so that the changes may be
    /// kept for a while, to be stored together with later ones.
    AnyBatch,
    /// Every commit decided up to it is durable that a crash would undo
    /// ([`Outcome::has_committed`]): the rows that it has made free stay so.
    Commits,
    /// Nothing: the reply tells of no change that a crash could undo.
    Nothing,
}

/// Whether a decided request has its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The reply, if one was asked for, is among the effects.
    Answered,
    /// The reply comes with a later decision.
    Waits,
}

/// An alert for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The kind of thing that has happened.
    pub kind: AlertKind,
    /// The global or saga.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch that the alert is about.
    pub branch: BranchId,
    /// The resource that it is on.
    pub resource: Arc<str>,
    /// The last error of the branch.
    pub error: Arc<str>,
    /// Distinguishes this time from others for the same branch; the same after a restart.
    pub occasion: u32,
    /// The name of a saga's step, behind those of the children that it is in.
    pub step: Option<Arc<str>>,
    /// The key of a saga.
    pub key: Option<Arc<str>>,
}

/// The kinds of alerts for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertKind {
    /// A global or saga begins to need an operator.
    NeedsOperator,
    /// A step of a saga has failed too often or taken too long, and the saga is compensated.
    StepGivenUp,
}

/// Phase two of one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseTwoCall {
    /// The global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch.
    pub branch: BranchId,
    /// The resource that must carry it out.
    pub resource: Arc<str>,
    /// The branch's mode.
    pub mode: Mode,
    /// The decision to carry out.
    pub decision: Decision,
    /// An operator's word on how a dirty write ends.
    pub resolution: Option<Resolution>,
    /// As registered.
    pub application_data: Box<[u8]>,
    /// Failed attempts so far; the dispatcher's back-off starts from here after a restart.
    pub attempts: u32,
    /// Set for a step of a saga: `Commit` calls its action, `RollBack` its compensation.
    pub step: Option<Arc<StepCall>>,
    /// The process that registered the branch, where that is known: the one to ask first.
    pub registered_by: Option<Arc<str>>,
    /// The spans that its own follows from, if the global or the branch stands in a trace.
    pub trace: Option<Box<CallTrace>>,
}

/// A question to a participant before a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteCall {
    /// The global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch.
    pub branch: BranchId,
    /// The resource whose branch it is.
    pub resource: Arc<str>,
    /// The branch's mode.
    pub mode: Mode,
    /// The question.
    pub question: VoteRequest,
    /// As registered.
    pub application_data: Box<[u8]>,
    /// The process that registered the branch, where that is known: the one to ask first.
    pub registered_by: Option<Arc<str>>,
    /// The spans that its own follows from, if the global or the branch stands in a trace.
    pub trace: Option<Box<CallTrace>>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Begin`.
    Begun {
        /// The new global.
        xid: Xid,
        /// The address part of the XID's text form.
        address: Arc<str>,
        /// The timeout in force.
        timeout_ms: u64,
        /// How the global stands that has the key or the lent XID of the begin already, unless the
        /// same client has begun it and nothing has been done in it: the reply may have been lost.
        found: Option<GlobalStatus>,
        /// XIDs for later begins, if the begin wanted some and there is room to lend.
        loan: Option<XidLoan>,
    },
    /// To `RegisterBranch` and `RegisterLastBranch`: the branch exists and holds its rows.
    Registered {
        /// Fencing token of the grant.
        token: FencingToken,
        /// Whether its local commit decides the global.
        decides: bool,
        /// Whether a crash may take the branch, and with it the whole global, from the
        /// coordinator. The local commit is the outcome then, too.
        may_be_lost: bool,
    },
    /// To `ReportBranch` and `ReportDatabaseWait`, and to `FinishPhaseTwo` where a reply is waited
    /// for.
    Reported,
    /// To `ReportBranch` of the local commit that has decided the global: its caller has been
    /// answered already.
    LastReported,
    /// To `CheckLocks`: no other global holds the rows.
    Unlocked,
    /// To `End`: decided, and the status after it.
    Ended(GlobalStatus),
    /// To `GetStatus`.
    Status(GlobalStatus),
    /// To `Operate`: carried out, and how the global stands after it.
    Operated(GlobalStatus),
    /// To every request about a saga.
    Saga(Box<SagaRecord>),
    /// To `AcquireLock`: held from here on.
    LockGranted {
        /// Larger than that of every earlier holder.
        fence: FencingToken,
        /// How long the request that is answered waited here: the lease began so long after it
        /// came.
        waited_ms: u64,
    },
    /// To `AcquireLock`: not granted, and not waiting any more.
    LockBusy {
        /// A holder of the lock.
        holder: Option<LockHeld>,
    },
    /// To `FindLock`.
    LockFound {
        /// A holder of the lock.
        holder: Option<LockHeld>,
    },
    /// To `RenewLocks`.
    LocksRenewed {
        /// Whether each was renewed, in the order of the request. One that was not may still be
        /// held for less.
        held: Vec<bool>,
    },
    /// To `ReleaseLock`: it was held until then.
    LockFreed,
    /// To `ReleaseLock`: it was not held, and its holder was not touched.
    LockNotHeld {
        /// A holder of the lock.
        current: Option<LockHeld>,
    },
    /// To `BreakLock`.
    LockBroken {
        /// How many leases were ended.
        leases: usize,
    },
    /// The request was understood and is refused.
    Rejected(Rejection),
}

impl Reply {
    /// Returns when the reply may leave that a request has at once (DURABLE-FIRST).
    pub(crate) fn leaves_after(&self, is_to_begin: bool) -> After {
        match self {
            // A begin is stored nowhere, and its reply says nothing of other changes (decision
            // 0002), unless it says how a known global stands.
            Self::Begun { found: None, .. } => After::Nothing,
            Self::Rejected(_) if is_to_begin => After::Nothing,
            // It says only what its receiver knows: that it does not hold the lock (decision 0011).
            Self::LockFreed => After::Nothing,
            // Its receiver needs no record of the branch, but free rows that stay free (decision
            // 0048).
            Self::Registered { may_be_lost: true, .. } => After::Commits,
            // Its receiver has told its caller already, and waits for nothing.
            Self::LastReported => After::AnyBatch,
            Self::Begun { found: Some(_), .. }
            | Self::Registered { may_be_lost: false, .. }
            | Self::Reported
            | Self::Unlocked
            | Self::Ended(_)
            | Self::Status(_)
            | Self::Operated(_)
            | Self::Saga(_)
            | Self::LockGranted { .. }
            | Self::LockBusy { .. }
            | Self::LockFound { .. }
            | Self::LocksRenewed { .. }
            | Self::LockNotHeld { .. }
            | Self::LockBroken { .. }
            | Self::Rejected(_) => After::Batch,
        }
    }
}

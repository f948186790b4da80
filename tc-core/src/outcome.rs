//! What a decision leads to: changes to be stored, then effects to be let out.

use std::fmt;
use std::sync::Arc;

use crate::lease::{LockHeld, LockToken};
use crate::party::ShareOf;
use crate::people::{
    cycle_for_people, key_for_people, parts_for_people, reason_for_people, status_for_people,
    xid_for_people,
};
use crate::record::{Record, RecordKey};
use crate::request::{Decision, Mode, Question, Resolution};
use crate::saga::{SagaFault, SagaRecord, SagaStatus, StepCall};
use crate::{BranchId, Correlation, FencingToken, Xid};

/// The result of one or more calls of [`Coordinator::decide`](crate::Coordinator::decide).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What must be stored, in this order, before any effect of this or a later outcome leaves
    /// (DURABLE-FIRST).
    pub changes: Vec<Change>,
    /// Replies and phase-two calls. Each may be sent twice; receivers are idempotent
    /// (EFFECTS-REPEAT).
    pub effects: Vec<Effect>,
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
    /// Which record it changes.
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
        /// Whom to answer.
        to: Correlation,
        /// The answer.
        reply: Reply,
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
    /// A global or saga begins to need an operator: operators are to be told. Said once each time
    /// that it begins; after a crash its record says it.
    NeedsOperator(OperatorNeeded),
}

/// The branch for whose sake a global begins to need an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorNeeded {
    /// The global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch.
    pub branch: BranchId,
    /// The resource that it is on.
    pub resource: Arc<str>,
    /// Why it cannot be ended.
    pub error: Arc<str>,
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
    /// What to carry out.
    pub decision: Decision,
    /// An operator's word on how a dirty write ends.
    pub resolution: Option<Resolution>,
    /// As registered.
    pub application_data: Box<[u8]>,
    /// Failed attempts so far; the dispatcher's back-off starts from here after a restart.
    pub attempts: u32,
    /// Of a step of a saga: `Commit` calls its action, `RollBack` its compensation.
    pub step: Option<Arc<StepCall>>,
    /// The process that registered the branch, where that is known: the one to ask first.
    pub registered_by: Option<Arc<str>>,
}

/// What a participant is asked before a commit.
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
    /// What it is asked.
    pub question: Question,
    /// As registered.
    pub application_data: Box<[u8]>,
    /// The process that registered the branch, where that is known: the one to ask first.
    pub registered_by: Option<Arc<str>>,
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
    },
    /// To `RegisterBranch`: the branch exists and holds its rows.
    Registered {
        /// Fencing token of the grant.
        token: FencingToken,
    },
    /// To `ReportBranch`, and to `FinishPhaseTwo` where a reply is waited for.
    Reported,
    /// To `CheckLocks`: no other global holds the rows.
    Unlocked,
    /// To `End` and `GetStatus`.
    Status(GlobalStatus),
    /// To `Operate`: carried out, and how the global stands after it.
    Operated(GlobalStatus),
    /// To what is asked about a saga, or of one.
    Saga(Box<SagaRecord>),
    /// To `AcquireLock`: held from here on.
    LockGranted {
        /// Larger than that of every earlier holder.
        fence: FencingToken,
        /// How long the request that is answered waited here: the lease began so long after it
        /// came.
        waited_ms: u64,
    },
    /// To `AcquireLock`: not, or not any more, in the queue. To `FindLock`.
    LockBusy {
        /// Who holds it.
        holder: Option<LockHeld>,
    },
    /// To `RenewLocks`.
    LocksRenewed {
        /// Of each, in the order of the request, whether it is held.
        held: Vec<bool>,
    },
    /// To `ReleaseLock`: it was held until then.
    LockFreed,
    /// To `ReleaseLock`: it was not held, and who holds it was not touched.
    LockNotHeld {
        /// Who holds it.
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

/// How a global stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalStatus {
    /// No memory of it: never begun, begun without a branch before a restart, or forgotten.
    Unknown,
    /// Undecided.
    Active,
    /// Decided, branches to be finished.
    Committing,
    /// Finished.
    Committed,
    /// Decided, branches to be finished.
    RollingBack(RollbackReason),
    /// Finished.
    RolledBack(RollbackReason),
    /// Rolling back, and a branch refuses without a person.
    NeedsOperator(RollbackReason),
}

impl fmt::Display for GlobalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, reason) = status_for_people(*self);
        f.write_str(text)?;
        reason.map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// A [`GlobalStatus`] without its reason, for filters and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusKind {
    /// No memory of it.
    Unknown,
    /// Undecided.
    Active,
    /// Decided for commit, branches to be finished.
    Committing,
    /// Finished.
    Committed,
    /// Decided for rollback, branches to be finished.
    RollingBack,
    /// Finished.
    RolledBack,
    /// Rolling back, and a branch refuses without a person.
    NeedsOperator,
}

impl GlobalStatus {
    /// A history without room forgets at once what has ended: then it ended like this.
    pub(crate) fn or_if_forgotten(self, end: Self) -> Self {
        if self == Self::Unknown { end } else { self }
    }

    /// The status without its reason.
    #[must_use]
    pub fn kind(self) -> StatusKind {
        match self {
            Self::Unknown => StatusKind::Unknown,
            Self::Active => StatusKind::Active,
            Self::Committing => StatusKind::Committing,
            Self::Committed => StatusKind::Committed,
            Self::RollingBack(_) => StatusKind::RollingBack,
            Self::RolledBack(_) => StatusKind::RolledBack,
            Self::NeedsOperator(_) => StatusKind::NeedsOperator,
        }
    }
}

/// Why a global is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollbackReason {
    /// The TM asked for it.
    Requested,
    /// Its time ran out.
    Timeout,
    /// A branch does not know whether its local transaction was committed.
    BranchUnknown,
    /// A person asked for it.
    Operator,
    /// A participant was asked to prepare, or whether it could, and refuses.
    Refused,
}

impl fmt::Display for RollbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(reason_for_people(*self))
    }
}

/// Why a request is refused. Each variant has a stable [`code`](Rejection::code).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The coordinator has no memory of the XID.
    #[error(
        "xid {0} is unknown: it was never begun, had no branch when the coordinator restarted or \
         its client had gone, or finished longer ago than the retention"
    )]
    UnknownXid(Xid),
    /// The global is decided: nothing can be registered, and the other decision cannot be taken.
    #[error("xid {xid} is already decided: {status}")]
    AlreadyDecided {
        /// The global.
        xid: Xid,
        /// How it stands.
        status: GlobalStatus,
    },
    /// The participants of the global are being asked for their votes: nothing joins it any more.
    #[error("xid {0} is being committed: its participants are asked, and no branch can join")]
    Voting(Xid),
    /// A row is locked by another global and the request may not, or may no longer, wait.
    #[error("row {table}/{} is locked by xid {by}", key_for_people(.key))]
    RowLocked {
        /// The table.
        table: Arc<str>,
        /// The canonical key.
        key: Box<[u8]>,
        /// The holder.
        by: Xid,
        /// The address part of the holder's text form.
        by_address: Arc<str>,
        /// Whether the holder is rolling back and may need what the requester holds.
        holder_rolling_back: bool,
    },
    /// A row is held by a branch whose rollback needs an operator: waiting would end when a person
    /// has come.
    #[error(
        "row {table}/{} is held by xid {holder}, which needs an operator: look at it with \
         `handfast tx show {holder}`",
        key_for_people(.key),
        holder = xid_for_people(.by_address, *.by)
    )]
    RowNeedsOperator {
        /// The table.
        table: Arc<str>,
        /// The canonical key.
        key: Box<[u8]>,
        /// The holder.
        by: Xid,
        /// The address part of the holder's text form.
        by_address: Arc<str>,
    },
    /// Waiting would close a cycle.
    #[error("deadlock: {}", cycle_for_people(.cycle))]
    Deadlock {
        /// Each waits for the next, the last for the first; the refused one comes first.
        cycle: Vec<(Xid, Arc<str>)>,
    },
    /// No such branch in the global.
    #[error("branch {branch} of xid {xid} is unknown")]
    UnknownBranch {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
    },
    /// The branch id is taken by a branch of another resource or mode.
    #[error("branch {branch} of xid {xid} is registered for another resource or mode")]
    BranchMismatch {
        /// The global.
        xid: Xid,
        /// The branch.
        branch: BranchId,
    },
    /// The operator's action does not fit the state of the global or branch.
    #[error("{action} does not apply to xid {xid}: it is {status}")]
    NotApplicable {
        /// The global.
        xid: Xid,
        /// What was asked.
        action: &'static str,
        /// How the global stands.
        status: GlobalStatus,
    },
    /// A saga that could not be carried out, or would not end.
    #[error("saga {name} is refused: {fault}")]
    SagaInvalid {
        /// Its name.
        name: Arc<str>,
        /// What is wrong with it.
        fault: SagaFault,
    },
    /// The key belongs to another saga.
    #[error("saga key {key} is taken by xid {xid}, whose definition is another one")]
    SagaMismatch {
        /// The key.
        key: Arc<str>,
        /// The saga that has it.
        xid: Xid,
    },
    /// The saga has no step that waits for such a signal, or not any more.
    #[error("saga {xid} awaits no signal {signal}")]
    UnknownSignal {
        /// The saga.
        xid: Xid,
        /// The signal.
        signal: Arc<str>,
    },
    /// The saga's pivot has begun, or the saga has ended: it cannot be taken back.
    #[error("saga {xid} is past the point of no return: it is {status}")]
    PastPivot {
        /// The saga.
        xid: Xid,
        /// How it stands.
        status: SagaStatus,
    },
    /// Others hold parts of another size of a named lock.
    #[error("lock {name} is in use with {}", parts_for_people(*.of))]
    LockParts {
        /// The lock.
        name: Arc<str>,
        /// How many parts it has for them.
        of: u32,
    },
    /// The acquisition belongs to another named lock, or waits for another share of it.
    #[error("acquisition {token} is of another lock or share")]
    LockTokenTaken {
        /// The acquisition.
        token: LockToken,
    },
    /// A named lock is held by a global that rolls back, and may need what the requester holds.
    #[error("lock {name} is held by xid {by}, which is rolling back")]
    LockRollingBack {
        /// The lock.
        name: Arc<str>,
        /// The holder.
        by: Xid,
        /// The address part of the holder's text form.
        by_address: Arc<str>,
    },
    /// Nobody holds the named lock, or not that acquisition.
    #[error("nobody holds lock {name}")]
    LockNotHeld {
        /// The lock.
        name: Arc<str>,
    },
    /// A connection or an application has its share of a limit (BOUNDED): others may still have
    /// theirs.
    #[error("share reached: {of} has {max} {what}, as many as one may: end some, or raise {}",
        .of.setting())]
    ShareReached {
        /// Whose.
        of: ShareOf,
        /// What is limited.
        what: &'static str,
        /// The share.
        max: u64,
    },
    /// A limit of the coordinator is reached (BOUNDED).
    #[error("limit reached: at most {max} {what}")]
    LimitReached {
        /// What is limited.
        what: &'static str,
        /// The limit.
        max: u64,
    },
}

impl Rejection {
    /// What [`Rejection::LimitReached`] and [`Rejection::ShareReached`] name where there is no room
    /// for another one who waits.
    pub const WAITING_REQUESTS: &'static str = "waiting requests";

    /// The stable name of the refusal, as listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownXid(_) => "HF-TC-UNKNOWN-XID",
            Self::AlreadyDecided { .. } => "HF-TC-ALREADY-DECIDED",
            Self::Voting(_) => "HF-TC-VOTING",
            Self::RowLocked { .. } => "HF-TC-ROW-LOCKED",
            Self::RowNeedsOperator { .. } => "HF-TC-ROW-NEEDS-OPERATOR",
            Self::Deadlock { .. } => "HF-TC-DEADLOCK",
            Self::UnknownBranch { .. } => "HF-TC-UNKNOWN-BRANCH",
            Self::BranchMismatch { .. } => "HF-TC-BRANCH-MISMATCH",
            Self::NotApplicable { .. } => "HF-TC-NOT-APPLICABLE",
            Self::SagaInvalid { .. } => "HF-TC-SAGA-INVALID",
            Self::SagaMismatch { .. } => "HF-TC-SAGA-MISMATCH",
            Self::UnknownSignal { .. } => "HF-TC-UNKNOWN-SIGNAL",
            Self::PastPivot { .. } => "HF-TC-PAST-PIVOT",
            Self::LockParts { .. } => "HF-TC-LOCK-PARTS",
            Self::LockTokenTaken { .. } => "HF-TC-LOCK-TOKEN-TAKEN",
            Self::LockRollingBack { .. } => "HF-TC-LOCK-ROLLING-BACK",
            Self::LockNotHeld { .. } => "HF-TC-LOCK-NOT-HELD",
            Self::ShareReached { .. } => "HF-TC-SHARE-REACHED",
            Self::LimitReached { .. } => "HF-TC-LIMIT-REACHED",
        }
    }
}

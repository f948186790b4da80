//! Refusals: what the coordinator answers to a request that it understood and does not carry out.

use std::sync::Arc;

use super::asker::ShareOf;
use super::display::{display_cycle, display_parts, display_row_key, display_xid};
use super::id::{BranchId, Xid};
use super::named_lock::LockToken;
use super::saga_definition::SagaFault;
use super::saga_record::SagaStatus;
use super::status::GlobalStatus;

/// Why a request is refused. Each variant has a stable [`code`](Rejection::code).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The coordinator has no memory of the XID.
    #[error(
        "xid {0} is unknown: it was never begun, had no branch when the coordinator restarted or \
         its client had gone, or finished longer ago than the retention"
    )]
    UnknownXid(Xid),
    /// The XID of a begin is not one that is lent to its sender and unused.
    #[error(
        "xid {0} is not lent to this client, or no longer: nothing has begun, so begin again \
         without it"
    )]
    XidNotLent(Xid),
    /// The global is decided: nothing can be registered, and the other decision cannot be taken.
    #[error("xid {xid} is already decided: {status}")]
    AlreadyDecided {
        /// The global.
        xid: Xid,
        /// How it stands.
        status: GlobalStatus,
    },
    /// The participants of the global are being asked for their votes, or its last branch is to
    /// decide it: nothing joins it any more.
    #[error(
        "xid {0} is being committed: participants or its last branch decide, and no branch can join"
    )]
    Voting(Xid),
    /// A row is locked by another global and the request may not, or may no longer, wait.
    #[error("row {table}/{} is locked by xid {by}", display_row_key(.key))]
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
    /// A row is held by a branch whose rollback needs an operator: waiting would only end when one
    /// has come.
    #[error(
        "row {table}/{} is held by xid {holder}, which needs an operator: look at it with \
         `handfast tx show {holder}`",
        display_row_key(.key),
        holder = display_xid(.by_address, *.by)
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
    #[error("deadlock: {}", display_cycle(.cycle))]
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
    /// The action does not fit the state of the global or branch: that of an operator, or a
    /// decision about a global that its last branch decides.
    #[error("{action} does not apply to xid {xid}: it is {status}")]
    NotApplicable {
        /// The global.
        xid: Xid,
        /// The action.
        action: &'static str,
        /// How the global stands.
        status: GlobalStatus,
    },
    /// A saga that could not be carried out, or would not end.
    #[error("saga {name} is refused: {fault}")]
    SagaInvalid {
        /// Its name.
        name: Arc<str>,
        /// The fault.
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
    /// The saga's pivot has begun, or the saga has ended: it cannot be compensated.
    #[error("saga {xid} is past the point of no return: it is {status}")]
    PastPivot {
        /// The saga.
        xid: Xid,
        /// How it stands.
        status: SagaStatus,
    },
    /// Other clients hold parts of another size of the named lock.
    #[error("lock {name} is in use with {}", display_parts(*.of))]
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
    /// The named lock is not held, or not by that acquisition.
    #[error("no client holds lock {name}")]
    LockNotHeld {
        /// The lock.
        name: Arc<str>,
    },
    /// A connection or an application has used up its share of a limit (BOUNDED). Others may still
    /// have room.
    #[error("share reached: {of} has {max} {what}, as many as one may: end some, or raise {}",
        .of.setting())]
    ShareReached {
        /// The owner of the share.
        of: ShareOf,
        /// The limited thing.
        what: &'static str,
        /// The share.
        max: u64,
    },
    /// A limit of the coordinator is reached (BOUNDED).
    #[error("limit reached: at most {max} {what}")]
    LimitReached {
        /// The limited thing.
        what: &'static str,
        /// The limit.
        max: u64,
    },
}

impl Rejection {
    /// The name in [`Rejection::LimitReached`] and [`Rejection::ShareReached`] where there is no
    /// room for another waiting request.
    pub const WAITING_REQUESTS: &'static str = "waiting requests";

    /// The stable name of the refusal, as listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownXid(_) => "HF-TC-UNKNOWN-XID",
            Self::XidNotLent(_) => "HF-TC-XID-NOT-LENT",
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

//! A refusal of the coordinator, as the client reads it.

use std::fmt;
use std::sync::Arc;

use handfast_proto::v1;

use crate::status::GlobalStatus;

/// A request that the coordinator understood and refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    code: Arc<str>,
    message: Arc<str>,
    detail: RejectionDetail,
}

/// The details of a refusal beyond its code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectionDetail {
    /// Nothing.
    Plain,
    /// A row is locked by another global and the request may not, or may no longer, wait.
    RowLocked {
        /// The table.
        table: Arc<str>,
        /// The canonical key.
        key: Arc<[u8]>,
        /// The XID of the holder.
        holder: Arc<str>,
        /// The holder is rolling back: a caller that holds database locks must release them first.
        holder_rolling_back: bool,
    },
    /// A row is held by a global whose rollback needs an operator: waiting, or trying again, helps
    /// only after an operator has acted.
    RowNeedsOperator {
        /// The table.
        table: Arc<str>,
        /// The canonical key.
        key: Arc<[u8]>,
        /// The XID of the holder.
        holder: Arc<str>,
    },
    /// Waiting would close a cycle: each XID waits for the next, the last for the first.
    Deadlock {
        /// The cycle.
        cycle: Arc<[String]>,
    },
    /// The global is decided.
    AlreadyDecided {
        /// Its status.
        status: GlobalStatus,
    },
}

impl Rejection {
    /// The coordinator's stable code, such as `HF-TC-ROW-LOCKED`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The failure and what to do about it, for a reader.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The machine-readable reason, for callers.
    #[must_use]
    pub fn detail(&self) -> &RejectionDetail {
        &self.detail
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Rejection {}

impl From<v1::Rejection> for Rejection {
    fn from(wire: v1::Rejection) -> Self {
        use v1::rejection::Detail;
        let detail = match wire.detail {
            // The link acts on it; no caller sees it.
            None | Some(Detail::NotLeading(_)) => RejectionDetail::Plain,
            Some(Detail::RowLocked(locked)) => RejectionDetail::RowLocked {
                table: locked.table.into(),
                key: locked.key.into(),
                holder: locked.xid.into(),
                holder_rolling_back: locked.holder_rolling_back,
            },
            Some(Detail::RowNeedsOperator(stuck)) => RejectionDetail::RowNeedsOperator {
                table: stuck.table.into(),
                key: stuck.key.into(),
                holder: stuck.xid.into(),
            },
            Some(Detail::Deadlock(deadlock)) => {
                RejectionDetail::Deadlock { cycle: deadlock.xids.into() }
            }
            Some(Detail::AlreadyDecided(decided)) => RejectionDetail::AlreadyDecided {
                status: GlobalStatus::from_wire(decided.status(), decided.rollback_reason()),
            },
        };
        Self { code: wire.code.into(), message: wire.message.into(), detail }
    }
}

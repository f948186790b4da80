//! XIDs that are lent to a client: it begins globals with them, and need not wait for an answer.

use std::sync::Arc;

use super::id::Xid;

/// The part of a begin that concerns lent XIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoanTerms {
    /// The lent XID that the global gets; `None` has the coordinator draw one.
    pub xid: Option<LentXid>,
    /// How many XIDs the sender would like to be lent with the reply.
    pub wants: u32,
}

/// An XID from a loan, as the sender of the begin writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentXid {
    /// The XID.
    pub xid: Xid,
    /// The address part of its text form. Other processes have the XID in that form, so the global
    /// keeps it under a later leader too.
    pub address: Arc<str>,
}

/// XIDs that only the receiver begins globals with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidLoan {
    /// The first XID. The others follow it.
    pub first: Xid,
    /// How many there are.
    pub count: u32,
    /// The timeout of a global whose begin names none.
    pub timeout_ms_default: u64,
    /// The longest timeout that is granted.
    pub timeout_ms_max: u64,
}

//! A request that waits for a named lock. It lives in memory alone: a server that takes the lead
//! has none, and the clients ask again.

use crate::contract::{Asker, Correlation, NewLease, Timestamp};

/// A place in the order in which requests came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnId(pub(crate) u64);

#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(super) reply_to: Correlation,
    pub(super) asker: Asker,
    pub(super) wanted: NewLease,
    /// When the request came that is answered. Its sender counts the lease from when it was sent,
    /// and the reply says how long it waited.
    pub(super) since: Timestamp,
    /// When its first request came.
    pub(super) queued_at: Timestamp,
    pub(super) deadline: Timestamp,
}

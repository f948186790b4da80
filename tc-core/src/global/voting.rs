//! The votes of a global, in memory alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::contract::{BranchId, Correlation, DecidedBy, ReplyWhen, VoteRequest, Xid};

/// The globals whose commit waits for votes.
pub(crate) type Votings = BTreeMap<Xid, Voting>;

/// One global's votes.
#[derive(Clone, Debug)]
pub(crate) struct Voting {
    /// The question that is being asked.
    pub(crate) question: VoteRequest,
    /// The branches that can commit. That a branch has prepared is recorded with it.
    pub(super) can_commit: BTreeSet<BranchId>,
    /// The first request for the commit.
    pub(super) by: DecidedBy,
    pub(super) reason: Arc<str>,
    /// The requests to answer once it is decided, and when to answer each.
    pub(super) askers: Vec<(Correlation, ReplyWhen)>,
}

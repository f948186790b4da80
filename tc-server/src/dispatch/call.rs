//! What is carried to a process, and what comes back.

use std::sync::Arc;

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, What, Xid};

/// What a process registers, and what a call is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceKey {
    /// The resource's id.
    pub id: Arc<str>,
    /// The mode of the branches.
    pub mode: Mode,
}

/// One connection of a process, from its arrival to its departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u64);

/// Calls of one resource and decision for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBatch {
    /// Who shall carry them out.
    pub process: ProcessId,
    /// The resource.
    pub resource: ResourceKey,
    /// What to carry out.
    pub decision: Decision,
    /// The branches, by XID and branch id.
    pub calls: Vec<PhaseTwoCall>,
}

/// What a process answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The global.
    pub xid: Xid,
    /// The branch.
    pub branch: BranchId,
    /// The decision that the process was asked to carry out.
    pub decision: Decision,
    /// How it ended.
    pub outcome: PhaseTwoOutcome,
}

impl Answer {
    /// What the core is told.
    #[must_use]
    pub fn into_what(self) -> What {
        let Self { xid, branch, decision, outcome } = self;
        What::FinishPhaseTwo { xid, branch, decision, outcome }
    }
}

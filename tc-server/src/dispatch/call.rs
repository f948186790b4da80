//! What is carried to a process, and what comes back.

use std::sync::Arc;

use handfast_core::{
    BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Question, Resolution, StepCall,
    VoteCall, What, Xid,
};

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

/// What a process is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// A question before a commit.
    Vote(Question),
    /// Phase two.
    Finish(Decision),
}

/// One branch to be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch.
    pub branch: BranchId,
    /// The resource that must answer.
    pub resource: ResourceKey,
    /// What is asked.
    pub ask: Ask,
    /// An operator's word on how a dirty write ends.
    pub resolution: Option<Resolution>,
    /// As registered.
    pub application_data: Box<[u8]>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Of a step of a saga.
    pub step: Option<Arc<StepCall>>,
    /// The process that registered the branch, where that is known: the one to ask first.
    pub registered_by: Option<Arc<str>>,
}

impl From<PhaseTwoCall> for Call {
    fn from(call: PhaseTwoCall) -> Self {
        Self {
            xid: call.xid,
            address: call.address,
            branch: call.branch,
            resource: ResourceKey { id: call.resource, mode: call.mode },
            ask: Ask::Finish(call.decision),
            resolution: call.resolution,
            application_data: call.application_data,
            attempts: call.attempts,
            step: call.step,
            registered_by: call.registered_by,
        }
    }
}

impl From<VoteCall> for Call {
    fn from(call: VoteCall) -> Self {
        Self {
            xid: call.xid,
            address: call.address,
            branch: call.branch,
            resource: ResourceKey { id: call.resource, mode: call.mode },
            ask: Ask::Vote(call.question),
            resolution: None,
            application_data: call.application_data,
            attempts: 0,
            step: None,
            registered_by: call.registered_by,
        }
    }
}

/// Calls of one resource, all asking the same, for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBatch {
    /// Who shall carry them out.
    pub process: ProcessId,
    /// The resource.
    pub resource: ResourceKey,
    /// What is asked.
    pub ask: Ask,
    /// The branches, by XID and branch id.
    pub calls: Vec<Call>,
}

/// What a process answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The global.
    pub xid: Xid,
    /// The branch.
    pub branch: BranchId,
    /// What the process was asked.
    pub ask: Ask,
    /// How it ended.
    pub outcome: PhaseTwoOutcome,
}

impl Answer {
    /// What the core is told.
    #[must_use]
    pub fn into_what(self) -> What {
        let Self { xid, branch, ask, outcome } = self;
        match ask {
            Ask::Vote(question) => What::Vote { xid, branch, question, outcome },
            Ask::Finish(decision) => What::FinishPhaseTwo { xid, branch, decision, outcome },
        }
    }
}

//! Calls to a process, and its answers.

use std::sync::Arc;

use handfast_core::{
    BranchId, CallTrace, Command, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Resolution,
    SpanPlace, StepCall, VoteCall, VoteRequest, Xid,
};

/// The resource that a process registers and that a call is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceKey {
    /// Its id.
    pub id: Arc<str>,
    /// The mode of the branches.
    pub mode: Mode,
}

/// Identifies one connection of a process, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u64);

/// The question in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// A question before a commit.
    Vote(VoteRequest),
    /// Phase two with this decision.
    Finish(Decision),
}

impl Ask {
    /// Whether the call is owed until it is answered. A question that a client has asked for before
    /// a commit ends with the time of the global.
    #[must_use]
    pub fn is_owed_until_answered(self) -> bool {
        match self {
            Self::Vote(VoteRequest::CanCommit | VoteRequest::Prepare) => false,
            Self::Vote(VoteRequest::Settle) | Self::Finish(_) => true,
        }
    }
}

/// A call about one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The global.
    pub xid: Xid,
    /// The address part of the XID's text form.
    pub address: Arc<str>,
    /// The branch.
    pub branch: BranchId,
    /// The resource on which the branch runs.
    pub resource: ResourceKey,
    /// The question.
    pub ask: Ask,
    /// An operator's choice of how a dirty write ends.
    pub resolution: Option<Resolution>,
    /// The application data given at registration.
    pub application_data: Box<[u8]>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// The step, if the branch is a step of a saga.
    pub step: Option<Arc<StepCall>>,
    /// The process that registered the branch, if known. It is asked first.
    pub registered_by: Option<Arc<str>>,
    /// The spans that its own follows from, if the branch or its global stands in a trace.
    pub trace: Option<Arc<CallTrace>>,
    /// The span of the call, set when it leaves.
    pub span: Option<SpanPlace>,
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
            trace: call.trace.map(|trace| (*trace).into()),
            span: None,
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
            trace: call.trace.map(|trace| (*trace).into()),
            span: None,
        }
    }
}

/// Calls to one process, all of one resource and with the same question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBatch {
    /// The process that executes them.
    pub process: ProcessId,
    /// The resource.
    pub resource: ResourceKey,
    /// The question.
    pub ask: Ask,
    /// One call per branch, ordered by XID and branch id.
    pub calls: Vec<Call>,
}

/// A process's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReply {
    /// The global.
    pub xid: Xid,
    /// The branch.
    pub branch: BranchId,
    /// The question that it answers.
    pub ask: Ask,
    /// The result.
    pub outcome: PhaseTwoOutcome,
}

impl CallReply {
    /// Converts the answer to the core's request.
    #[must_use]
    pub fn into_command(self) -> Command {
        let Self { xid, branch, ask, outcome } = self;
        match ask {
            Ask::Vote(question) => Command::Vote { xid, branch, question, outcome },
            Ask::Finish(decision) => Command::FinishPhaseTwo { xid, branch, decision, outcome },
        }
    }
}

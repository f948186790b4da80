//! The replies of the echo server: messages of the coordinator's sizes, with invented contents.

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ServerMessage};

/// A reply, and whether it must wait for the disk.
#[derive(Debug)]
pub(super) enum Echo {
    AtOnce(ServerMessage),
    Durable(ServerMessage),
    /// The request is to become durable some time, and has no reply.
    Silent,
}

/// The state of one connection: the branches that phase two is to be called for.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    globals: std::collections::HashMap<String, v1::PhaseTwoCall>,
    last: u64,
}

impl Echoes {
    /// Returns the reply to a request.
    pub(super) fn echo(&mut self, id: u64, ask: Ask, calls: &mut Vec<v1::PhaseTwoCall>) -> Echo {
        let durable = |body| Echo::Durable(ServerMessage { id, body: Some(body) });
        let at_once = |body| Echo::AtOnce(ServerMessage { id, body: Some(body) });
        match ask {
            Ask::Hello(_) => {
                let server_version = env!("CARGO_PKG_VERSION").to_owned();
                at_once(Answer::Hello(v1::HelloReply { server_version, epoch: 1 }))
            }
            Ask::RegisterResources(_) => {
                at_once(Answer::RegisterResources(v1::RegisterResourcesReply {}))
            }
            Ask::Begin(request) => at_once(Answer::Begin(self.begin(request))),
            Ask::RegisterBranch(request) => {
                let (fencing_token, decides) = (self.last, request.is_last);
                self.register(request);
                let reply = v1::RegisterBranchReply { fencing_token, decides };
                durable(Answer::RegisterBranch(reply))
            }
            Ask::ReportBranch(report) => {
                // The load reports nothing but a local commit that decides.
                calls.extend(self.end(&report.xid, v1::Decision::Commit.into()));
                durable(Answer::ReportBranch(v1::ReportBranchReply {}))
            }
            Ask::ReportDatabaseWait(_) => at_once(Answer::ReportBranch(v1::ReportBranchReply {})),
            Ask::CheckLocks(_) => at_once(Answer::CheckLocks(v1::CheckLocksReply {})),
            Ask::End(request) => {
                calls.extend(self.end(&request.xid, request.decision));
                let mut reply = v1::EndReply::default();
                reply.set_status(v1::GlobalStatus::Committing);
                durable(Answer::End(reply))
            }
            Ask::GetStatus(_) => at_once(Answer::GetStatus(v1::GetStatusReply::default())),
            Ask::StartSaga(_) | Ask::GetSaga(_) | Ask::SignalSaga(_) | Ask::CancelSaga(_) => {
                durable(Answer::Saga(v1::SagaReply::default()))
            }
            Ask::AcquireLock(_) => durable(Answer::AcquireLock(v1::AcquireLockReply::default())),
            Ask::RenewLocks(_) => durable(Answer::RenewLocks(v1::RenewLocksReply::default())),
            Ask::ReleaseLock(_) => durable(Answer::ReleaseLock(v1::ReleaseLockReply::default())),
            Ask::FindLock(_) => at_once(Answer::FindLock(v1::FindLockReply::default())),
            Ask::TryBranch(_) => durable(Answer::TryBranch(v1::TryBranchReply::default())),
            Ask::ReportOutbox(_) => at_once(Answer::ReportOutbox(v1::ReportOutboxReply::default())),
            Ask::Finished(_) => Echo::Silent,
        }
    }

    fn begin(&mut self, request: v1::BeginRequest) -> v1::BeginReply {
        let mut xid = request.lent_xid;
        if xid.is_empty() {
            self.last += 1;
            xid = format!("127.0.0.1:7091:{}", self.last);
        }
        let loan = (request.wants > 0).then(|| self.lend(request.wants));
        v1::BeginReply { xid, timeout_ms: 60_000, loan, ..v1::BeginReply::default() }
    }

    fn lend(&mut self, count: u32) -> v1::XidLoan {
        let first = self.last + 1;
        self.last += u64::from(count);
        v1::XidLoan { first, count, timeout_ms_default: 60_000, timeout_ms_max: 60_000 }
    }

    fn register(&mut self, request: v1::RegisterBranchRequest) {
        let v1::RegisterBranchRequest { xid, branch_id, resource_id, mode, .. } = request;
        let branch =
            v1::PhaseTwoBranch { xid: xid.clone(), branch_id, ..v1::PhaseTwoBranch::default() };
        let call = self.globals.entry(xid).or_default();
        call.resource_id = resource_id;
        call.mode = mode;
        call.branches.push(branch);
    }

    fn end(&mut self, xid: &str, decision: i32) -> Option<v1::PhaseTwoCall> {
        let mut call = self.globals.remove(xid)?;
        call.decision = decision;
        Some(call)
    }
}

/// Joins the calls of one resource and decision, as the coordinator does.
pub(super) fn together(calls: Vec<v1::PhaseTwoCall>) -> Vec<v1::PhaseTwoCall> {
    let mut joined: Vec<v1::PhaseTwoCall> = Vec::new();
    for call in calls {
        let same = joined
            .iter_mut()
            .find(|other| other.resource_id == call.resource_id && other.decision == call.decision);
        match same {
            Some(other) => other.branches.extend(call.branches),
            None => joined.push(call),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_global_is_answered_as_the_coordinator_would() {
        let (mut echoes, mut calls) = (Echoes::default(), Vec::new());
        let Echo::AtOnce(begun) =
            echoes.echo(2, Ask::Begin(v1::BeginRequest::default()), &mut calls)
        else {
            unreachable!("beginning waits for no disk")
        };
        let Some(Answer::Begin(v1::BeginReply { xid, .. })) = begun.body else {
            unreachable!("{begun:?}")
        };
        let branch = v1::RegisterBranchRequest {
            xid: xid.clone(),
            branch_id: 7,
            resource_id: "r".into(),
            ..v1::RegisterBranchRequest::default()
        };
        let registered = echoes.echo(2, Ask::RegisterBranch(branch), &mut calls);
        assert!(matches!(registered, Echo::Durable(ServerMessage { id: 2, .. })));
        let end = v1::EndRequest { xid, decision: 1, ..v1::EndRequest::default() };
        assert!(matches!(echoes.echo(2, Ask::End(end), &mut calls), Echo::Durable(_)));
        assert_eq!((calls[0].branches[0].branch_id, calls[0].decision), (7, 1));
        assert!(echoes.globals.is_empty());
    }

    #[test]
    fn calls_of_one_resource_leave_together() {
        let call = |resource: &str| v1::PhaseTwoCall {
            resource_id: resource.into(),
            branches: vec![v1::PhaseTwoBranch::default()],
            ..v1::PhaseTwoCall::default()
        };
        let joined = together(vec![call("a"), call("b"), call("a")]);
        assert_eq!(joined.iter().map(|call| call.branches.len()).collect::<Vec<_>>(), [2, 1]);
    }
}

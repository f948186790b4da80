//! Describes messages for the log, in a few words each.

use handfast_proto::v1::branch_outcome::Result as BranchResult;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;

/// Describes a message from a client.
pub(super) fn client_message(id: u64, body: &ClientBody) -> String {
    let what = match body {
        ClientBody::Hello(hello) => format!("hello {}", hello.client_id),
        ClientBody::RegisterResources(_) => "register resources".to_owned(),
        ClientBody::Begin(begin) => format!("begin {}, {} ms", begin.lent_xid, begin.timeout_ms),
        ClientBody::RegisterBranch(request) => {
            let keys = request.rows.iter().flat_map(|rows| &rows.keys);
            let keys: Vec<_> = keys.map(|key| String::from_utf8_lossy(key)).collect();
            let wait_ms = request.wait.as_ref().map_or(0, |wait| wait.timeout_ms);
            let (xid, branch, resource) = (&request.xid, request.branch_id, &request.resource_id);
            format!("register {xid}/{branch} {resource} {keys:?} waiting {wait_ms} ms")
        }
        ClientBody::ReportBranch(report) => {
            format!("report {}/{} {:?}", report.xid, report.branch_id, report.outcome())
        }
        ClientBody::CheckLocks(check) => format!("check locks of {}", check.resource_id),
        ClientBody::ReportDatabaseWait(wait) => {
            format!("{} waits in {}", wait.xid, wait.resource_id)
        }
        ClientBody::End(end) => format!("end {} {:?} {}", end.xid, end.decision(), end.reason),
        ClientBody::GetStatus(request) => format!("status of {}", request.xid),
        ClientBody::StartSaga(request) => format!("start saga {}", request.key),
        ClientBody::GetSaga(request) => format!("saga {}", request.xid),
        ClientBody::SignalSaga(request) => format!("signal {} {}", request.xid, request.signal),
        ClientBody::CancelSaga(request) => format!("cancel saga {}", request.xid),
        ClientBody::AcquireLock(request) => format!("lock {}", request.name),
        ClientBody::RenewLocks(request) => format!("renew {} leases", request.tokens.len()),
        ClientBody::ReleaseLock(request) => format!("release lock {}", request.name),
        ClientBody::FindLock(request) => format!("find lock {}", request.name),
        ClientBody::TryBranch(request) => format!("try {}/{}", request.xid, request.branch_id),
        ClientBody::ReportOutbox(report) => format!("report outbox {}", report.outbox),
        ClientBody::Finished(outcome) => {
            let branches = outcome.branches.iter().map(|branch| {
                let ended = match &branch.result {
                    Some(BranchResult::Done(_)) => "done",
                    Some(BranchResult::Given(_)) => "done, with an output",
                    Some(BranchResult::Retryable(_)) => "retryable",
                    Some(BranchResult::Refused(_)) => "refused",
                    None => "nothing",
                };
                format!("{}/{} {:?} {ended}", branch.xid, branch.branch_id, branch.decision())
            });
            format!("finished {}", branches.collect::<Vec<_>>().join(", "))
        }
    };
    format!("#{id} asks: {what}")
}

/// Describes a message from a coordinator.
pub(super) fn server_message(id: u64, body: &ServerBody) -> String {
    let what = match body {
        ServerBody::Hello(_) => "hello".to_owned(),
        ServerBody::RegisterResources(_) => "resources registered".to_owned(),
        ServerBody::Begin(begun) => format!("begun {}", begun.xid),
        ServerBody::RegisterBranch(reply) => format!("registered, token {}", reply.fencing_token),
        ServerBody::ReportBranch(_) => "reported".to_owned(),
        ServerBody::CheckLocks(_) => "unlocked".to_owned(),
        ServerBody::End(reply) => format!("{:?}", reply.status()),
        ServerBody::GetStatus(reply) => format!("{:?}", reply.status()),
        ServerBody::Rejected(refusal) => format!("{} {}", refusal.code, refusal.message),
        ServerBody::PhaseTwo(call) => {
            let branches = call.branches.iter();
            let branches = branches.map(|branch| format!("{}/{}", branch.xid, branch.branch_id));
            let branches = branches.collect::<Vec<_>>().join(", ");
            format!("call {} {:?} {branches}", call.resource_id, call.decision())
        }
        ServerBody::AcquireLock(reply) => format!("lock: {:?}", reply.result),
        ServerBody::RenewLocks(reply) => format!("leases held: {:?}", reply.held),
        ServerBody::ReleaseLock(reply) => format!("released, held: {}", reply.was_held),
        ServerBody::FindLock(reply) => format!("held by {:?}", reply.holder),
        ServerBody::TryBranch(reply) => format!("tried: {:?}", reply.result),
        ServerBody::ReportOutbox(reply) => format!("{} actions", reply.actions.len()),
        ServerBody::Saga(saga) => format!("saga {} {:?}", saga.xid, saga.status()),
        ServerBody::GoAway(notice) => format!("go away: {}", notice.reason),
    };
    format!("#{id} answers: {what}")
}

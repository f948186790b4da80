//! Messages in a few words, for the log.

use handfast_proto::v1::branch_outcome::Result as Ended;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;

/// A request that has arrived.
pub(crate) fn ask(id: u64, ask: &Ask) -> String {
    let what = match ask {
        Ask::Hello(hello) => format!("hello {}", hello.client_id),
        Ask::RegisterResources(_) => "register resources".to_owned(),
        Ask::Begin(begin) => format!("begin, {} ms", begin.timeout_ms),
        Ask::RegisterBranch(request) => {
            let keys = request.rows.iter().flat_map(|rows| &rows.keys);
            let keys: Vec<_> = keys.map(|key| String::from_utf8_lossy(key)).collect();
            let wait_ms = request.wait.as_ref().map_or(0, |wait| wait.timeout_ms);
            let (xid, branch, resource) = (&request.xid, request.branch_id, &request.resource_id);
            format!("register {xid}/{branch} {resource} {keys:?} waiting {wait_ms} ms")
        }
        Ask::ReportBranch(report) => {
            format!("report {}/{} {:?}", report.xid, report.branch_id, report.outcome())
        }
        Ask::CheckLocks(check) => format!("check locks of {}", check.resource_id),
        Ask::End(end) => format!("end {} {:?} {}", end.xid, end.decision(), end.reason),
        Ask::GetStatus(request) => format!("status of {}", request.xid),
        Ask::StartSaga(request) => format!("start saga {}", request.key),
        Ask::GetSaga(request) => format!("saga {}", request.xid),
        Ask::SignalSaga(request) => format!("signal {} {}", request.xid, request.signal),
        Ask::CancelSaga(request) => format!("cancel saga {}", request.xid),
        Ask::AcquireLock(request) => format!("lock {}", request.name),
        Ask::RenewLocks(request) => format!("renew {} leases", request.tokens.len()),
        Ask::ReleaseLock(request) => format!("let go of lock {}", request.name),
        Ask::FindLock(request) => format!("who holds lock {}", request.name),
        Ask::TryBranch(request) => format!("try {}/{}", request.xid, request.branch_id),
        Ask::Finished(outcome) => {
            let branches = outcome.branches.iter().map(|branch| {
                let ended = match &branch.result {
                    Some(Ended::Done(_)) => "done",
                    Some(Ended::Given(_)) => "done, with an output",
                    Some(Ended::Retryable(_)) => "retryable",
                    Some(Ended::Refused(_)) => "refused",
                    None => "nothing",
                };
                format!("{}/{} {:?} {ended}", branch.xid, branch.branch_id, branch.decision())
            });
            format!("finished {}", branches.collect::<Vec<_>>().join(", "))
        }
    };
    format!("#{id} asks: {what}")
}

/// An answer that leaves.
pub(crate) fn answer(id: u64, answer: &Answer) -> String {
    let what = match answer {
        Answer::Hello(_) => "hello".to_owned(),
        Answer::RegisterResources(_) => "resources registered".to_owned(),
        Answer::Begin(begun) => format!("begun {}", begun.xid),
        Answer::RegisterBranch(reply) => format!("registered, token {}", reply.fencing_token),
        Answer::ReportBranch(_) => "reported".to_owned(),
        Answer::CheckLocks(_) => "unlocked".to_owned(),
        Answer::End(reply) => format!("{:?}", reply.status()),
        Answer::GetStatus(reply) => format!("{:?}", reply.status()),
        Answer::Rejected(refusal) => format!("{} {}", refusal.code, refusal.message),
        Answer::PhaseTwo(call) => {
            let branches = call.branches.iter();
            let branches = branches.map(|branch| format!("{}/{}", branch.xid, branch.branch_id));
            let branches = branches.collect::<Vec<_>>().join(", ");
            format!("call {} {:?} {branches}", call.resource_id, call.decision())
        }
        Answer::AcquireLock(reply) => format!("lock: {:?}", reply.result),
        Answer::RenewLocks(reply) => format!("leases held: {:?}", reply.held),
        Answer::ReleaseLock(reply) => format!("let go, held: {}", reply.was_held),
        Answer::FindLock(reply) => format!("held by {:?}", reply.holder),
        Answer::TryBranch(reply) => format!("tried: {:?}", reply.result),
        Answer::Saga(saga) => format!("saga {} {:?}", saga.xid, saga.status()),
        Answer::GoAway(notice) => format!("go away: {}", notice.reason),
    };
    format!("#{id} answers: {what}")
}

//! The native API's entry point for fuzzers: bytes from a client, without sockets.

use std::sync::Arc;

use handfast_core::{
    Command, Coordinator, Correlation, Epoch, Labels, Limits, LoanTerms, Outcome, Request,
    Timestamp,
};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use prost::Message;

use super::bounds::BadRequest;
use super::decoder::Decoder;

/// Decodes a `ClientFrame`, maps each message and has a small coordinator decide it. Whatever the
/// bytes are, there is an answer and no panic (TOTAL).
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    let Ok(frame) = wire::ClientFrame::decode(bytes) else { return };
    let loaded = Coordinator::load(Epoch(1), Arc::from("x"), Limits::default(), []);
    let mut coordinator = loaded.expect("RECORDED: no records contradict each other");
    // So that the frame can refer to a live global.
    let begin = Command::Begin {
        application: Arc::from(""),
        name: Arc::from(""),
        timeout_ms: Some(50),
        labels: Labels::NONE,
        key: None,
        loan: LoanTerms::default(),
    };
    let asked = frame.messages.into_iter().filter_map(|message| map(message.body).ok()).flatten();
    let mut out = Outcome::default();
    for (at, what) in (1..).zip([begin].into_iter().chain(asked)) {
        let request = Request { reply_to: Some(Correlation(at)), command: what };
        coordinator.decide(Timestamp(at), request, &mut out);
    }
    coordinator.decide(
        Timestamp(1_000),
        Request { reply_to: None, command: Command::Tick },
        &mut out,
    );
}

/// The requests of a message to the core: none, one, or one for each outcome that it reports.
fn map(body: Option<Body>) -> Result<Vec<Command>, BadRequest> {
    let decoder = Decoder::default();
    Ok(vec![match body.ok_or(BadRequest::Missing { field: "body" })? {
        Body::Hello(hello) => {
            decoder.process(&hello, Arc::from("fuzzer"))?;
            decoder.resources(hello.resources)?;
            return Ok(Vec::new());
        }
        Body::RegisterResources(request) => {
            decoder.resources(request.resources)?;
            return Ok(Vec::new());
        }
        Body::Finished(outcome) => {
            let answers = decoder.answers(outcome)?.into_iter();
            return Ok(answers.map(crate::dispatch::CallReply::into_command).collect());
        }
        Body::Begin(request) => decoder.begin(request)?,
        Body::RegisterBranch(request) => decoder.register_branch(request)?,
        Body::ReportBranch(request) => decoder.report_branch(request)?,
        Body::CheckLocks(request) => decoder.check_locks(request)?,
        Body::ReportDatabaseWait(request) => decoder.report_database_wait(request)?,
        Body::End(request) => decoder.end(request)?,
        Body::GetStatus(request) => decoder.get_status(&request)?,
        Body::StartSaga(request) => decoder.start_saga(request)?,
        Body::GetSaga(request) => decoder.get_saga(&request)?,
        Body::SignalSaga(request) => decoder.signal_saga(request)?,
        Body::CancelSaga(request) => decoder.cancel_saga(&request)?,
        Body::AcquireLock(request) => decoder.acquire_lock(request)?,
        Body::RenewLocks(request) => decoder.renew_locks(request)?,
        Body::ReleaseLock(request) => decoder.release_lock(request)?,
        Body::FindLock(request) => decoder.find_lock(request)?,
        Body::TryBranch(request) => decoder.try_branch(&request)?,
        Body::ReportOutbox(request) => {
            let (application, peer) = ("fuzz".into(), "fuzz".into());
            decoder.outbox_report(&application, &peer, request)?;
            return Ok(Vec::new());
        }
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_every_kind_is_answered() {
        let bodies = [
            Body::Hello(wire::Hello::default()),
            Body::RegisterResources(wire::RegisterResources::default()),
            Body::Begin(wire::BeginRequest::default()),
            Body::RegisterBranch(wire::RegisterBranchRequest::default()),
            Body::ReportBranch(wire::ReportBranchRequest::default()),
            Body::CheckLocks(wire::CheckLocksRequest::default()),
            Body::ReportDatabaseWait(wire::ReportDatabaseWaitRequest::default()),
            Body::End(wire::EndRequest::default()),
            Body::GetStatus(wire::GetStatusRequest { xid: "x:1099511627777".to_owned() }),
            Body::Finished(wire::PhaseTwoOutcome::default()),
            Body::StartSaga(wire::StartSagaRequest::default()),
            Body::GetSaga(wire::GetSagaRequest { xid: "x:7".to_owned(), reply_when: 1 }),
            Body::SignalSaga(wire::SignalSagaRequest::default()),
            Body::CancelSaga(wire::CancelSagaRequest::default()),
            Body::AcquireLock(wire::AcquireLockRequest::default()),
            Body::RenewLocks(wire::RenewLocksRequest::default()),
            Body::ReleaseLock(wire::ReleaseLockRequest::default()),
            Body::FindLock(wire::FindLockRequest::default()),
            Body::TryBranch(wire::TryBranchRequest::default()),
            Body::ReportOutbox(wire::ReportOutboxRequest::default()),
        ];
        let messages =
            bodies.into_iter().map(|body| wire::ClientMessage { id: 1, body: Some(body) });
        fuzz_frame(&wire::ClientFrame { messages: messages.collect() }.encode_to_vec());
        fuzz_frame(b"\xff\xff");
    }
}

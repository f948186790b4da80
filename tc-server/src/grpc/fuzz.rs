//! The native API's door for fuzzers: bytes from a client, without sockets.

use std::sync::Arc;

use handfast_core::{Coordinator, Correlation, Epoch, Limits, Outcome, Request, Timestamp, What};
use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body;
use prost::Message;

use super::bounds::{BadRequest, Bounds};

/// Decodes a `ClientFrame`, maps each message and has a small coordinator decide it. Whatever the
/// bytes are, there is an answer and no panic (TOTAL).
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    let Ok(frame) = wire::ClientFrame::decode(bytes) else { return };
    let loaded = Coordinator::load(Epoch(1), Arc::from("x"), Limits::default(), []);
    let mut coordinator = loaded.expect("RECORDED: no records contradict each other");
    // So that the frame can meet a live global.
    let begin =
        What::Begin { application: Arc::from(""), name: Arc::from(""), timeout_ms: Some(50) };
    let asked = frame.messages.into_iter().filter_map(|message| map(message.body).ok()).flatten();
    let mut out = Outcome::default();
    for (at, what) in (1..).zip([begin].into_iter().chain(asked)) {
        let request = Request { reply_to: Some(Correlation(at)), what };
        coordinator.decide(Timestamp(at), request, &mut out);
    }
    coordinator.decide(Timestamp(1_000), Request { reply_to: None, what: What::Tick }, &mut out);
}

/// The requests of a message to the core: none, one, or one for each outcome that it reports.
fn map(body: Option<Body>) -> Result<Vec<What>, BadRequest> {
    let bounds = Bounds::default();
    Ok(vec![match body.ok_or(BadRequest::Missing { field: "body" })? {
        Body::Hello(hello) => {
            bounds.process(&hello, Arc::from("fuzzer"))?;
            bounds.resources(hello.resources)?;
            return Ok(Vec::new());
        }
        Body::RegisterResources(request) => {
            bounds.resources(request.resources)?;
            return Ok(Vec::new());
        }
        Body::Finished(outcome) => {
            let answers = bounds.answers(outcome)?.into_iter();
            return Ok(answers.map(crate::dispatch::Answer::into_what).collect());
        }
        Body::Begin(request) => bounds.begin(request)?,
        Body::RegisterBranch(request) => bounds.register_branch(request)?,
        Body::ReportBranch(request) => bounds.report_branch(request)?,
        Body::CheckLocks(request) => bounds.check_locks(request)?,
        Body::End(request) => bounds.end(request)?,
        Body::GetStatus(request) => bounds.get_status(&request)?,
        Body::StartSaga(request) => bounds.start_saga(request)?,
        Body::GetSaga(request) => bounds.get_saga(&request)?,
        Body::SignalSaga(request) => bounds.signal_saga(request)?,
        Body::CancelSaga(request) => bounds.cancel_saga(&request)?,
        Body::AcquireLock(request) => bounds.acquire_lock(request)?,
        Body::RenewLocks(request) => bounds.renew_locks(request)?,
        Body::ReleaseLock(request) => bounds.release_lock(request)?,
        Body::FindLock(request) => bounds.find_lock(request)?,
        Body::TryBranch(request) => bounds.try_branch(&request)?,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_every_kind_is_answered() {
        let bodies = [
            Body::Hello(wire::Hello::default()),
            Body::Begin(wire::BeginRequest::default()),
            Body::RegisterBranch(wire::RegisterBranchRequest::default()),
            Body::GetStatus(wire::GetStatusRequest { xid: "x:1099511627777".to_owned() }),
            Body::Finished(wire::PhaseTwoOutcome::default()),
            Body::StartSaga(wire::StartSagaRequest::default()),
            Body::GetSaga(wire::GetSagaRequest { xid: "x:7".to_owned(), reply_when: 1 }),
        ];
        let messages =
            bodies.into_iter().map(|body| wire::ClientMessage { id: 1, body: Some(body) });
        fuzz_frame(&wire::ClientFrame { messages: messages.collect() }.encode_to_vec());
        fuzz_frame(b"\xff\xff");
    }
}

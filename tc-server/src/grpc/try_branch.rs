//! The try of a participant over HTTP: registered, then called until it answers.
//!
//! The branch is registered before each attempt, which changes nothing if it is known. So no try is
//! called that the coordinator would not confirm or cancel, and none of a decided global.

use std::time::Duration;

use handfast_core::{Command, PhaseOneOutcome, Rejection, Reply};
use handfast_proto::v1 as wire;
use handfast_proto::v1::try_branch_reply::Result as Tried;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::GrpcFrontend;
use super::bounds::BadRequest;
use super::refusal;
use crate::dispatch::Backoff;
use crate::engine::EngineError;
use crate::over_http::{CallOutcome, OperationRequest, TryRefusal};
use crate::spans::{RequestSpan, format_traceparent, text};

/// The first pause after an attempt that failed.
const PAUSE_MS_MIN: u64 = 100;
/// The longest pause: a client waits.
const PAUSE_MS_MAX: u64 = 2_000;
/// The longest time that a client may wait.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// Why nothing was tried.
#[derive(Debug)]
pub(super) enum NotTried {
    Bad(BadRequest),
    Engine(EngineError),
    Core(Rejection),
}

impl NotTried {
    pub(super) fn into_message(self) -> wire::Rejection {
        match self {
            Self::Bad(error) => refusal::of_request(&error),
            Self::Engine(error) => refusal::of_engine(error),
            Self::Core(rejection) => refusal::of_core(&rejection),
        }
    }

    pub(super) fn into_status(self, leader: wire::NotLeading) -> Status {
        match self {
            Self::Bad(error) => refusal::status_of_request(&error),
            Self::Engine(error) => refusal::status_of_engine(error, leader),
            Self::Core(rejection) => refusal::status_of_core(&rejection),
        }
    }
}

/// Returns the end of a try for its span, and whether it is an error. Error texts stay out: they
/// may hold values of rows.
fn told(tried: &Result<wire::TryBranchReply, NotTried>) -> (&'static str, Option<&'static str>) {
    let Ok(reply) = tried else { return ("not tried", Some("not tried")) };
    match &reply.result {
        Some(Tried::Refused(_)) => ("refused", Some("refused")),
        Some(Tried::Unanswered(_)) => ("unanswered", Some("not answered in time")),
        Some(Tried::Done(_)) | None => ("done", None),
    }
}

impl GrpcFrontend {
    /// Has a try called. Unless it is known to be done, the branch is reported as unknown before
    /// this returns: an earlier attempt may still take effect, so the global can only be rolled
    /// back, and the cancel undoes or bars the try.
    pub(super) async fn try_branch(
        &self,
        request: wire::TryBranchRequest,
        span: Option<RequestSpan>,
    ) -> Result<wire::TryBranchReply, NotTried> {
        let place = span.as_ref().map(RequestSpan::place);
        let tried = self.register_and_try(request, &span, place.map(format_traceparent)).await;
        if let Some(span) = span {
            let (outcome, error) = told(&tried);
            span.end(Some(text("outcome", outcome)), error);
        }
        tried
    }

    async fn register_and_try(
        &self,
        request: wire::TryBranchRequest,
        span: &Option<RequestSpan>,
        traceparent: Option<String>,
    ) -> Result<wire::TryBranchReply, NotTried> {
        let registration = self.shared.decoder.try_branch(&request).map_err(NotTried::Bad)?;
        // Held through the pauses between attempts too (BOUNDED).
        let _room = match self.shared.over_http.room(&request.resource_id) {
            Ok(room) => room,
            Err(TryRefusal::NotAllowed) => {
                let resource = request.resource_id;
                return Err(NotTried::Bad(BadRequest::NotAllowed { resource }));
            }
            Err(TryRefusal::Full(max)) => {
                let max = u64::try_from(max).unwrap_or(u64::MAX);
                let what = "tries of one participant at a time";
                return Err(NotTried::Core(Rejection::LimitReached { what, max }));
            }
        };
        let until = Instant::now() + Duration::from_millis(request.timeout_ms.min(TIMEOUT_MS_MAX));
        let wire::TryBranchRequest { xid, branch_id, resource_id, input, .. } = request;
        let mut attempt = OperationRequest::of_try(resource_id, xid, branch_id, input);
        attempt.traceparent = traceparent;
        let mut attempts = 0;
        let traced = span.as_ref().map(|span| span.traced(registration.clone()));
        let first = traced.as_ref().unwrap_or(&registration);
        let result = self.try_until(until, first, &attempt, &mut attempts).await;
        // Also if a later registration is refused: the attempt before it may take effect.
        if attempts > 0 && !matches!(result, Ok(Tried::Done(_))) {
            self.doubt(&registration).await?;
        }
        Ok(wire::TryBranchReply { result: Some(result?) })
    }

    async fn try_until(
        &self,
        until: Instant,
        registration: &Command,
        attempt: &OperationRequest,
        attempts: &mut u32,
    ) -> Result<Tried, NotTried> {
        let mut pauses = Backoff::new(PAUSE_MS_MIN, PAUSE_MS_MAX, rand::random());
        loop {
            self.decide(registration.clone()).await?;
            *attempts += 1;
            let error = match self.shared.over_http.call(attempt).await {
                CallOutcome::Done(_) => return Ok(Tried::Done(wire::Done {})),
                CallOutcome::Refused(message) => {
                    self.note_failed_try(registration, *attempts, &message).await;
                    let error = self.shared.decoder.reason(&message).to_owned();
                    return Ok(Tried::Refused(wire::Refused { error, ..wire::Refused::default() }));
                }
                CallOutcome::Failed(error) => error,
            };
            self.note_failed_try(registration, *attempts, &error).await;
            let pause = Duration::from_millis(pauses.delay_ms(*attempts));
            if Instant::now() + pause >= until {
                let error = self.shared.decoder.reason(&error).to_owned();
                return Ok(Tried::Unanswered(wire::Retryable { error }));
            }
            sleep(pause).await;
        }
    }

    /// Adds a failed attempt to the course of the branch. It is for operators: if it cannot be
    /// added, the try goes on all the same.
    async fn note_failed_try(&self, registration: &Command, attempt: u32, error: &str) {
        let Command::RegisterBranch { xid, branch, .. } = registration else { return };
        let (xid, branch) = (*xid, branch.id);
        let error = self.shared.decoder.reason(error).into();
        let note = Command::NoteFailedTry { xid, branch, attempt, error };
        if let Err(why) = self.decide(note).await {
            tracing::debug!(?why, %xid, %branch, attempt, "a failed try is not in the course");
        }
    }

    async fn doubt(&self, registration: &Command) -> Result<(), NotTried> {
        let Command::RegisterBranch { xid, branch, .. } = registration else { return Ok(()) };
        let (xid, branch, outcome) = (*xid, branch.id, Some(PhaseOneOutcome::Unknown));
        loop {
            let application_data = Box::default();
            let report = Command::ReportBranch { xid, branch, outcome, application_data };
            match self.decide(report).await {
                // Without the report the global could be committed.
                Err(NotTried::Engine(EngineError::Busy)) => self.shared.engine.room().await,
                reported => return reported,
            }
        }
    }

    async fn decide(&self, command: Command) -> Result<(), NotTried> {
        match self.shared.engine.call(command).await {
            Err(error) => Err(NotTried::Engine(error)),
            Ok(Reply::Rejected(rejection)) => Err(NotTried::Core(rejection)),
            Ok(_) => Ok(()),
        }
    }
}

//! Phase two: sends the dispatcher's calls to a client, and translates its answers.

use std::sync::{Arc, Mutex};

use handfast_core::{
    Command, Decision, Mode, PhaseTwoOutcome, Reply, Resolution, RollbackReason, Timestamp, XidText,
};
use handfast_seata_wire::encode;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{BranchEnd, BranchEnded, Message};
use handfast_seata_wire::value::{BranchStatus, BranchType};

use super::SeataFrontend;
use super::client::Client;
use super::request::SAGA;
use super::send_queue::{FRAME_BYTES, SendQueue};
use super::sent_calls::SentCall;
use super::unknown;
use crate::clock::millis;
use crate::dispatch::{Ask, Call, CallBatch, CallReply, CallSink};

/// The branch id in calls to a saga's client, which has one state machine per global.
const SAGA_BRANCH_ID: i64 = -1;

/// Receives the calls for one connection.
#[derive(Debug)]
pub(super) struct ClientCallSink {
    pub(super) frontend: SeataFrontend,
    pub(super) send_queue: SendQueue,
    pub(super) client: Arc<Mutex<Arc<Client>>>,
}

impl CallSink for ClientCallSink {
    fn put(&self, batch: CallBatch) {
        let client = Arc::clone(&self.client.lock().expect("no holder of a client's lock panics"));
        for call in batch.calls {
            match SeataCall::of(call) {
                Ok(owed) => self.call(&client, owed),
                // A process of the same resource that uses this project's library can.
                Err(call) => {
                    let error = "no client of Seata can be asked this".into();
                    let outcome = PhaseTwoOutcome::Retryable { error };
                    self.frontend.answer_in_place(&client, &call, outcome);
                }
            }
        }
    }
}

impl ClientCallSink {
    fn call(&self, client: &Arc<Client>, owed: SeataCall) {
        match owed.kind {
            // The client is not called: it has nothing left to do.
            _ if owed.call.resolution == Some(Resolution::AcceptCurrent) => {
                self.frontend.answer_in_place(client, &owed.call, PhaseTwoOutcome::Done);
            }
            BranchType::Saga => {
                let (frontend, send_queue) = (self.frontend.clone(), self.send_queue.clone());
                let client = Arc::clone(client);
                // The call includes the status of the global, which must be queried first.
                tokio::spawn(async move {
                    let data = frontend.saga_data(&owed).await;
                    frontend.send(&client, &send_queue, &owed, data);
                });
            }
            BranchType::At | BranchType::Tcc | BranchType::Xa | BranchType::SagaAnnotation => {
                let data = String::from_utf8_lossy(&owed.call.application_data).into_owned();
                self.frontend.send(client, &self.send_queue, &owed, data);
            }
        }
    }
}

/// A call of phase two for a client of Seata.
struct SeataCall {
    call: Call,
    decision: Decision,
    kind: BranchType,
}

impl SeataCall {
    /// Returns calls that the protocol cannot express: questions, and those of two-phase
    /// participants, for which Seata clients cannot register.
    fn of(call: Call) -> Result<Self, Box<Call>> {
        let Ask::Finish(decision) = call.ask else { return Err(call.into()) };
        let kind = match call.resource.mode {
            Mode::At => BranchType::At,
            Mode::Tcc => BranchType::Tcc,
            Mode::Xa => BranchType::Xa,
            Mode::Saga if call.branch == SAGA => BranchType::Saga,
            Mode::Saga => BranchType::SagaAnnotation,
            Mode::TwoPhase => return Err(call.into()),
        };
        Ok(Self { call, decision, kind })
    }
}

impl SeataFrontend {
    fn send(
        &self,
        client: &Client,
        send_queue: &SendQueue,
        owed: &SeataCall,
        application_data: String,
    ) {
        let call = &owed.call;
        if let Err(error) = self.try_send(client, send_queue, owed, application_data) {
            tracing::warn!(xid = call.xid.0, branch = call.branch.0, error, "no call of phase two");
            // Without an answer the client would count as silent, although it was not called.
            let outcome = PhaseTwoOutcome::Retryable { error: cut(&error).into() };
            self.answer_in_place(client, call, outcome);
        }
    }

    /// Answers a call in place of the client. In a task, because the dispatcher's lock is held
    /// here.
    fn answer_in_place(&self, client: &Client, call: &Call, outcome: PhaseTwoOutcome) {
        let (frontend, by) = (self.clone(), Arc::clone(&client.id));
        let answer = CallReply { xid: call.xid, branch: call.branch, ask: call.ask, outcome };
        tokio::spawn(
            async move { frontend.record_answers(vec![(Arc::clone(&by), answer)], &by).await },
        );
    }

    fn try_send(
        &self,
        client: &Client,
        send_queue: &SendQueue,
        owed: &SeataCall,
        application_data: String,
    ) -> Result<(), String> {
        let SeataCall { ref call, decision, kind } = *owed;
        let name = &call.resource.id;
        let resource_id = client.own_name(name);
        let resource_id =
            resource_id.ok_or_else(|| format!("{name} is not a resource of the client"))?;
        let branch_id =
            if kind == BranchType::Saga { SAGA_BRANCH_ID } else { call.branch.0.cast_signed() };
        let end = BranchEnd {
            xid: XidText { address: &call.address, xid: call.xid }.to_string(),
            branch_id,
            branch_type: kind,
            resource_id: resource_id.to_string(),
            application_data,
        };
        // Noted before it is sent, since the answer is looked up under the id.
        let id = self.shared.calls.ask(SentCall {
            xid: call.xid,
            branch: call.branch,
            decision,
            resource: call.resource.clone(),
            registered_by: call.registered_by.clone(),
            client_id: Arc::clone(&client.id),
            xid_text: end.xid.clone(),
            branch_id,
        });
        let message = match decision {
            Decision::Commit => Message::BranchCommit(end),
            Decision::RollBack => Message::BranchRollback(end),
        };
        let (encoding, dialect) = (client.encoding, &client.dialect);
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        encode(&message, MessageKind::Request, id, encoding, dialect, &mut frame)
            .map_err(|error| format!("{}: {error}", error.code()))?;
        send_queue.put(frame);
        Ok(())
    }

    /// Returns the application data that tells a saga's client what to do.
    async fn saga_data(&self, owed: &SeataCall) -> String {
        use handfast_core::GlobalStatus::{NeedsOperator, RollingBack};
        let reply = self.shared.engine.call(Command::GetStatus { xid: owed.call.xid }).await;
        let text = match (owed.decision, reply) {
            (Decision::Commit, _) => "CommitRetrying",
            (
                Decision::RollBack,
                Ok(Reply::Status(
                    RollingBack(RollbackReason::Timeout) | NeedsOperator(RollbackReason::Timeout),
                )),
            ) => "TimeoutRollbacking",
            (Decision::RollBack, _) => "RollbackRetrying",
        };
        text.to_owned()
    }

    /// Records a client's answers, by the ids of their calls. The client may answer on another
    /// connection than the one it was called on.
    pub(super) async fn answered(&self, answers: Vec<(i32, BranchEnded)>, by: &str) {
        let mut outcomes = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            let Some(asked) = self.shared.calls.take(id, &answer) else {
                tracing::debug!(id, branch = answer.branch_id, "a late answer in phase two");
                continue;
            };
            let outcome = self.outcome(&asked, answer).await;
            if asked.resource.mode == Mode::Xa && outcome == PhaseTwoOutcome::Done {
                self.shared.unknown.forget((asked.xid, asked.branch));
            }
            let SentCall { xid, branch, decision, client_id, .. } = asked;
            outcomes
                .push((client_id, CallReply { xid, branch, ask: Ask::Finish(decision), outcome }));
        }
        self.record_answers(outcomes, by).await;
    }

    /// Records answers, each with the client that was called.
    async fn record_answers(&self, answers: Vec<(Arc<str>, CallReply)>, by: &str) {
        if answers.is_empty() {
            return;
        }
        let permit = self.shared.engine.reserve().await;
        // Counted with the permit in hand: no wait may lose an answer that is owed no more.
        let whats = self.counted(answers, by).into_iter().map(CallReply::into_command).collect();
        // When the engine ends, the calls are owed again by the next leader (EFFECTS-REPEAT).
        if let Err(error) = permit.notify(whats) {
            tracing::debug!(%error, "phase-two answers not recorded");
        }
    }

    /// Returns the answers that count.
    fn counted(&self, mut answers: Vec<(Arc<str>, CallReply)>, by: &str) -> Vec<CallReply> {
        let mut counted = Vec::with_capacity(answers.len());
        while let Some((asked, _)) = answers.first() {
            let asked = Arc::clone(asked);
            let (of_one, rest): (Vec<_>, Vec<_>) =
                answers.into_iter().partition(|(other, _)| *other == asked);
            let of_one = of_one.into_iter().map(|(_, answer)| answer).collect();
            counted.extend(self.counted_from(&asked, by, of_one));
            answers = rest;
        }
        counted
    }

    /// Returns the answers that count for the client that was called or for the one that answers.
    fn counted_from(&self, asked: &str, by: &str, answers: Vec<CallReply>) -> Vec<CallReply> {
        let dispatcher = &self.shared.dispatcher;
        if asked == by {
            return dispatcher.outcomes(asked, answers);
        }
        // First for the client that was called, with which the calls are in flight. If it has gone,
        // or has made its connection again without the resource, the one that answers may count.
        let mut counted = dispatcher.outcomes(asked, answers.clone());
        let is_new = |answer: &CallReply| !counted.contains(answer);
        let rest: Vec<CallReply> = answers.into_iter().filter(is_new).collect();
        counted.extend(dispatcher.outcomes(by, rest));
        counted
    }

    async fn outcome(&self, asked: &SentCall, answer: BranchEnded) -> PhaseTwoOutcome {
        use BranchStatus as S;
        let error = || -> Arc<str> {
            match &answer.result {
                Ok(()) => format!("the client answered {:?}", answer.status).into(),
                Err(failure) => cut(&failure.message).into(),
            }
        };
        match (asked.decision, answer.status) {
            (Decision::Commit, S::PhaseTwoCommitted) if answer.result.is_ok() => {
                PhaseTwoOutcome::Done
            }
            (Decision::RollBack, S::PhaseTwoRollbacked) if answer.result.is_ok() => {
                PhaseTwoOutcome::Done
            }
            (Decision::Commit, S::PhaseTwoCommitFailedXaerNotaRetryable)
            | (Decision::RollBack, S::PhaseTwoRollbackFailedXaerNotaRetryable)
                if self.has_ended_unknown(asked).await =>
            {
                PhaseTwoOutcome::Done
            }
            // The machine was to be committed and has ended otherwise. Calling again is no use.
            (Decision::Commit, S::PhaseTwoRollbacked | S::PhaseOneFailed)
                if asked.branch == SAGA && answer.result.is_ok() =>
            {
                tracing::warn!(xid = asked.xid.0, error = %error(), "a saga to be committed is not");
                PhaseTwoOutcome::Done
            }
            // For XA this status does not count as refused: a process that has the database without
            // XA sends it for a branch of another process.
            (Decision::RollBack, S::PhaseTwoRollbackFailedUnretryable)
                if asked.resource.mode != Mode::Xa =>
            {
                PhaseTwoOutcome::Refused { error: error(), rows: Arc::default() }
            }
            _ => PhaseTwoOutcome::Retryable { error: error() },
        }
    }

    /// Returns whether an XA branch that the called process does not know has ended.
    async fn has_ended_unknown(&self, asked: &SentCall) -> bool {
        let xid = asked.xid;
        let times = self.shared.engine.view(move |coordinator| {
            let record = coordinator.global(xid)?.record;
            Some((record.begun_at, record.deadline))
        });
        // Without the times nothing is known, and the branch is called again.
        let Ok(Some((begun_at, deadline))) = times.await else { return false };
        let dispatcher = &self.shared.dispatcher;
        let (now, away_ms) =
            (dispatcher.clock().now(), millis(self.shared.settings.xa_unknown_wait));
        let owners = dispatcher.owners(&asked.resource, asked.registered_by.as_deref());
        self.shared.unknown.has_ended(&unknown::UnknownBranchReport {
            branch: (xid, asked.branch),
            by: &asked.client_id,
            owners: &owners,
            now,
            is_time_up: now >= recovery_ends(begun_at, deadline, self.term_began_at(), away_ms),
            away_ms,
        })
    }
}

/// Returns the time until which an XA branch may still be prepared, or be found by a process that
/// has not registered yet since the coordinator began to lead.
fn recovery_ends(
    begun_at: Timestamp,
    deadline: Timestamp,
    since: Timestamp,
    wait_ms: u64,
) -> Timestamp {
    let timeout_ms = deadline.0.saturating_sub(begun_at.0);
    let of_the_global = deadline.after_ms(timeout_ms.max(wait_ms));
    of_the_global.max(since.after_ms(wait_ms))
}

/// Cuts a message for display to a bounded length.
fn cut(text: &str) -> String {
    text.chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_branch_ends_only_after_its_recovery_time() {
        let ends = |begun_at, deadline, since| {
            recovery_ends(Timestamp(begun_at), Timestamp(deadline), Timestamp(since), 60_000).0
        };
        assert_eq!(ends(1_000, 31_000, 0), 91_000);
        assert_eq!(ends(1_000, 91_000, 0), 181_000, "a long time limit counts twice");
        assert_eq!(ends(1_000, 31_000, 500_000), 560_000, "its process may still register");
    }
}

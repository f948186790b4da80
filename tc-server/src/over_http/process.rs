//! A participant as the dispatcher sees it: a process that claims its resources and answers calls.

use std::sync::Arc;

use handfast_core::{Mode, PhaseTwoOutcome, Resolution, XidText};
use tracing::Instrument;

use super::client::HttpCaller;
use super::operation::OperationRequest;
use super::outcome::CallOutcome;
use crate::dispatch::{
    Call, CallBatch, CallReply, CallSink, Dispatcher, NewProcess, ProcessRegistration, ResourceKey,
    ResourceMatcher,
};
use crate::engine::EngineHandle;

/// The longest error message that is kept.
const ERROR_CHARACTERS_MAX: usize = 500;

/// Connects one participant, of the HTTP client, to the dispatcher.
#[derive(Clone, Debug)]
struct Process {
    caller: HttpCaller,
    place: usize,
    client_id: Arc<str>,
    dispatcher: Dispatcher,
    engine: EngineHandle,
}

impl HttpCaller {
    /// Connects the participants to the dispatcher, until the registrations are dropped.
    #[must_use]
    pub fn connect(
        &self,
        dispatcher: &Dispatcher,
        engine: &EngineHandle,
    ) -> Vec<ProcessRegistration> {
        let participants = self.participants().enumerate();
        let connect = |(place, participant): (usize, &super::Participant)| {
            let prefix = participant.prefix.as_str();
            let client_id: Arc<str> = format!("http {prefix}").into();
            let new = NewProcess {
                client_id: Arc::clone(&client_id),
                application: "over HTTP".into(),
                agent: concat!("handfast ", env!("CARGO_PKG_VERSION")).into(),
                peer: prefix.into(),
            };
            let (caller, dispatcher) = (self.clone(), dispatcher.clone());
            let engine = engine.clone();
            let process = Arc::new(Process { caller, place, client_id, dispatcher, engine });
            let sink: Arc<dyn CallSink> = Arc::<Process>::clone(&process);
            process.dispatcher.clone().connect_claiming(new, sink, process)
        };
        participants.map(connect).collect()
    }
}

impl ResourceMatcher for Process {
    fn calls_max(&self, resource: &ResourceKey) -> Option<usize> {
        let has_operations = matches!(resource.mode, Mode::Tcc | Mode::Saga);
        let serves = has_operations && self.caller.serves(self.place, &resource.id);
        serves.then_some(self.caller.calls_max())
    }
}

impl CallSink for Process {
    fn put(&self, batch: CallBatch) {
        for call in batch.calls {
            // BOUNDED: the dispatcher sends at most `calls_max` calls at a time.
            let xid = XidText { address: &call.address, xid: call.xid };
            let (branch, resource) = (call.branch.0, &call.resource.id);
            let span = tracing::debug_span!("call", %xid, branch, %resource);
            tokio::spawn(self.clone().execute(call).instrument(span));
        }
    }
}

impl Process {
    async fn execute(self, call: Call) {
        let outcome = self.ask(&call).await;
        let Call { xid, branch, ask, .. } = call;
        let answer = CallReply { xid, branch, ask, outcome };
        let permit = self.engine.reserve().await;
        // Counted with the permit in hand: no wait may lose an answer that is owed no more.
        let counted = self.dispatcher.outcomes(&self.client_id, vec![answer]);
        let counted = counted.into_iter().map(CallReply::into_command).collect();
        // When the engine ends, the calls are owed again by the next leader (EFFECTS-REPEAT).
        if let Err(error) = permit.notify(counted) {
            tracing::debug!(%error, "phase-two answers not recorded");
        }
    }

    async fn ask(&self, call: &Call) -> PhaseTwoOutcome {
        // An operator has ended the branch: the participant is not called.
        if call.resolution == Some(Resolution::AcceptCurrent) {
            return PhaseTwoOutcome::Done;
        }
        let request = match OperationRequest::of_call(call) {
            Ok(request) => request,
            Err(error) => return PhaseTwoOutcome::Retryable { error: error.into() },
        };
        let answered = self.caller.call(&request).await;
        let (xid, branch, operation) = (&request.xid, request.branch, request.operation);
        match answered {
            CallOutcome::Done(None) => PhaseTwoOutcome::Done,
            CallOutcome::Done(Some(output)) => PhaseTwoOutcome::Output { output: output.into() },
            CallOutcome::Refused(message) => {
                let error = cut(&format!("{operation}: {message}"));
                tracing::warn!(xid, branch, %error, "participant refuses");
                PhaseTwoOutcome::Refused { error, rows: Arc::default() }
            }
            CallOutcome::Failed(message) => {
                let error = cut(&format!("{operation}: {message}"));
                tracing::warn!(xid, branch, %error, "participant to be called again");
                PhaseTwoOutcome::Retryable { error }
            }
        }
    }
}

fn cut(text: &str) -> Arc<str> {
    text.chars().take(ERROR_CHARACTERS_MAX).collect::<String>().into()
}

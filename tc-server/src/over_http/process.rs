//! A participant as the dispatcher sees it: a process that claims resources and answers calls.

use std::sync::Arc;

use handfast_core::{Mode, PhaseTwoOutcome, Resolution};

use super::answered::Answered;
use super::caller::Caller;
use super::operation::Request;
use crate::dispatch::{
    Answer, Call, CallBatch, CallSink, Claim, Dispatcher, NewProcess, ResourceKey, Seat,
};
use crate::engine::EngineHandle;

/// Messages for people are bounded.
const ERROR_CHARACTERS_MAX: usize = 500;

/// One participant's place between dispatcher and HTTP client.
#[derive(Clone, Debug)]
struct Process {
    caller: Caller,
    place: usize,
    client_id: Arc<str>,
    dispatcher: Dispatcher,
    engine: EngineHandle,
}

impl Caller {
    /// Takes the calls of the participants over, until the seats are dropped.
    #[must_use]
    pub fn connect(&self, dispatcher: &Dispatcher, engine: &EngineHandle) -> Vec<Seat> {
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

impl Claim for Process {
    fn calls_max(&self, resource: &ResourceKey) -> Option<usize> {
        let has_operations = matches!(resource.mode, Mode::Tcc | Mode::Saga);
        let serves = has_operations && self.caller.serves(self.place, &resource.id);
        serves.then_some(self.caller.calls_max())
    }
}

impl CallSink for Process {
    fn put(&self, batch: CallBatch) {
        for call in batch.calls {
            tokio::spawn(self.clone().carry_out(call));
        }
    }
}

impl Process {
    async fn carry_out(self, call: Call) {
        let outcome = self.ask(&call).await;
        let Call { xid, branch, ask, .. } = call;
        let answer = Answer { xid, branch, ask, outcome };
        let permit = self.engine.reserve().await;
        let counted = self.dispatcher.outcomes(&self.client_id, vec![answer]);
        let counted = counted.into_iter().map(Answer::into_what).collect();
        // When the engine ends, the calls are owed again by the next leader (EFFECTS-REPEAT).
        if let Err(error) = permit.notify(counted) {
            tracing::debug!(%error, "phase-two answers not recorded");
        }
    }

    async fn ask(&self, call: &Call) -> PhaseTwoOutcome {
        // An operator has ended the branch: nothing is asked of the participant.
        if call.resolution == Some(Resolution::AcceptCurrent) {
            return PhaseTwoOutcome::Done;
        }
        let request = match Request::of_call(call) {
            Ok(request) => request,
            Err(error) => return PhaseTwoOutcome::Retryable { error: error.into() },
        };
        let answered = self.caller.call(&request).await;
        let (xid, branch, operation) = (&request.xid, request.branch, request.operation);
        match answered {
            Answered::Done(None) => PhaseTwoOutcome::Done,
            Answered::Done(Some(output)) => PhaseTwoOutcome::Output { output: output.into() },
            Answered::Refused(message) => {
                let error = cut(&format!("{operation}: {message}"));
                tracing::warn!(xid, branch, %error, "participant refuses");
                PhaseTwoOutcome::Refused { error, rows: Arc::default() }
            }
            Answered::Failed(message) => {
                let error = cut(&format!("{operation}: {message}"));
                tracing::warn!(xid, branch, %error, "participant to be asked again");
                PhaseTwoOutcome::Retryable { error }
            }
        }
    }
}

fn cut(text: &str) -> Arc<str> {
    text.chars().take(ERROR_CHARACTERS_MAX).collect::<String>().into()
}

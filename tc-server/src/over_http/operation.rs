//! Translates the dispatcher's call to an operation with a URL and a body.

use handfast_core::{Decision, Mode, StepCall, StepKind, XidText};
use serde_json::{Map, Value, json};

use super::prefix::is_segment;
use crate::dispatch::{Ask, Call};
use crate::spans::format_traceparent;

/// One operation of one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationRequest {
    /// The resource id, which is the beginning of the URL.
    pub(crate) resource: String,
    /// The saga's action, which is the next part of the URL.
    pub(super) action: Option<String>,
    /// The name of the operation, which is the last part of the URL.
    pub(super) operation: &'static str,
    pub(super) xid: String,
    pub(super) branch: u64,
    pub(super) body: Vec<u8>,
    /// The span of the call, for the header `traceparent`.
    pub(crate) traceparent: Option<String>,
}

impl OperationRequest {
    /// Returns the request for the try of a registered branch.
    pub(crate) fn of_try(resource: String, xid: String, branch: u64, input: Vec<u8>) -> Self {
        Self {
            resource,
            action: None,
            operation: "try",
            xid,
            branch,
            body: input,
            traceparent: None,
        }
    }

    /// Translates a call of the dispatcher.
    ///
    /// # Errors
    ///
    /// The reason for which the call cannot be made over HTTP.
    pub(super) fn of_call(call: &Call) -> Result<Self, String> {
        let Ask::Finish(decision) = call.ask else {
            return Err("participants over HTTP do not vote".to_owned());
        };
        let traceparent = call.span.map(format_traceparent);
        let xid = XidText { address: &call.address, xid: call.xid }.to_string();
        let (resource, branch) = (call.resource.id.as_ref().to_owned(), call.branch.0);
        match (&call.step, call.resource.mode) {
            (None, Mode::Tcc) => {
                let operation = match decision {
                    Decision::Commit => "confirm",
                    Decision::RollBack => "cancel",
                };
                let body = call.application_data.to_vec();
                Ok(Self { resource, action: None, operation, xid, branch, body, traceparent })
            }
            (Some(step), Mode::Saga) => {
                let operation = match decision {
                    Decision::Commit => "action",
                    Decision::RollBack => "compensation",
                };
                // A client has chosen the name: it must not lead out of the path of its resource.
                if !is_segment(&step.action) {
                    return Err(format!("action {} cannot be part of a URL", step.action));
                }
                let action = Some(step.action.as_ref().to_owned());
                let body = step_body(step, &call.application_data)?;
                Ok(Self { resource, action, operation, xid, branch, body, traceparent })
            }
            (_, Mode::At | Mode::Tcc | Mode::Saga | Mode::Xa | Mode::TwoPhase) => {
                Err("over HTTP there are TCC branches and steps of sagas".to_owned())
            }
        }
    }

    /// Returns the whole URL.
    pub(super) fn url(&self) -> String {
        let Self { resource, action, operation, .. } = self;
        match action {
            Some(action) => format!("{resource}/{action}/{operation}"),
            None => format!("{resource}/{operation}"),
        }
    }

    /// Returns whether the answer's body is the output of a step.
    pub(super) fn gives_output(&self) -> bool {
        self.operation == "action"
    }
}

fn step_body(step: &StepCall, input: &[u8]) -> Result<Vec<u8>, String> {
    let outputs = step.outputs.iter().map(|given| {
        let output =
            json_of(&given.output).map_err(|error| format!("output of {}: {error}", given.step))?;
        Ok((given.step.as_ref().to_owned(), output))
    });
    let body = json!({
        "saga": &*step.saga,
        "key": &*step.key,
        "step": &*step.step,
        "action": &*step.action,
        "kind": word_of(step.kind),
        "input": json_of(input).map_err(|error| format!("input: {error}"))?,
        "outputs": outputs.collect::<Result<Map<String, Value>, String>>()?,
    });
    Ok(body.to_string().into_bytes())
}

/// Parses JSON; no bytes are `null`.
fn json_of(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(bytes) }
}

fn word_of(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Compensable => "compensable",
        StepKind::Harmless => "harmless",
        StepKind::Pivot => "pivot",
        StepKind::Retriable => "retriable",
        StepKind::Signal => "signal",
    }
}

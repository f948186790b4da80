//! The outcome of a call, read from a participant's answer.
//!
//! A refusal has its own status and code, which no proxy, framework or crashed service sends by
//! accident. Every other answer that is not a success is retried.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::operation::OperationRequest;

/// The code that makes a 409 a refusal.
const REFUSED: &str = "refused";

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The operation is done, by this call or an earlier one; with the output of an action.
    Done(Option<Vec<u8>>),
    /// The operation must not be executed, and retrying would not help.
    Refused(String),
    /// The call failed, as far as is known.
    Failed(String),
}

/// The body of a refusal.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    #[serde(default)]
    message: String,
}

/// Reads the outcome from a status and a body.
pub(super) fn read(request: &OperationRequest, status: StatusCode, body: &[u8]) -> CallOutcome {
    if status.is_success() {
        return if request.gives_output() { output(body) } else { CallOutcome::Done(None) };
    }
    // A body of another form is no refusal; the status decides then.
    let refusal = serde_json::from_slice::<Refusal>(body).ok();
    match refusal.filter(|it| status == StatusCode::CONFLICT && it.code == REFUSED) {
        Some(Refusal { message, .. }) if message.is_empty() => CallOutcome::Refused(REFUSED.into()),
        Some(Refusal { message, .. }) => CallOutcome::Refused(message),
        None => CallOutcome::Failed(format!("{}: status {}", request.url(), status.as_u16())),
    }
}

fn output(body: &[u8]) -> CallOutcome {
    if body.trim_ascii().is_empty() {
        return CallOutcome::Done(None);
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(_) => CallOutcome::Done(Some(body.to_vec())),
        Err(error) => CallOutcome::Failed(format!("the output is no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operation: &'static str, status: u16, body: &str, expected: CallOutcome) {
        let request = OperationRequest {
            resource: "http://stock/reserve".to_owned(),
            action: None,
            operation,
            xid: "tc:1".to_owned(),
            branch: 1,
            body: Vec::new(),
            traceparent: None,
        };
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(read(&request, status, body.as_bytes()), expected);
    }

    fn failed(operation: &str, status: u16) -> CallOutcome {
        CallOutcome::Failed(format!("http://stock/reserve/{operation}: status {status}"))
    }

    #[test]
    fn a_success_is_done_and_an_action_returns_its_body() {
        check("try", 200, "whatever", CallOutcome::Done(None));
        check("confirm", 204, "", CallOutcome::Done(None));
        check("action", 200, "", CallOutcome::Done(None));
        check("action", 201, "[1]", CallOutcome::Done(Some(b"[1]".to_vec())));
        let no_json = "the output is no JSON: expected value at line 1 column 1";
        check("action", 200, "<html>", CallOutcome::Failed(no_json.to_owned()));
    }

    #[test]
    fn a_conflict_with_the_code_is_a_refusal() {
        let body = r#"{"code":"refused","message":"out of stock","more":1}"#;
        check("try", 409, body, CallOutcome::Refused("out of stock".to_owned()));
        check("try", 409, r#"{"code":"refused"}"#, CallOutcome::Refused("refused".to_owned()));
    }

    #[test]
    fn every_other_answer_is_retried() {
        for (status, body) in [
            (409, ""),
            (409, r#"{"code":"version"}"#),
            (400, r#"{"code":"refused"}"#),
            (301, ""),
            (404, ""),
            (500, r#"{"code":"refused"}"#),
            (503, ""),
        ] {
            check("try", status, body, failed("try", status));
        }
    }
}

//! What a participant's answer means.
//!
//! A refusal has a status and a word of its own: no proxy, framework or crashed service says it by
//! accident. Everything else that is no success is asked again.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::operation::Request;

/// The word that makes a 409 a refusal.
const REFUSED: &str = "refused";

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Carried out, now or before; with what an action gives back.
    Done(Option<Vec<u8>>),
    /// It must not be carried out, and asking again would not help.
    Refused(String),
    /// Not this time, as far as is known.
    Failed(String),
}

/// The body of a refusal.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    #[serde(default)]
    message: String,
}

/// The meaning of a status and a body.
pub(super) fn read(request: &Request, status: StatusCode, body: &[u8]) -> Answered {
    if status.is_success() {
        return if request.gives_output() { output(body) } else { Answered::Done(None) };
    }
    // Any other body is no refusal, and the status says what it is.
    let refusal = serde_json::from_slice::<Refusal>(body).ok();
    match refusal.filter(|it| status == StatusCode::CONFLICT && it.code == REFUSED) {
        Some(Refusal { message, .. }) if message.is_empty() => Answered::Refused(REFUSED.into()),
        Some(Refusal { message, .. }) => Answered::Refused(message),
        None => Answered::Failed(format!("{}: status {}", request.url(), status.as_u16())),
    }
}

fn output(body: &[u8]) -> Answered {
    if body.trim_ascii().is_empty() {
        return Answered::Done(None);
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(_) => Answered::Done(Some(body.to_vec())),
        Err(error) => Answered::Failed(format!("the output is no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operation: &'static str, status: u16, body: &str, expected: Answered) {
        let request = Request {
            resource: "http://stock/reserve".to_owned(),
            action: None,
            operation,
            xid: "tc:1".to_owned(),
            branch: 1,
            body: Vec::new(),
        };
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(read(&request, status, body.as_bytes()), expected);
    }

    fn failed(operation: &str, status: u16) -> Answered {
        Answered::Failed(format!("http://stock/reserve/{operation}: status {status}"))
    }

    #[test]
    fn a_success_is_done_and_an_action_gives_its_body() {
        check("try", 200, "whatever", Answered::Done(None));
        check("confirm", 204, "", Answered::Done(None));
        check("action", 200, "", Answered::Done(None));
        check("action", 201, "[1]", Answered::Done(Some(b"[1]".to_vec())));
        let no_json = "the output is no JSON: expected value at line 1 column 1";
        check("action", 200, "<html>", Answered::Failed(no_json.to_owned()));
    }

    #[test]
    fn a_conflict_that_says_so_is_a_refusal() {
        let body = r#"{"code":"refused","message":"out of stock","more":1}"#;
        check("try", 409, body, Answered::Refused("out of stock".to_owned()));
        check("try", 409, r#"{"code":"refused"}"#, Answered::Refused("refused".to_owned()));
    }

    #[test]
    fn everything_else_is_asked_again() {
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

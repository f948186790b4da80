//! Alerts as CloudEvents 1.0, in their JSON form. Errors are not part of them, since they may quote
//! rows; the command in each shows them.

use std::sync::Arc;

use handfast_core::{Alert, AlertKind, BranchId, Timestamp, Xid, XidText};
use serde::Serialize;

use crate::dispatch::{OverdueCalls, ResourceKey};
use crate::time_format::{self, rfc3339};

/// The media type of an event with its attributes in the body.
pub(super) const CONTENT_TYPE: &str = "application/cloudevents+json";

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AlertEvent {
    /// The same for each attempt, and for each leader that raises it.
    pub(super) id: String,
    pub(super) kind: EventKind,
    pub(super) xid: String,
    pub(super) branch: BranchId,
    resource: Arc<str>,
    step: Option<Arc<str>>,
    key: Option<Arc<str>>,
    overdue: Option<(usize, Timestamp)>,
    raised_at: Timestamp,
}

/// The kinds of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A transaction or saga begins to need an operator.
    NeedsOperator,
    /// A step of a saga is given up, and the saga is compensated.
    StepGivenUp,
    /// Phase two of a resource is owed for too long.
    PhaseTwoOverdue,
}

impl EventKind {
    /// Returns the `type` of the event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NeedsOperator => "handfast.needs_operator",
            Self::StepGivenUp => "handfast.saga_step_given_up",
            Self::PhaseTwoOverdue => "handfast.phase_two_overdue",
        }
    }
}

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: &'a str,
    time: String,
    datacontenttype: &'static str,
    data: Content<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    xid: &'a str,
    branch: String,
    resource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overdue: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The command that shows more.
    command: String,
}

impl AlertEvent {
    pub(super) fn of_core(alert: &Alert) -> Self {
        let Alert { kind, xid, address, branch, resource, occasion, step, key, .. } = alert;
        let kind = match kind {
            AlertKind::NeedsOperator => EventKind::NeedsOperator,
            AlertKind::StepGivenUp => EventKind::StepGivenUp,
        };
        Self {
            id: format!("{xid}/{branch}/{}/{occasion}", kind.name()),
            kind,
            xid: text_of(address, *xid),
            branch: *branch,
            resource: Arc::clone(resource),
            step: step.clone(),
            key: key.clone(),
            overdue: None,
            raised_at: time_format::now(),
        }
    }

    /// Returns the alert about a resource whose phase two is overdue.
    pub(super) fn of_overdue(resource: &ResourceKey, calls: &OverdueCalls) -> Self {
        let OverdueCalls { count, since, xid, branch, address } = calls;
        let kind = EventKind::PhaseTwoOverdue;
        Self {
            id: format!("{xid}/{branch}/{}", kind.name()),
            kind,
            xid: text_of(address, *xid),
            branch: *branch,
            resource: Arc::clone(&resource.id),
            step: None,
            key: None,
            overdue: Some((*count, *since)),
            raised_at: time_format::now(),
        }
    }

    /// Returns the body of the request.
    pub(super) fn to_json(&self, address: &str) -> serde_json::Result<Vec<u8>> {
        let Self { id, kind, xid, resource, step, key, overdue, .. } = self;
        let noun = if key.is_some() { "saga" } else { "tx" };
        serde_json::to_vec(&CloudEvent {
            specversion: "1.0",
            id,
            source: format!("handfast://{address}"),
            kind: kind.name(),
            subject: xid,
            time: rfc3339(self.raised_at),
            datacontenttype: "application/json",
            data: Content {
                xid,
                branch: self.branch.to_string(),
                resource,
                step: step.as_deref(),
                key: key.as_deref(),
                overdue: overdue.map(|(count, _)| count),
                since: overdue.map(|(_, since)| rfc3339(since)),
                command: format!("handfast {noun} show {xid}"),
            },
        })
    }
}

fn text_of(address: &str, xid: Xid) -> String {
    XidText { address, xid }.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use handfast_core::Mode;

    use super::*;

    fn shown(event: AlertEvent) -> String {
        let event = AlertEvent { raised_at: Timestamp(1_700_000_000_000), ..event };
        let value: serde_json::Value =
            serde_json::from_slice(&event.to_json("tc:7091").unwrap()).unwrap();
        serde_json::to_string_pretty(&value).unwrap()
    }

    #[test]
    fn a_saga_is_told_with_its_step_and_key() {
        let alert = Alert {
            kind: AlertKind::StepGivenUp,
            xid: Xid(7),
            address: "tc:7091".into(),
            branch: BranchId(2),
            resource: "account".into(),
            error: "card 4711 refused".into(),
            occasion: 0,
            step: Some("billing/charge".into()),
            key: Some("order-42".into()),
        };
        expect![[r#"
            {
              "data": {
                "branch": "2",
                "command": "handfast saga show tc:7091:7",
                "key": "order-42",
                "resource": "account",
                "step": "billing/charge",
                "xid": "tc:7091:7"
              },
              "datacontenttype": "application/json",
              "id": "7/2/handfast.saga_step_given_up/0",
              "source": "handfast://tc:7091",
              "specversion": "1.0",
              "subject": "tc:7091:7",
              "time": "2023-11-14T22:13:20.000Z",
              "type": "handfast.saga_step_given_up"
            }"#]]
        .assert_eq(&shown(AlertEvent::of_core(&alert)));
    }

    #[test]
    fn overdue_calls_are_told_by_resource() {
        let resource = ResourceKey { id: "postgres:7012/shop".into(), mode: Mode::At };
        let calls = OverdueCalls {
            count: 3,
            since: Timestamp(1_699_999_000_000),
            xid: Xid(7),
            branch: BranchId(641),
            address: "tc:7091".into(),
        };
        expect![[r#"
            {
              "data": {
                "branch": "641",
                "command": "handfast tx show tc:7091:7",
                "overdue": 3,
                "resource": "postgres:7012/shop",
                "since": "2023-11-14T21:56:40.000Z",
                "xid": "tc:7091:7"
              },
              "datacontenttype": "application/json",
              "id": "7/641/handfast.phase_two_overdue",
              "source": "handfast://tc:7091",
              "specversion": "1.0",
              "subject": "tc:7091:7",
              "time": "2023-11-14T22:13:20.000Z",
              "type": "handfast.phase_two_overdue"
            }"#]]
        .assert_eq(&shown(AlertEvent::of_overdue(&resource, &calls)));
    }
}

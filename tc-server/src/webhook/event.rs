//! Alerts as CloudEvents 1.0, in their JSON form. Errors are not part of them, since they may quote
//! rows; the command in each shows them.

use std::sync::Arc;

use handfast_core::{Alert, AlertKind, BranchId, Timestamp, Xid, XidText};
use serde::Serialize;

use crate::dispatch::{OverdueCalls, ResourceKey};
use crate::relay_reports::{ParkedEvent, RelayKey, RelayView};
use crate::time_format::{self, rfc3339};

/// The media type of an event with its attributes in the body.
pub(super) const CONTENT_TYPE: &str = "application/cloudevents+json";

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AlertEvent {
    /// The same for each attempt, and for each leader that raises it.
    pub(super) id: String,
    pub(super) kind: EventKind,
    /// The transaction or the event that it is about.
    pub(super) subject: String,
    /// 0 for an event.
    pub(super) branch: BranchId,
    content: Content,
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
    /// An event of an outbox is parked.
    EventParked,
}

impl EventKind {
    /// Returns the `type` of the event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NeedsOperator => "handfast.needs_operator",
            Self::StepGivenUp => "handfast.saga_step_given_up",
            Self::PhaseTwoOverdue => "handfast.phase_two_overdue",
            Self::EventParked => "handfast.event_parked",
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
    data: &'a Content,
}

/// The part of an alert that is of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Content {
    #[serde(skip_serializing_if = "Option::is_none")]
    xid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overdue: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outbox: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<u64>,
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
        let noun = if key.is_some() { "saga" } else { "tx" };
        let (id, subject) =
            (format!("{xid}/{branch}/{}/{occasion}", kind.name()), text_of(address, *xid));
        let content = Content {
            step: step.clone(),
            key: key.clone(),
            ..Content::of_branch(&subject, *branch, resource, noun)
        };
        Self { id, kind, subject, branch: *branch, content, raised_at: time_format::now() }
    }

    /// Returns the alert about a resource whose phase two is overdue.
    pub(super) fn of_overdue(resource: &ResourceKey, calls: &OverdueCalls) -> Self {
        let OverdueCalls { count, since, xid, branch, address } = calls;
        let kind = EventKind::PhaseTwoOverdue;
        let (id, subject) = (format!("{xid}/{branch}/{}", kind.name()), text_of(address, *xid));
        let content = Content {
            overdue: Some(*count),
            since: Some(rfc3339(*since)),
            ..Content::of_branch(&subject, *branch, &resource.id, "tx")
        };
        Self { id, kind, subject, branch: *branch, content, raised_at: time_format::now() }
    }

    /// Returns the alert about a parked event, the newest of those that a relay has parked.
    pub(super) fn of_parked(relay: &RelayView, event: &ParkedEvent) -> Self {
        let RelayKey { application, outbox, .. } = &relay.key;
        let kind = EventKind::EventParked;
        let (subject, parked_at) = (event.event.to_string(), event.parked_at);
        let content = Content {
            xid: event.xid.as_ref().map(ToString::to_string),
            key: Some(Arc::clone(&event.key)),
            since: Some(rfc3339(parked_at)),
            event: Some(Arc::clone(&event.event)),
            application: Some(Arc::clone(application)),
            outbox: Some(Arc::clone(outbox)),
            topic: Some(Arc::clone(&event.topic)),
            parked: Some(relay.report.sum(|lane| lane.parked)),
            command: "handfast events ls".to_owned(),
            ..Content::default()
        };
        let id = format!("{subject}/{}/{}", kind.name(), parked_at.0);
        let raised_at = time_format::now();
        Self { id, kind, subject, branch: BranchId(0), content, raised_at }
    }

    /// Returns the body of the request.
    pub(super) fn to_json(&self, address: &str) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&CloudEvent {
            specversion: "1.0",
            id: &self.id,
            source: format!("handfast://{address}"),
            kind: self.kind.name(),
            subject: &self.subject,
            time: rfc3339(self.raised_at),
            datacontenttype: "application/json",
            data: &self.content,
        })
    }

    /// Returns the number of the transaction, or the id of the event, for the audit log.
    pub(super) fn target(&self) -> (Option<String>, Option<String>) {
        match self.kind {
            EventKind::EventParked => (None, Some(self.subject.clone())),
            EventKind::NeedsOperator | EventKind::StepGivenUp | EventKind::PhaseTwoOverdue => {
                (self.subject.rsplit(':').next().map(str::to_owned), None)
            }
        }
    }
}

impl Content {
    fn of_branch(xid: &str, branch: BranchId, resource: &Arc<str>, noun: &str) -> Self {
        Self {
            xid: Some(xid.to_owned()),
            branch: Some(branch.to_string()),
            resource: Some(Arc::clone(resource)),
            command: format!("handfast {noun} show {xid}"),
            ..Self::default()
        }
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
    use crate::relay_reports::{LaneReport, RelayReport};

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

    #[test]
    fn a_parked_event_is_told_with_its_outbox_and_without_its_error() {
        let event = ParkedEvent {
            event: "0b9f".into(),
            topic: "orders".into(),
            key: "7".into(),
            error: "card 4711 refused".into(),
            attempts: 10,
            parked_at: Timestamp(1_699_999_000_000),
            emitted_at: Timestamp(1_699_998_000_000),
            xid: None,
        };
        let lane = LaneReport { parked: 3, ..LaneReport::default() };
        let report = RelayReport {
            lanes: vec![lane],
            parked: vec![event.clone()],
            ..RelayReport::default()
        };
        let key =
            RelayKey { application: "shop".into(), outbox: "orders-db".into(), relay: "a".into() };
        let (report, reported_at, is_silent) = (Arc::new(report), Timestamp(0), false);
        let relay = RelayView { key, report, reported_at, is_silent };
        expect![[r#"
            {
              "data": {
                "application": "shop",
                "command": "handfast events ls",
                "event": "0b9f",
                "key": "7",
                "outbox": "orders-db",
                "parked": 3,
                "since": "2023-11-14T21:56:40.000Z",
                "topic": "orders"
              },
              "datacontenttype": "application/json",
              "id": "0b9f/handfast.event_parked/1699999000000",
              "source": "handfast://tc:7091",
              "specversion": "1.0",
              "subject": "0b9f",
              "time": "2023-11-14T22:13:20.000Z",
              "type": "handfast.event_parked"
            }"#]]
        .assert_eq(&shown(AlertEvent::of_parked(&relay, &event)));
    }
}

//! Messages about events of outboxes, as their relays report them.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Selects the parked events to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only those of outboxes of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox: Option<String>,
    /// Only those of this topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Only those of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The most events on the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The last reports of relays of outboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The relays, in the order of their applications and outboxes, at most 128.
    pub relays: Vec<OutboxRelay>,
    /// Parked events, those that were parked last first. A relay reports at most 100.
    pub items: Vec<ParkedEvent>,
    /// The `cursor` of the following page of parked events, if there are more.
    pub next: Option<String>,
}

/// A relay of an outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxRelay {
    /// The application of its process.
    pub application: String,
    /// The outbox.
    pub outbox: String,
    /// Its own name.
    pub relay: String,
    /// The network address of its process.
    pub peer: String,
    /// No report has come when one was due. A silent relay is forgotten after 10 minutes.
    pub is_silent: bool,
    /// How long ago its last report came.
    pub seen_ms_ago: u64,
    /// Why it cannot read its outbox, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Events whose transaction is not decided.
    pub held: u64,
    /// Events to be published.
    pub new: u64,
    /// Events that wait for an operator.
    pub parked: u64,
    /// When the oldest event to be published was emitted, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<String>,
    /// For how long that event has waited; 0 if there is none.
    pub age_ms: u64,
    /// How many lanes it has of the 64 that the keys of an outbox are spread over.
    pub lane_count: usize,
    /// Those of its lanes that are not empty.
    pub lanes: Vec<OutboxLane>,
}

/// A lane of an outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxLane {
    /// Its number.
    pub lane: u32,
    /// Events whose transaction is not decided.
    pub held: u64,
    /// Events to be published.
    pub new: u64,
    /// Events that wait for an operator.
    pub parked: u64,
    /// When the oldest event to be published was emitted, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<String>,
    /// For how long that event has waited; 0 if there is none.
    pub age_ms: u64,
}

/// An event that the broker has refused too often. Later events of its key wait behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedEvent {
    /// Its id.
    pub event: String,
    /// The application of the relay that reports it.
    pub application: String,
    /// The outbox that it is in.
    pub outbox: String,
    /// Its topic.
    pub topic: String,
    /// Its key, which names the aggregate.
    pub key: String,
    /// The broker's last error.
    pub reason: String,
    /// How often the broker has refused it.
    pub attempts: u64,
    /// When it was parked.
    pub parked_at: String,
    /// For how long it has been parked.
    pub age_ms: u64,
    /// When it was emitted.
    pub emitted_at: String,
    /// The transaction whose branch emitted it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<String>,
}

/// The answer to an action on an event that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventReply {
    /// The event.
    pub event: String,
    /// The outbox that it is in.
    pub outbox: String,
    /// Its state after the action.
    pub state: EventOutcome,
}

/// The state of an event after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventOutcome {
    /// It is to be published, and later events of its key behind it.
    New,
    /// It is never published, and its key goes on.
    Skipped,
}

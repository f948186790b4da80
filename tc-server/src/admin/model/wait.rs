//! Waiting requests: the queue of a row, the wait-for graph, and deadlocks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LockMode, LockWaiter, Status};

/// The thing that is waited for: a row, or a named lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitTarget {
    /// The resource, of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The table, of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The key for display, of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key as it is locked, of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical_key: Option<String>,
    /// How it is wanted, of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<LockMode>,
    /// The name, of a named lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
}

/// A request of a transaction that waits for a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockWait {
    /// The row; one of several that the request waits for.
    #[serde(flatten)]
    pub target: WaitTarget,
    /// Since when it waits.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// When it is refused.
    pub deadline: String,
    /// The transactions that it waits for, the first 32.
    pub behind: Vec<String>,
}

/// One page of the requests that wait for a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockQueuePage {
    /// The requests, next first.
    pub items: Vec<LockWaiter>,
    /// The `cursor` of the following page, if there is one.
    pub next: Option<String>,
    /// How many requests wait for the row.
    pub waiting: usize,
}

/// A transaction in the wait-for graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitNode {
    /// Its id.
    pub xid: String,
    /// The application that began it.
    pub application: String,
    /// The application's name for this kind of transaction.
    pub name: String,
    /// Names and values that the application calls it by.
    pub labels: BTreeMap<String, String>,
    /// Its status, unless it has ended meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<String>,
    /// Time since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Whether it waits itself, as far as this part of the graph shows.
    #[serde(default)]
    pub waits: bool,
}

/// An edge of the wait-for graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitEdge {
    /// The transaction that waits.
    pub from: String,
    /// The transaction that it waits for.
    pub to: String,
    /// Whether that transaction holds the row or the lock, and does not only stand before the
    /// request in the queue.
    pub holds: bool,
    /// The row or the lock.
    #[serde(flatten)]
    pub target: WaitTarget,
    /// Since when it waits.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// When the request is refused.
    pub deadline: String,
}

/// A part of the wait-for graph, the longest waiting requests first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitGraph {
    /// The transactions of these edges, by their ids.
    pub nodes: Vec<WaitNode>,
    /// The edges of at most `limit` requests, at most 32 of each.
    pub edges: Vec<WaitEdge>,
    /// The `cursor` of the following part, if there may be one.
    pub next: Option<String>,
}

/// The deadlocks that were refused last, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deadlocks {
    /// At most 100, since the coordinator has led.
    pub items: Vec<Deadlock>,
}

/// A deadlock that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deadlock {
    /// When.
    pub at: String,
    /// How long ago.
    pub age_ms: u64,
    /// The transaction whose request was refused.
    pub xid: String,
    /// How many transactions were in the cycle.
    pub length: usize,
    /// The cycle, at most 32 of it: each waits for the next, the last for the first.
    pub cycle: Vec<DeadlockMember>,
}

/// A transaction in a deadlock, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadlockMember {
    /// The transaction.
    pub xid: String,
    /// The application that began it.
    pub application: String,
    /// The application's name for this kind of transaction.
    pub name: String,
    /// Names and values that the application calls it by.
    pub labels: BTreeMap<String, String>,
    /// The thing that it waited for, which the next one held, or was before it in the queue for.
    #[serde(flatten)]
    pub target: WaitTarget,
}

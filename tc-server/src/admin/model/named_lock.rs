//! Messages about named locks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A named lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedLock {
    /// Its name.
    pub name: String,
    /// Its leases, the longest held first, at most 100.
    pub leases: Vec<Lease>,
    /// The number of its leases.
    #[serde(default)]
    pub holding: usize,
    /// The waiting requests, the next one first, at most 100.
    pub queue: Vec<NamedLockWaiter>,
    /// The number of waiting requests.
    pub waiting: usize,
}

/// A lease of a named lock, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Identifies the acquisition.
    pub token: String,
    /// The client's name for itself.
    pub label: String,
    /// How much of the lock: `all`, `read`, or `1 of n` permits.
    pub share: String,
    /// The fencing token.
    pub fence: String,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// How long it lasts without renewal; none if its global decides. 0: its time is up, and it has
    /// not been granted to another request yet.
    pub left_ms: Option<u64>,
    /// The global that owns it, by its number.
    pub xid: Option<String>,
}

/// A request that waits for a named lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedLockWaiter {
    /// Identifies the acquisition.
    pub token: String,
    /// The client's name for itself.
    pub label: String,
    /// The requested part of the lock.
    pub share: String,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// The global that asks, by its number.
    pub xid: Option<String>,
}

/// One page of named locks, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedLockPage {
    /// At most `limit`.
    pub items: Vec<NamedLock>,
    /// The `cursor` of the following page, if there may be one.
    pub next: Option<String>,
}

/// The leases that an operator ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The lock.
    pub name: String,
    /// Only the lease of this acquisition. Without it, all leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

/// The answer after leases were ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReply {
    /// How many were ended.
    pub leases: usize,
}

/// Selects the named locks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NamedLockQuery {
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The most items on the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One named lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OneNamedLockQuery {
    /// Its name.
    pub name: String,
}

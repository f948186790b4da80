//! Messages about named locks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A named lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedLock {
    /// Its name.
    pub name: String,
    /// Who holds it, longest first; at most 100 of them.
    pub leases: Vec<Lease>,
    /// How many leases there are of it.
    #[serde(default)]
    pub holding: usize,
    /// Who waits, next first; at most 100 of them.
    pub queue: Vec<NamedLockWaiter>,
    /// How many wait.
    pub waiting: usize,
}

/// One who holds a named lock, or part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Which acquisition.
    pub token: String,
    /// What its client calls itself.
    pub label: String,
    /// How much of the lock: `all`, `read`, or `1 of n` permits.
    pub share: String,
    /// The fencing token.
    pub fence: String,
    /// Since when.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// How long it lasts without renewal; none if its global decides. 0: its time is up, and nobody
    /// else has it yet.
    pub left_ms: Option<u64>,
    /// The global that owns it, by its number.
    pub xid: Option<String>,
}

/// Who waits for a named lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedLockWaiter {
    /// Which acquisition.
    pub token: String,
    /// What its client calls itself.
    pub label: String,
    /// How much it asks for.
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

/// Which leases an operator ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The lock.
    pub name: String,
    /// Only the lease of this acquisition; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For the audit log; at most 1,024 bytes are kept.
    #[serde(default)]
    pub reason: String,
}

/// Leases were ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReply {
    /// How many.
    pub leases: usize,
}

/// Which named locks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NamedLockQuery {
    /// Where the page before ended: its `next`.
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

//! Messages about the last minutes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The last 15 minutes, in steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recent {
    /// The length of a step.
    pub step_ms: u64,
    /// The steps, oldest first: at most 90, fewer after a start.
    pub steps: Vec<RecentStep>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentStep {
    /// Its end.
    pub at: String,
    /// Transactions that were committed in it.
    pub committed: u64,
    /// Transactions that were rolled back in it.
    pub rolled_back: u64,
    /// Undecided transactions at its end; this and the next three are missing if the node did not
    /// lead, or did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<usize>,
    /// Requests that waited for global locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<usize>,
    /// Branches whose phase two was decided and not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<usize>,
    /// Transactions that needed an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_operator: Option<usize>,
    /// Begins, each to its reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timing>,
    /// Registrations of branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Timing>,
    /// Decisions to commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Timing>,
    /// Phase two of branches, from owed to done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_two: Option<Timing>,
    /// Waits for global locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_wait: Option<Timing>,
    /// Batches made durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_commit: Option<Timing>,
}

/// Durations of one kind in one step; missing where there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// How many there were.
    pub count: u64,
    /// Half of them took no longer than this, in microseconds, to within 7 %.
    pub p50_us: u64,
    /// 99 of 100 took no longer than this, in microseconds, to within 7 %.
    pub p99_us: u64,
}

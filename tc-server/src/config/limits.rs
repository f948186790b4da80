//! The core's limits as configuration.

use handfast_core::Limits;
use serde::{Deserialize, Serialize};

/// What the coordinator takes on; reaching a limit is answered with `HF-TC-LIMIT-REACHED`. Defaults
/// and meanings are those of [`Limits`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// The timeout of globals that name none, in milliseconds. Too short: slow work is rolled back
    /// under way. Too long: rows of dead clients stay locked that long.
    pub timeout_ms_default: u64,
    /// The longest timeout granted, in milliseconds; longer ones are cut to it. Too short: batch
    /// jobs cannot run. Too long: one careless client locks rows for that long.
    pub timeout_ms_max: u64,
    /// Unfinished globals. Too few: `Begin` is refused under load. Too many: memory, about half a
    /// kilobyte each.
    pub globals_max: usize,
    /// Branches of one global. Too few: wide transactions are refused. Too many: a runaway loop
    /// makes one global that takes minutes to roll back.
    pub branches_per_global_max: usize,
    /// Rows named in one request. Too few: bulk statements are refused. Too many: one request holds
    /// up all others while it is decided.
    pub rows_per_request_max: usize,
    /// Rows whose locks one branch holds. Too few: local transactions of many statements are
    /// refused. Too many: the branch's record becomes slow to store.
    pub rows_per_branch_max: usize,
    /// Row locks held or waited for. Too few: registrations are refused. Too many: memory, about
    /// 100 bytes each plus the key.
    pub locks_max: usize,
    /// Requests that wait for locks, or for a global to finish. Too few: conflicts become errors
    /// under load. Too many: memory, and queues that time out anyway.
    pub waiters_max: usize,
    /// The longest wait for a lock, in milliseconds; longer ones are cut to it. Too short: hot rows
    /// turn into errors. Too long: a stuck application piles up behind one row.
    pub wait_ms_max: u64,
    /// How long a finished global is remembered, in milliseconds. Too short: a client that asks
    /// late is told `unknown`. Too long: `limits.history_max` decides alone.
    pub retention_ms: u64,
    /// Finished globals remembered. Too few: late questions are answered `unknown`. Too many:
    /// memory and disk, about half a kilobyte each.
    pub history_max: usize,
    /// Entries of one global's timeline. Too few: what operators did is lost. Too many: the record
    /// grows with every action.
    pub events_per_global_max: usize,
    /// Globals and waiters expired in one go. Too few: many small batches. Too many: one expiry of
    /// everything holds up all other requests.
    pub expiries_per_tick_max: usize,
}

impl LimitsConfig {
    /// So small that they are hit.
    #[must_use]
    pub fn tiny() -> Self {
        Self::from(Limits::tiny())
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self::from(Limits::default())
    }
}

impl From<Limits> for LimitsConfig {
    fn from(limits: Limits) -> Self {
        Self {
            timeout_ms_default: limits.timeout_ms_default,
            timeout_ms_max: limits.timeout_ms_max,
            globals_max: limits.globals_max,
            branches_per_global_max: limits.branches_per_global_max,
            rows_per_request_max: limits.rows_per_request_max,
            rows_per_branch_max: limits.rows_per_branch_max,
            locks_max: limits.locks_max,
            waiters_max: limits.waiters_max,
            wait_ms_max: limits.wait_ms_max,
            retention_ms: limits.retention_ms,
            history_max: limits.history_max,
            events_per_global_max: limits.events_per_global_max,
            expiries_per_tick_max: limits.expiries_per_tick_max,
        }
    }
}

impl From<&LimitsConfig> for Limits {
    fn from(config: &LimitsConfig) -> Self {
        Self {
            timeout_ms_default: config.timeout_ms_default,
            timeout_ms_max: config.timeout_ms_max,
            globals_max: config.globals_max,
            branches_per_global_max: config.branches_per_global_max,
            rows_per_request_max: config.rows_per_request_max,
            rows_per_branch_max: config.rows_per_branch_max,
            locks_max: config.locks_max,
            waiters_max: config.waiters_max,
            wait_ms_max: config.wait_ms_max,
            retention_ms: config.retention_ms,
            history_max: config.history_max,
            events_per_global_max: config.events_per_global_max,
            expiries_per_tick_max: config.expiries_per_tick_max,
        }
    }
}

//! How much the coordinator takes on (BOUNDED).
//!
//! Reaching a limit is answered with [`Rejection::LimitReached`](crate::Rejection::LimitReached)
//! unless the field says otherwise; nothing is dropped silently.

/// The coordinator's limits. All times are milliseconds.
///
/// With the feature `serde` they are part of a configuration; names that they do not have are
/// refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Limits {
    /// Timeout of a global whose TM names none. Too short: long business transactions are rolled
    /// back under way. Too long: rows of a dead client stay locked that long.
    pub timeout_ms_default: u64,
    /// Longest timeout granted; a longer one is cut to this, and the reply says so. Too short:
    /// batch jobs cannot run. Too long: one careless client locks rows for that long.
    pub timeout_ms_max: u64,
    /// Unfinished globals. Too few: `Begin` is refused under load. Too many: memory, about 400
    /// bytes each with two branches and a row each.
    pub globals_max: usize,
    /// Branches of one global. Too few: wide transactions are refused. Too many: a runaway loop in
    /// one client makes one global that takes minutes to roll back.
    pub branches_per_global_max: usize,
    /// Rows named in one registration or check. Too few: bulk statements are refused. Too many: one
    /// request holds up all others while it is decided.
    pub rows_per_request_max: usize,
    /// Rows whose locks one branch holds; their keys may have 8 MiB in all. Too few: local
    /// transactions of many statements are refused. Too many: the branch's record, which holds them
    /// all, becomes slow to store.
    pub rows_per_branch_max: usize,
    /// Row locks held or waited for, all together: a row counts for each branch that holds it and
    /// each request that waits for it. Too few: registrations are refused. Too many: memory, about
    /// 100 bytes each, more if their keys are longer than 22 bytes.
    pub locks_max: usize,
    /// Requests that wait, for rows, named locks, votes or the end of a global, all together. A
    /// registration beyond it is refused; a decision beyond it is answered at once with the status
    /// reached. Too few: conflicts become errors under load. Too many: memory, and long queues that
    /// time out anyway.
    pub waiters_max: usize,
    /// Longest wait for a lock; a longer one is cut to this. Too short: hot rows turn into errors.
    /// Too long: threads of a stuck application pile up behind one row.
    pub wait_ms_max: u64,
    /// How long a finished global is remembered. Too short: a client that asks late is told
    /// "unknown". Too long: `history_max` decides alone.
    pub retention_ms: u64,
    /// How long after a start no undecided global, saga or saga's step from before it times out; a
    /// shorter timeout runs its whole length. Too short: after a long outage, or a jump of the
    /// clock, globals are rolled back before their clients are back. Too long: rows of a dead
    /// client stay locked that much longer after a restart.
    pub restart_grace_ms: u64,
    /// Finished globals remembered, and as many ended sagas; the longest finished goes when one
    /// more finishes. Too few: as for `retention_ms`. Too many: memory and disk, about half a
    /// kilobyte each.
    pub history_max: usize,
    /// Entries of one global's timeline, at least 2; the first is kept, the oldest other one goes.
    /// Too few: what operators did is lost. Too many: the record grows with every click.
    pub events_per_global_max: usize,
    /// Unfinished sagas. Too few: starting one is refused under load. Too many: memory, a few
    /// kilobytes each.
    pub sagas_max: usize,
    /// Steps of one saga, with its child sagas and their steps. Too few: long processes are
    /// refused. Too many: each change of a step stores them all.
    pub saga_steps_max: usize,
    /// Child sagas within one another. Too few: sagas made of sagas are refused. Too many: no one
    /// understands where a step stands.
    pub saga_depth_max: usize,
    /// Bytes of names and inputs of one saga. Too few: sagas with documents in them are refused.
    /// Too many: each change of a step stores them again.
    pub saga_bytes_max: usize,
    /// Failed attempts after which a step that cannot be given up is shown as in need of an
    /// operator; it is still retried. Too few: every hiccup calls an operator. Too many: no
    /// operator is called.
    pub step_attempts_told: u32,
    /// Leases of named locks. Too few: acquiring is refused under load. Too many: memory, about
    /// half a kilobyte each.
    pub leases_max: usize,
    /// The longest lease of a named lock, and the longest delay after one; a longer one is refused.
    /// Too short: holders whose network is slow lose their locks. Too long: the lock of a process
    /// that died blocks the others.
    pub lease_ms_max: u64,
    /// How many per cent of `globals_max`, `locks_max`, `waiters_max`, `sagas_max` and `leases_max`
    /// one connection may have. Too few: a busy process is refused while there is room. Too many:
    /// one that leaks shuts all others out.
    pub share_per_connection: usize,
    /// The same of one application, all its processes together. Too few: an installation with one
    /// application cannot use the limits. Too many: one application shuts all others out.
    pub share_per_application: usize,
    /// How long a process may be gone before the globals that it has begun, and that have no branch
    /// yet, are forgotten. Too short: a process that reconnects after a cut in the network has lost
    /// them. Too long: those of dead processes keep their places that long.
    pub client_grace_ms: u64,
    /// Globals expired, waiters expired, leases ended and finished globals forgotten by one `Tick`,
    /// each; the rest is due at once and goes with the next. Too few: many small batches. Too many:
    /// one expiry of everything holds up all other requests.
    pub expiries_per_tick_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms_default: 60_000,
            timeout_ms_max: 24 * 60 * 60 * 1_000,
            globals_max: 1_000_000,
            branches_per_global_max: 10_000,
            rows_per_request_max: 10_000,
            rows_per_branch_max: 100_000,
            locks_max: 10_000_000,
            waiters_max: 100_000,
            wait_ms_max: 60 * 60 * 1_000,
            retention_ms: 60 * 60 * 1_000,
            restart_grace_ms: 60 * 60 * 1_000,
            history_max: 100_000,
            events_per_global_max: 100,
            sagas_max: 100_000,
            saga_steps_max: 128,
            saga_depth_max: 8,
            saga_bytes_max: 1 << 20,
            step_attempts_told: 10,
            leases_max: 1_000_000,
            lease_ms_max: 60 * 60 * 1_000,
            share_per_connection: 60,
            share_per_application: 80,
            client_grace_ms: 60_000,
            expiries_per_tick_max: 1_000,
        }
    }
}

impl Limits {
    /// Limits so small that tests reach every one of them.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            timeout_ms_default: 1_000,
            timeout_ms_max: 5_000,
            globals_max: 8,
            branches_per_global_max: 3,
            rows_per_request_max: 4,
            rows_per_branch_max: 6,
            locks_max: 24,
            waiters_max: 4,
            wait_ms_max: 2_000,
            retention_ms: 10_000,
            restart_grace_ms: 500,
            history_max: 4,
            events_per_global_max: 3,
            sagas_max: 3,
            saga_steps_max: 4,
            saga_depth_max: 1,
            saga_bytes_max: 200,
            step_attempts_told: 3,
            leases_max: 4,
            lease_ms_max: 5_000,
            share_per_connection: 100,
            share_per_application: 100,
            client_grace_ms: 500,
            expiries_per_tick_max: 2,
        }
    }
}

//! Sessions that must stay with their prepared branch until phase two.
//!
//! On MariaDB, and on MySQL before 8.0.29, a prepared branch belongs to its session: no other can
//! finish it. The session is kept here, and phase two in this process goes over it and gives it
//! back to the pool. A hold has two limits (BOUNDED): how long, and how many. Beyond either the
//! session is closed, which does not end the branch: the server frees it, and any session of any
//! process can finish it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_rm_core::two_phase::BranchName;
use sqlx::Database;
use tokio::time::Instant;

use super::pooled_connection::PooledConnection;

/// The sessions held by one resource.
#[derive(Debug)]
pub(super) struct HeldSessions<DB: Database> {
    sessions: Mutex<HashMap<BranchName, (Instant, PooledConnection<DB>)>>,
    sessions_max: usize,
    pub(super) limit: Duration,
}

impl<DB: Database> HeldSessions<DB> {
    pub(super) fn new(sessions_max: usize, limit: Duration) -> Self {
        Self { sessions: Mutex::default(), sessions_max, limit }
    }

    /// Holds the session of a prepared branch. If there is no room, drops it, which closes it.
    pub(super) fn hold(&self, name: BranchName, session: PooledConnection<DB>) {
        let mut sessions = self.lock();
        if sessions.len() < self.sessions_max && !self.limit.is_zero() {
            sessions.insert(name, (Instant::now(), session));
        }
    }

    /// Takes the session of a branch, to finish the branch over it.
    pub(super) fn take(&self, name: &BranchName) -> Option<PooledConnection<DB>> {
        self.lock().remove(name).map(|(_, session)| session)
    }

    /// Closes the sessions that were held too long.
    pub(super) fn close_overdue(&self, now: Instant) {
        let overdue = |since: &Instant| now.duration_since(*since) >= self.limit;
        self.lock().retain(|_, (since, _)| !overdue(since));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BranchName, (Instant, PooledConnection<DB>)>> {
        // Every change is one call, so a panic elsewhere leaves nothing half done.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

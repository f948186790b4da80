//! The state that all clones of a resource, its local transactions and its phase two share.

use std::collections::HashMap;
use std::time::Duration;

use handfast_rm_core::two_phase::{BranchName, Node};
use sqlx::{Database, Pool};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::database::{Sessions, XaDatabase};
use super::held_sessions::HeldSessions;
use super::pooled_connection::PooledConnection;
use crate::at::database::Identity;
use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// How long the spare connection is kept without use.
const ASIDE_IDLE_MAX: Duration = Duration::from_secs(10);

/// The shared part of a resource.
#[derive(Debug)]
pub(super) struct XaState<DB: XaDatabase> {
    pub(super) pool: Pool<DB>,
    /// A pool of one spare connection, used when the main pool has none left.
    pub(super) aside: Pool<DB>,
    pub(super) coordinator: Coordinator,
    pub(super) identity: Identity,
    pub(super) node: Node,
    pub(super) sessions: Sessions,
    pub(super) held: HeldSessions<DB>,
    pub(super) sweeper: Sweeper,
}

/// Makes a pool with the same options, but for one connection that is closed soon after its use.
pub(super) fn aside<DB: Database>(pool: &Pool<DB>) -> Pool<DB> {
    let options = pool.options().clone().min_connections(0).max_connections(1);
    let options = options.idle_timeout(ASIDE_IDLE_MAX);
    options.connect_lazy_with(pool.connect_options().as_ref().clone())
}

impl<DB: XaDatabase> XaState<DB> {
    /// Takes a session to carry out decisions in. If all sessions of the pool are in use, perhaps
    /// by transactions that wait for the very rows that the decision frees, takes the spare one.
    pub(super) async fn session_for_decisions(&self) -> Result<PooledConnection<DB>, sqlx::Error> {
        let pool = &self.pool;
        let is_used_up =
            pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections();
        PooledConnection::acquire(if is_used_up { &self.aside } else { pool }).await
    }

    /// Names a branch by a random id, positive and of 63 bits, so that no two processes draw the
    /// same.
    pub(super) fn name_branch(&self, xid: &Xid) -> BranchName {
        let branch = (rand::random::<u64>() >> 1).max(1);
        BranchName { node: self.node.clone(), branch, xid: xid.text().clone() }
    }
}

/// The pace and the memory of the sweep.
#[derive(Debug)]
pub(super) struct Sweeper {
    pub(super) every: Duration,
    pub(super) orphan_after: Duration,
    /// Since when the coordinator has not known these branches. The lock also keeps sweeps from
    /// running at the same time.
    pub(super) unknown_since: Mutex<HashMap<BranchName, Instant>>,
}

impl Sweeper {
    pub(super) fn new(every: Duration, orphan_after: Duration) -> Self {
        Self { every, orphan_after, unknown_since: Mutex::default() }
    }
}

//! The state that all clones of a resource, its local transactions and its phase two share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use handfast_rm_core::plan::Reads;
use sqlx::{Pool, SqlStr};

use super::database::catalogue::{Catalogue, Managed};
use super::database::{Backend, Identity};
use super::error::AtError;
use super::kept_connections::KeptConnections;
use super::leftovers::Leftovers;
use super::phase_one::{AnswerStock, JointQueues};
use super::running_branches::RunningBranches;
use crate::context::{self, Context};
use crate::coordinator::Coordinator;
use crate::executor::Route;

/// The shared part of a resource.
#[derive(Debug)]
pub(crate) struct ResourceState<DB: Backend> {
    pub(crate) pool: Pool<DB>,
    pub(crate) connections: Arc<KeptConnections<DB>>,
    pub(crate) coordinator: Coordinator,
    pub(crate) identity: Identity,
    pub(crate) catalogue: Catalogue<DB>,
    pub(crate) branches: Arc<RunningBranches>,
    pub(crate) lock_timeout: Duration,
    /// Whether branches send several statements in one call.
    pub(crate) merges: bool,
    /// Whether work outside of a global is refused.
    pub(crate) only_in_global: bool,
    pub(crate) outside: OutsideWatch,
    pub(crate) prepared: PreparedWatch,
    /// Deletes what guards have kept of ended branches.
    pub(crate) guarded_leftovers: Leftovers,
    /// Deletes the undo rows of branches that the coordinator has lost.
    pub(crate) lost_undo_rows: Arc<Leftovers>,
    pub(crate) joint_queues: JointQueues<DB>,
    /// How many last branches of a single statement run.
    pub(crate) last_branches_running: Arc<AtomicUsize>,
    /// Drawn from where one call carries out more than its caller's statement.
    pub(crate) answers: AnswerStock<DB>,
}

/// The memory of [`ResourceState::note_outside`].
#[derive(Debug, Default)]
pub(crate) struct OutsideWatch {
    /// Whether the resource has been used in a global.
    takes_part: AtomicBool,
    has_warned: AtomicBool,
}

/// The memory of [`ResourceState::note_prepared`].
#[derive(Debug)]
pub(crate) struct PreparedWatch {
    /// How many statements a connection keeps prepared, where it matters when it is full.
    kept_max: Option<usize>,
    has_warned: AtomicBool,
}

impl PreparedWatch {
    pub(crate) fn of<DB: Backend>(pool: &Pool<DB>) -> Self {
        Self { kept_max: DB::kept_prepared_max(pool), has_warned: AtomicBool::new(false) }
    }
}

impl<DB: Backend> ResourceState<DB> {
    /// Returns the global that a local transaction is to be a branch of; `None` for a plain one.
    pub(crate) fn context(&self) -> Result<Option<Context>, AtError> {
        let context = context::current();
        if context.is_some() {
            self.outside.takes_part.store(true, Ordering::Relaxed);
        }
        if context.is_none() && self.only_in_global {
            return Err(self.outside_global());
        }
        if context.is_none() {
            let resource = &self.identity.resource_id;
            tracing::debug!(%resource, "no XID: plain local transaction");
        }
        Ok(context)
    }

    /// Warns, once, of a statement that changes or locks rows outside of any global where others of
    /// the resource run in one: a task that was spawned in a global has lost it in silence.
    pub(crate) fn note_outside(&self, sql: &SqlStr) {
        let OutsideWatch { takes_part, has_warned } = &self.outside;
        if !takes_part.load(Ordering::Relaxed) || has_warned.load(Ordering::Relaxed) {
            return;
        }
        let route = self.catalogue.classify(Reads::Local, sql);
        if matches!(route, Ok(Route::Planned(Managed::Statement(_))))
            && !has_warned.swap(true, Ordering::Relaxed)
        {
            let resource = &self.identity.resource_id;
            tracing::warn!(
                %resource,
                sql = sql.as_str(),
                "written outside of any global, so that it commits at once (said once): if it \
                 belongs to a global, carry the XID here, into a spawned task by `Xid::scope`; \
                 `only_in_global()` refuses such statements"
            );
        }
    }

    /// Warns, once, of a connection that keeps as many statements prepared as it may: each further
    /// one closes another, and the call behind that waits.
    pub(crate) fn note_prepared(&self, connection: &DB::Connection) {
        let PreparedWatch { kept_max, has_warned } = &self.prepared;
        let Some(kept_max) = *kept_max else { return };
        let is_full = DB::kept_prepared(connection) >= kept_max;
        if is_full && !has_warned.swap(true, Ordering::Relaxed) {
            let resource = &self.identity.resource_id;
            tracing::warn!(
                %resource,
                kept_max,
                "a connection keeps no more prepared statements (said once): each further text \
                 may wait 40 ms for the server over TCP, so raise `statement_cache_capacity` in \
                 the options of the pool"
            );
        }
    }

    pub(crate) fn outside_global(&self) -> AtError {
        AtError::OutsideGlobal { resource: self.identity.resource_id.clone() }
    }
}

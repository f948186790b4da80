//! The state that all clones of a resource, its local transactions and its phase two share.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;

use super::database::catalogue::Catalogue;
use super::database::{Backend, Identity};
use super::error::AtError;
use super::running_branches::RunningBranches;
use crate::context::{self, Context};
use crate::coordinator::Coordinator;

/// The shared part of a resource.
#[derive(Debug)]
pub(crate) struct ResourceState<DB: Backend> {
    pub(crate) pool: Pool<DB>,
    pub(crate) coordinator: Coordinator,
    pub(crate) identity: Identity,
    pub(crate) catalogue: Catalogue<DB>,
    pub(crate) branches: Arc<RunningBranches>,
    pub(crate) lock_timeout: Duration,
    /// Whether branches send several statements in one call.
    pub(crate) merges: bool,
    /// Whether work outside of a global is refused.
    pub(crate) only_in_global: bool,
}

impl<DB: Backend> ResourceState<DB> {
    /// Returns the global that a local transaction is to be a branch of; `None` for a plain one.
    pub(crate) fn context(&self) -> Result<Option<Context>, AtError> {
        let context = context::current();
        if context.is_none() && self.only_in_global {
            return Err(self.outside_global());
        }
        if context.is_none() {
            let resource = &self.identity.resource_id;
            tracing::debug!(%resource, "no XID: plain local transaction");
        }
        Ok(context)
    }

    pub(crate) fn outside_global(&self) -> AtError {
        AtError::OutsideGlobal { resource: self.identity.resource_id.clone() }
    }
}

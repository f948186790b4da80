//! The wing of the sagas: what decisions about them can touch.

use super::table::SagaTable;
use crate::contract::{GlobalStatus, SagaRecord, Xid};
use crate::decision_context::DecisionContext;
use crate::waiting::WaitingRequests;

/// Sagas, and the requests that wait for one to end. Globals and locks are not here.
#[derive(Debug)]
pub(crate) struct Sagas<'a> {
    pub(crate) on: DecisionContext<'a>,
    pub(crate) table: &'a mut SagaTable,
    pub(crate) waiting: &'a mut WaitingRequests,
}

impl Sagas<'_> {
    /// Returns the saga's status as that of a global.
    pub(super) fn status(&self, xid: Xid) -> GlobalStatus {
        self.table.get(xid).map_or(GlobalStatus::Unknown, SagaRecord::global_status)
    }
}

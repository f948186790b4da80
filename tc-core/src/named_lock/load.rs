//! Loads a lease from its record (RECORDED). Nothing is decided, and a record that could not have
//! been written stops the load.

use super::table::LeaseTable;
use crate::collections::interner::Names;
use crate::contract::{COUNTER_BITS, ClientId, Epoch, LeaseRecord, LoadError, LockShare};
use crate::global::state::Phase;
use crate::global::table::GlobalTable;

impl LeaseTable {
    /// Comes after the globals, which own leases.
    pub(crate) fn restore(
        &mut self,
        names: &mut Names,
        globals: &GlobalTable,
        epoch: Epoch,
        mut record: LeaseRecord,
    ) -> Result<(), LoadError> {
        let misfit = LoadError::LeaseMisfit(record.id);
        let LeaseRecord { ref name, share, xid, token, .. } = record;
        let is_later = record.id.0 >> COUNTER_BITS >= epoch.0;
        let owner = xid.map(|xid| globals.get(xid));
        // A decision to commit ends the leases of its global in the same batch.
        let owns = owner.is_none_or(|it| it.is_some_and(|it| it.phase != Phase::Committing));
        let is_all = |other: &LeaseRecord| share == LockShare::All || other.share == LockShare::All;
        let is_other = |other: &LeaseRecord| xid.is_none() || other.xid != xid;
        let is_beside = self.held(name).any(|other| is_all(other) && is_other(other));
        if is_later || !owns || is_beside || self.acquisition(token).is_some() {
            return Err(misfit);
        }
        record.label = names.text(&record.label);
        record.application = names.text(&record.application);
        self.add(record, ClientId::default());
        Ok(())
    }
}

//! Loads a saga from its record (RECORDED). Nothing is decided, and a record that could not have
//! been written stops the load.

use super::table::SagaTable;
use crate::collections::interner::Names;
use crate::contract::{COUNTER_BITS, Epoch, LoadError, SagaRecord, SagaState, StepState, Xid};

impl SagaTable {
    pub(crate) fn restore(
        &mut self,
        names: &mut Names,
        epoch: Epoch,
        mut record: SagaRecord,
    ) -> Result<(), LoadError> {
        let xid: Xid = record.xid;
        if xid.0 >> COUNTER_BITS >= epoch.0 {
            return Err(LoadError::XidOfLaterEpoch(xid));
        }
        if !record.fits() || self.of_key(&record.key).is_some() {
            return Err(LoadError::SagaMisfit(xid));
        }
        record.address = names.text(&record.address);
        record.application = names.text(&record.application);
        self.insert(record);
        Ok(())
    }
}

impl SagaRecord {
    /// Returns whether steps, children, definition and state belong together: a saga that runs or
    /// goes back has something under way.
    fn fits(&self) -> bool {
        let any = |states: &[StepState]| self.steps.iter().any(|it| states.contains(&it.state));
        let runs = [StepState::Running, StepState::RunningStuck];
        let goes_back = [StepState::Compensating, StepState::CompensatingStuck];
        let state_fits = match self.state {
            SagaState::Running => any(&runs) && !any(&goes_back),
            SagaState::Compensating(_) => any(&goes_back) && !any(&runs),
            SagaState::Completed(_) => self.steps.iter().all(|it| it.state == StepState::Done),
            SagaState::Compensated(..) => !any(&runs) && !any(&goes_back),
        };
        let shape_fits = self.definition.check_tree().is_ok();
        state_fits && shape_fits && self.steps.len() == self.definition.steps.len()
    }
}

//! Shows a saga as the corresponding global, with its steps as branches. So everything that shows a
//! global to operators, or acts on one, works with sagas too.

use std::sync::Arc;

use crate::contract::{
    BranchRecord, BranchState, FencingToken, GlobalRecord, GlobalState, GlobalStatus, Mode,
    SagaPart, SagaRecord, SagaState, StepDefinition, StepRecord, StepRef, StepState, Timestamp,
};
use crate::operator::page::PageBounds;
use crate::operator::view::{BranchView, GlobalPart, GlobalSummary, GlobalView};

/// The end of the year 9999: as late as dates can say.
const NEVER: Timestamp = Timestamp(253_402_300_799_000);

impl SagaRecord {
    pub(crate) fn view(&self) -> GlobalView {
        let branches = self.begun().map(|(place, definition, step)| BranchRecord {
            application_data: (*definition.input).into(),
            ..self.branch(place, definition, step)
        });
        let (record, status) = (self.record(), self.global_status());
        GlobalView { record, status, branches: branches.collect() }
    }

    pub(crate) fn summary(&self) -> GlobalSummary {
        let (record, status) = (self.record(), self.global_status());
        GlobalSummary { record, status, branches: self.begun().count() }
    }

    /// Steps from a place on, without their inputs.
    pub(crate) fn part(&self, from: u32, bounds: PageBounds) -> GlobalPart {
        let mut begun = self.begun().filter(|(place, ..)| place.0 >= from);
        let max = bounds.items_max.min(bounds.scanned_max).max(1);
        let branches = begun.by_ref().take(max).map(|(place, definition, step)| BranchView {
            record: self.branch(place, definition, step),
            holding: 0,
        });
        let branches: Vec<_> = branches.collect();
        GlobalPart {
            record: self.record(),
            status: self.global_status(),
            branch_count: self.begun().count(),
            scanned: branches.len(),
            branches,
            next: begun.next().map(|(place, ..)| place.0),
        }
    }

    /// The steps that are shown as branches.
    fn begun(&self) -> impl Iterator<Item = (StepRef, &StepDefinition, &StepRecord)> {
        self.each().filter(|(_, _, step)| step.state != StepState::Waiting)
    }

    fn record(&self) -> GlobalRecord {
        GlobalRecord {
            xid: self.xid,
            address: self.address.clone(),
            application: self.application.clone(),
            name: self.definition.name.clone(),
            begun_at: self.begun_at,
            deadline: self.deadline.unwrap_or(NEVER),
            state: self.global_state(self.global_status()),
            paused: self.paused,
            rollback_only: false,
            events: self.events.clone(),
            labels: self.labels.clone(),
            key: None,
            finished_branches: Arc::default(),
            trace: None,
        }
    }

    fn global_state(&self, status: GlobalStatus) -> GlobalState {
        match (self.state, status) {
            (SagaState::Completed(at), _) => GlobalState::Committed(at),
            (SagaState::Compensated(cause, at), _) => {
                GlobalState::RolledBack(super::requests::reason_of(cause), at)
            }
            (SagaState::Compensating(cause), _) => {
                GlobalState::RollingBack(super::requests::reason_of(cause))
            }
            (SagaState::Running, GlobalStatus::Active) => GlobalState::Active,
            (SagaState::Running, _) => GlobalState::Committing,
        }
    }

    fn branch(
        &self,
        place: StepRef,
        definition: &StepDefinition,
        step: &StepRecord,
    ) -> BranchRecord {
        let name = self.definition.path(SagaPart::Step(place));
        BranchRecord {
            xid: self.xid,
            id: place.branch(),
            sequence: place.0,
            resource: format!("{name} ({})", definition.resource).into(),
            mode: Mode::Saga,
            rows: Vec::new(),
            token: FencingToken(0),
            registered_at: step.started_at.unwrap_or(self.begun_at),
            application_data: Box::default(),
            state: branch_state(step),
            attempts: step.attempts,
            last_failure: step.last_failure.clone(),
            registered_by: None,
            phase_one_at: None,
            events: Arc::default(),
            trace: None,
        }
    }
}

fn branch_state(step: &StepRecord) -> BranchState {
    let why = || step.last_failure.as_ref().map_or_else(|| Arc::from(""), |(_, why)| why.clone());
    match step.state {
        StepState::Waiting | StepState::Running | StepState::Failed => BranchState::Registered,
        StepState::Done | StepState::Compensating => BranchState::PhaseOneDone,
        StepState::RunningStuck | StepState::CompensatingStuck => {
            BranchState::Refused(why(), Arc::default())
        }
        StepState::Compensated => BranchState::Finished(step.ended_at.unwrap_or_default()),
    }
}

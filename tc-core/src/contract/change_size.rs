//! Estimates the stored size of a change without encoding it, so that batches stay below the limits
//! of stores.

use super::{
    BranchRecord, BranchState, Change, DirtyColumn, DirtyRow, Event, FinishedBranch, GlobalRecord,
    Labels, LeaseRecord, Record, SagaDefinition, SagaRecord, StepDefinition, StepRecord,
};

/// The most bytes that the numbers and the frame of a value take.
const FIXED: usize = 128;
/// The most bytes that a small part of a value takes beside its texts.
const PART: usize = 24;
/// The most bytes that the places of a global, a branch or a saga in traces take.
const TRACE: usize = 64;

impl Change {
    /// Returns the bytes of the change when it is stored, somewhat too many for small ones.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        FIXED
            + match self {
                Self::Delete(_) => 0,
                Self::Put(Record::Global(global)) => of_global(global),
                Self::Put(Record::Branch(branch)) => of_branch(branch),
                Self::Put(Record::Saga(saga)) => of_saga(saga),
                Self::Put(Record::Lease(lease)) => of_lease(lease),
                Self::Put(Record::Closure(closure)) => closure.place.len(),
            }
    }
}

fn of_global(global: &GlobalRecord) -> usize {
    let GlobalRecord { address, application, name, events, finished_branches, .. } = global;
    let branch = |it: &FinishedBranch| FIXED + it.resource.len() + of_events(&it.events);
    let branches = finished_branches.iter().map(branch).sum::<usize>();
    let texts = address.len() + application.len() + name.len() + of_labels(&global.labels);
    let key = global.key.as_ref().map_or(0, |key| key.len());
    let trace = global.trace.as_ref().map_or(0, |_| TRACE);
    texts + key + of_events(events) + branches + trace
}

fn of_branch(branch: &BranchRecord) -> usize {
    let rows = branch.rows.iter().map(|row| PART + row.table.len() + row.key.len());
    let failure = branch.last_failure.as_ref().map_or(0, |(_, text)| text.len());
    let process = branch.registered_by.as_ref().map_or(0, |process| process.len());
    let texts = branch.resource.len() + branch.application_data.len() + failure + process;
    let trace = branch.trace.as_ref().map_or(0, |_| TRACE);
    rows.sum::<usize>() + texts + trace + of_state(&branch.state) + of_events(&branch.events)
}

fn of_state(state: &BranchState) -> usize {
    let BranchState::Refused(error, rows) = state else { return 0 };
    error.len() + rows.listed.iter().map(of_dirty_row).sum::<usize>()
}

fn of_dirty_row(row: &DirtyRow) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let column = |it: &DirtyColumn| {
        PART + it.name.len() + text(&it.before) + text(&it.after) + text(&it.current)
    };
    PART + row.table.len() + row.key.len() + row.columns.iter().map(column).sum::<usize>()
}

fn of_saga(saga: &SagaRecord) -> usize {
    let SagaRecord { address, application, key, definition, steps, events, cause_error, .. } = saga;
    let cause = cause_error.as_ref().map_or(0, |text| text.len());
    let steps = steps.iter().map(of_step).sum::<usize>();
    let trace = saga.trace.as_ref().map_or(0, |_| TRACE);
    address.len()
        + application.len()
        + key.len()
        + of_labels(&saga.labels)
        + of_definition(definition)
        + cause
        + steps
        + trace
        + of_events(events)
}

fn of_definition(definition: &SagaDefinition) -> usize {
    let steps = definition.steps.iter().map(of_step_definition).sum::<usize>();
    let children = definition.children.iter().map(|it| FIXED + it.name.len() + it.saga.len());
    definition.name.len() + steps + children.sum::<usize>()
}

fn of_step_definition(step: &StepDefinition) -> usize {
    let StepDefinition { name, resource, action, input, takes, .. } = step;
    FIXED + name.len() + resource.len() + action.len() + input.len() + PART * takes.len()
}

fn of_step(step: &StepRecord) -> usize {
    let failure = step.last_failure.as_ref().map_or(0, |(_, text)| text.len());
    PART + failure + step.output.as_ref().map_or(0, |output| output.len())
}

fn of_lease(lease: &LeaseRecord) -> usize {
    lease.name.len() + lease.label.len() + lease.application.len()
}

fn of_labels(labels: &Labels) -> usize {
    labels.iter().map(|label| PART + label.name.len() + label.value.len()).sum()
}

fn of_events(events: &[Event]) -> usize {
    events.iter().map(|event| 2 * PART + event.what.len()).sum()
}

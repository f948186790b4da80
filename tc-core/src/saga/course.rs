//! What comes next in a saga. It follows from the record alone.
//!
//! ```text
//!  group 0   group 1   pivot   group 3
//!  ───────▶ ───────▶ ───────▶ ───────▶  completed
//!     ◀────────◀────────┘ refused            after the pivot: tried until done
//!  compensated
//! ```

use super::definition::{StepDefinition, StepKind, StepRef};
use super::record::{SagaRecord, SagaState, StepRecord, StepState, TurnCause};
use crate::Timestamp;

impl SagaRecord {
    /// Begins whatever is due, and ends the saga when nothing is left. Gives back the steps whose
    /// calls are due from here on.
    pub(crate) fn go_on(&mut self, now: Timestamp) -> Vec<StepRef> {
        match self.state {
            SagaState::Running => self.go_forward(now),
            SagaState::Compensating(cause) => self.go_back(now, cause),
            SagaState::Completed(_) | SagaState::Compensated(..) => Vec::new(),
        }
    }

    /// Turns the saga back. What is under way counts as failed: nobody knows how far it has come.
    /// Gives back the steps whose calls must not be made any more.
    pub(crate) fn turn_back(&mut self, cause: TurnCause) -> Vec<StepRef> {
        self.state = SagaState::Compensating(cause);
        let mut withdrawn = Vec::new();
        for (step, definition, record) in self.each_mut() {
            let under_way = matches!(record.state, StepState::Running | StepState::RunningStuck);
            if under_way {
                record.state = StepState::Failed;
            }
            let owed = under_way || matches!(cause, TurnCause::Exhausted(at) if at == step);
            if owed && !is_compensated(definition) && definition.kind != StepKind::Signal {
                withdrawn.push(step);
            }
        }
        withdrawn
    }

    /// Whether the saga can still be taken back by a timeout or by request: its pivot has not
    /// begun.
    pub(crate) fn can_turn_back(&self) -> bool {
        let pivot = self.definition.pivot().and_then(|place| self.steps.get(place));
        let not_begun = pivot.is_none_or(|pivot| pivot.state == StepState::Waiting);
        self.state == SagaState::Running && not_begun
    }

    /// When the next timeout is due, and which.
    pub(crate) fn next_timeout(&self) -> Option<(Timestamp, TurnCause)> {
        if !self.can_turn_back() {
            return None;
        }
        let of_steps = self.each().filter_map(|(step, definition, record)| {
            let runs = record.state == StepState::Running;
            let started_at = record.started_at.filter(|_| runs)?;
            Some((started_at.after_ms(definition.timeout_ms?), TurnCause::StepTimeout(step)))
        });
        let of_saga = self.deadline.map(|deadline| (deadline, TurnCause::Timeout));
        of_steps.chain(of_saga).min_by_key(|&(at, _)| at)
    }

    /// The steps that owe a call.
    pub(crate) fn owing(&self) -> impl Iterator<Item = StepRef> + '_ {
        let owes = |record: &StepRecord| record.state.owes().is_some();
        self.each().filter(move |(_, _, record)| owes(record)).map(|(step, ..)| step)
    }

    /// How many calls are owed: a signal owes none.
    pub(crate) fn owed_calls(&self) -> usize {
        let owes = |(_, definition, record): &(StepRef, &StepDefinition, &StepRecord)| {
            definition.kind != StepKind::Signal && record.state.owes().is_some()
        };
        self.each().filter(owes).count()
    }

    fn go_forward(&mut self, now: Timestamp) -> Vec<StepRef> {
        let unfinished = self.each().filter(|(_, _, record)| record.state != StepState::Done);
        let Some(group) = unfinished.map(|(_, definition, _)| definition.group).min() else {
            self.state = SagaState::Completed(now);
            return Vec::new();
        };
        let is_due = |definition: &StepDefinition, record: &StepRecord| {
            definition.group == group && record.state == StepState::Waiting
        };
        let mut begun = Vec::new();
        for (step, definition, record) in self.each_mut() {
            if is_due(definition, record) {
                record.state = StepState::Running;
                record.started_at = Some(now);
                begun.push(step);
            }
        }
        begun
    }

    /// Everything that may have happened is taken back, the last group first.
    fn go_back(&mut self, now: Timestamp, cause: TurnCause) -> Vec<StepRef> {
        let owed = |definition: &StepDefinition, record: &StepRecord| match record.state {
            StepState::Done
            | StepState::Failed
            | StepState::Compensating
            | StepState::CompensatingStuck => is_compensated(definition),
            StepState::Waiting
            | StepState::Running
            | StepState::RunningStuck
            | StepState::Compensated => false,
        };
        let groups = self.each().filter(|(_, definition, record)| owed(definition, record));
        let Some(group) = groups.map(|(_, definition, _)| definition.group).max() else {
            self.state = SagaState::Compensated(cause, now);
            return Vec::new();
        };
        let mut begun = Vec::new();
        for (step, definition, record) in self.each_mut() {
            let is_begun = record.state.owes().is_some();
            if definition.group == group && owed(definition, record) && !is_begun {
                record.state = StepState::Compensating;
                record.attempts = 0;
                begun.push(step);
            }
        }
        begun
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (StepRef, &StepDefinition, &StepRecord)> {
        let steps = self.definition.steps.iter().zip(&self.steps);
        (0..).map(StepRef).zip(steps).map(|(step, (definition, record))| (step, definition, record))
    }

    fn each_mut(&mut self) -> impl Iterator<Item = (StepRef, &StepDefinition, &mut StepRecord)> {
        let steps = self.definition.steps.iter().zip(&mut self.steps);
        (0..).map(StepRef).zip(steps).map(|(step, (definition, record))| (step, definition, record))
    }
}

fn is_compensated(definition: &StepDefinition) -> bool {
    definition.kind == StepKind::Compensable
}

//! The path of a saga: its next steps follow from the record alone.
//!
//! ```text
//!  group 0   group 1   pivot   group 3
//!  ───────▶ ───────▶ ───────▶ ───────▶  completed
//!     ◀────────◀────────┘ refused            after the pivot: tried until done
//!  compensated
//! ```
//!
//! A child goes the same way at the position of its group: in each saga, from the innermost to the
//! started one, the next steps are in the first group (on the way back, the last) in which
//! something is left to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::{
    ChildRef, SagaPart, SagaRecord, SagaState, StepDefinition, StepKind, StepRecord, StepRef,
    StepState, Timestamp, TurnCause,
};
use crate::restart::Restart;

/// The group that each saga is at, by child; `None` is the saga that was started.
type OpenGroups = BTreeMap<Option<ChildRef>, u32>;

impl SagaRecord {
    /// Begins whatever is due, and ends the saga when nothing is left. Returns the steps whose
    /// calls are due from now on.
    pub(crate) fn advance(&mut self, now: Timestamp) -> Vec<StepRef> {
        match self.state {
            SagaState::Running => self.go_forward(now),
            SagaState::Compensating(cause) => self.go_back(now, cause),
            SagaState::Completed(_) | SagaState::Compensated(..) => Vec::new(),
        }
    }

    /// Turns the saga back. A step under way counts as failed: how far it has come is unknown.
    /// Returns the steps whose calls must not be made any more.
    pub(crate) fn turn_back(&mut self, cause: TurnCause) -> Vec<StepRef> {
        self.state = SagaState::Compensating(cause);
        // The error is kept apart from the step, whose last failure may soon be that of its
        // compensation.
        let failed = cause.step().and_then(|step| self.steps[step.place()].last_failure.as_ref());
        self.cause_error = failed.map(|(_, error)| Arc::clone(error));
        let mut withdrawn = Vec::new();
        for (step, definition, record) in self.each_mut() {
            let under_way = matches!(record.state, StepState::Running | StepState::RunningStuck);
            if under_way {
                record.state = StepState::Failed;
            }
            let failed = TurnCause::Refused(step) == cause || TurnCause::Exhausted(step) == cause;
            let was_owed = under_way || failed;
            // For the others the dispatcher replaces the call by that of the compensation.
            if was_owed && !is_compensated(definition) && definition.kind != StepKind::Signal {
                withdrawn.push(step);
            }
        }
        withdrawn
    }

    /// Returns whether a timeout or a request can still turn the saga back: its pivot has not
    /// begun.
    pub(crate) fn can_turn_back(&self) -> bool {
        let is_pivot = |definition: &StepDefinition| definition.kind == StepKind::Pivot;
        let pivot = self.each().find(|(_, definition, _)| is_pivot(definition));
        let not_begun = pivot.is_none_or(|(_, _, record)| record.state == StepState::Waiting);
        self.state == SagaState::Running && not_begun
    }

    /// When the next timeout is due, and which.
    pub(crate) fn next_timeout(&self, restart: Restart) -> Option<(Timestamp, TurnCause)> {
        let counts = self.can_turn_back();
        counts.then(|| self.timeouts(restart).min_by_key(|&(at, _)| at)).flatten()
    }

    /// The timeouts of the saga, and of its children and steps under way. They count for as long as
    /// the saga can turn back.
    pub(crate) fn timeouts(
        &self,
        restart: Restart,
    ) -> impl Iterator<Item = (Timestamp, TurnCause)> + '_ {
        let of_steps = self.each().filter_map(move |(step, definition, record)| {
            let runs = record.state == StepState::Running;
            let started_at = record.started_at.filter(|_| runs)?;
            let end = restart.end_of(started_at, definition.timeout_ms?);
            Some((end, TurnCause::StepTimeout(step)))
        });
        let of_children = self.definition.each_child().filter_map(move |child| {
            let timeout_ms = self.definition.children[child.place()].timeout_ms?;
            let end = restart.end_of(self.under_way_since(child)?, timeout_ms);
            Some((end, TurnCause::ChildTimeout(child)))
        });
        let of_saga = self.deadline.map(|deadline| (deadline, TurnCause::Timeout));
        of_steps.chain(of_children).chain(of_saga)
    }

    /// Limits recorded times to that of the restart, since the clock may have been ahead, and sets
    /// the deadline that the restart leaves.
    pub(super) fn resume(&mut self, restart: Restart) {
        self.begun_at = restart.no_later(self.begun_at);
        let timeout_ms = self.definition.timeout_ms;
        self.deadline = timeout_ms.map(|length_ms| restart.end_of(self.begun_at, length_ms));
        for step in &mut self.steps {
            step.started_at = step.started_at.map(|at| restart.no_later(at));
        }
        if let SagaState::Completed(at) | SagaState::Compensated(_, at) = &mut self.state {
            *at = restart.no_later(*at);
        }
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
        let unfinished = |_: &StepDefinition, record: &StepRecord| record.state != StepState::Done;
        let front = self.front(unfinished, u32::min);
        if front.is_empty() {
            self.end(SagaState::Completed(now));
            return Vec::new();
        }
        let is_due = |step: &StepRef| {
            self.steps[step.place()].state == StepState::Waiting && self.is_at(&front, *step)
        };
        let begun: Vec<StepRef> = self.definition.each_ref().filter(is_due).collect();
        for step in &begun {
            let record = &mut self.steps[step.place()];
            record.state = StepState::Running;
            record.started_at = Some(now);
        }
        begun
    }

    /// Compensates everything that may have happened, the last group first.
    fn go_back(&mut self, now: Timestamp, cause: TurnCause) -> Vec<StepRef> {
        let front = self.front(is_owed, u32::max);
        if front.is_empty() {
            self.end(SagaState::Compensated(cause, now));
            return Vec::new();
        }
        let due = self.each().filter(|(step, definition, record)| {
            let is_begun = record.state.owes().is_some();
            is_owed(definition, record) && !is_begun && self.is_at(&front, *step)
        });
        let begun: Vec<StepRef> = due.map(|(step, ..)| step).collect();
        for step in &begun {
            let record = &mut self.steps[step.place()];
            record.state = StepState::Compensating;
            // From here on the attempts of the compensation count towards the alarm of operators.
            record.attempts = 0;
        }
        begun
    }

    fn end(&mut self, state: SagaState) {
        self.state = state;
        // No call follows that would need it.
        self.trace = None;
    }

    /// Returns the group that each saga with a counting step is at: the first such group or the
    /// last.
    fn front(
        &self,
        counts: impl Fn(&StepDefinition, &StepRecord) -> bool,
        choose: fn(u32, u32) -> u32,
    ) -> OpenGroups {
        let mut front = OpenGroups::new();
        for (step, ..) in self.each().filter(|(_, definition, record)| counts(definition, record)) {
            for level in self.definition.levels(SagaPart::Step(step)) {
                let at = front.entry(level.within).or_insert(level.group);
                *at = choose(*at, level.group);
            }
        }
        front
    }

    fn is_at(&self, front: &OpenGroups, step: StepRef) -> bool {
        let mut levels = self.definition.levels(SagaPart::Step(step));
        levels.all(|level| front.get(&level.within) == Some(&level.group))
    }

    /// When the first step of a child has begun, if not all of them are done.
    fn under_way_since(&self, child: ChildRef) -> Option<Timestamp> {
        let own = || self.each().filter(|(step, ..)| self.definition.is_within(*step, child));
        let unfinished = own().any(|(_, _, record)| record.state != StepState::Done);
        own().filter_map(|(_, _, record)| record.started_at).min().filter(|_| unfinished)
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

/// Returns whether a saga that turns back, or has, must still compensate the step.
pub(super) fn is_owed(definition: &StepDefinition, record: &StepRecord) -> bool {
    match record.state {
        StepState::Done
        | StepState::Failed
        | StepState::Compensating
        | StepState::CompensatingStuck => is_compensated(definition),
        StepState::Waiting
        | StepState::Running
        | StepState::RunningStuck
        | StepState::Compensated => false,
    }
}

fn is_compensated(definition: &StepDefinition) -> bool {
    definition.kind == StepKind::Compensable
}

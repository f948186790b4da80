//! The answers of participants, and the passing of time.
//!
//! An answer counts only if its step owes the very call that is answered; every other answer is an
//! echo (EFFECTS-REPEAT). A saga is never given up: it ends completed or compensated, or an
//! operator is alarmed and it goes on as soon as it can.

use std::sync::Arc;

use super::sagas::Sagas;
use crate::contract::{
    AlertKind, BranchId, Change, Decision, Effect, Event, EventKind, PhaseTwoOutcome, Record,
    RecordKey, Reply, SagaRecord, SagaState, SagaStatus, StatusKind, StepKind, StepRef, StepState,
    Timestamp, TurnCause, Xid, noted,
};

/// The effect of an answer on a saga.
enum Next {
    /// The step, and perhaps the saga, has something else to do.
    GoOn,
    /// The same call stays due.
    Stay,
    /// The saga turns back, and is compensated.
    TurnBack(TurnCause),
}

impl Sagas<'_> {
    pub(crate) fn finish_step(
        &mut self,
        xid: Xid,
        branch: BranchId,
        decision: Decision,
        outcome: PhaseTwoOutcome,
    ) {
        let Some(step) = StepRef::of_branch(branch) else { return };
        let owes = |saga: &SagaRecord| saga.call(step).is_some_and(|it| it.decision == decision);
        if !self.table.get(xid).is_some_and(owes) {
            return;
        }
        let told = self.on.limits.step_attempts_told;
        // Operators are alarmed when the saga begins to need one, and not at each further failure.
        let needed = self.status(xid).kind() == StatusKind::NeedsOperator;
        let next =
            self.table.change(xid, |saga| saga.take(self.on.now, step, decision, outcome, told));
        match next {
            None => {}
            Some(Next::Stay) => self.put_saga(xid),
            Some(Next::GoOn) => self.advance_saga(xid),
            Some(Next::TurnBack(cause)) => self.turn_back(xid, cause, ""),
        }
        if !needed && self.status(xid).kind() == StatusKind::NeedsOperator {
            let saga = self.table.get(xid);
            let needed = saga.map(|saga| saga.alert(AlertKind::NeedsOperator, step));
            self.on.out.effects.extend(needed.map(Effect::Alert));
        }
        self.forget_sagas_for(xid);
    }

    /// Turns back a saga if its timeout, or that of a child or step, has passed.
    pub(crate) fn expire_saga(&mut self, xid: Xid) {
        let restart = self.on.restart;
        let timeout = self.table.get(xid).and_then(|saga| saga.next_timeout(restart));
        if let Some((_, cause)) = timeout {
            self.turn_back(xid, cause, "");
            self.forget_sagas_for(xid);
        }
    }

    pub(super) fn turn_back(&mut self, xid: Xid, cause: TurnCause, reason: &str) {
        let withdrawn = self.table.change(xid, |saga| saga.turn_back(cause));
        // No compensation takes the place of these calls, so the dispatcher would repeat them for
        // ever.
        let held = withdrawn.into_iter().flatten();
        let hold = |step: StepRef| Effect::Hold { xid, branch: Some(step.branch()) };
        self.on.out.effects.extend(held.map(hold));
        let cause = self.table.get(xid).map_or(String::new(), |saga| saga.cause_text(cause));
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        self.note_saga(xid, &format!("to be compensated: {cause}{why}"));
        let given_up = self.table.get(xid).and_then(SagaRecord::given_up);
        self.on.out.effects.extend(given_up.map(Effect::Alert));
        self.advance_saga(xid);
    }

    /// Begins what is due, stores the saga, and answers the requests that wait for it.
    pub(super) fn advance_saga(&mut self, xid: Xid) {
        let begun = self.table.change(xid, |saga| saga.advance(self.on.now)).unwrap_or_default();
        let Some(saga) = self.table.get(xid) else { return };
        if !saga.paused {
            let calls = begun.into_iter().filter_map(|step| saga.call(step));
            self.on.out.effects.extend(calls.map(Effect::PhaseTwo));
        }
        // DURABLE-FIRST: the steps are stored as begun in the batch behind which their calls leave.
        self.put_saga(xid);
    }

    pub(super) fn put_saga(&mut self, xid: Xid) {
        let Some(saga) = self.table.get(xid) else { return };
        self.on.out.changes.push(Change::Put(Record::Saga(saga.clone())));
        // A saga that needs an operator is answered as well: when one comes is not known.
        let ends = !matches!(saga.status(), SagaStatus::Running | SagaStatus::Compensating);
        if ends {
            let shown = saga.clone();
            for to in self.waiting.take_ends(xid) {
                self.on.reply(Some(to), Reply::Saga(Box::new(shown.clone())));
            }
        }
    }

    /// Makes room for a saga that may have just ended (BOUNDED). Must be the last thing done with
    /// it. It is the last to be forgotten, whatever the clock said when the others ended.
    pub(super) fn forget_sagas_for(&mut self, xid: Xid) {
        while self.table.ended() > self.on.limits.history_max {
            let forgotten = self.table.first_ended_but(xid).unwrap_or(xid);
            self.forget_saga(forgotten);
        }
    }

    pub(super) fn note_saga(&mut self, xid: Xid, what: &str) {
        let at = self.on.now;
        let (what, events_max) =
            (self.on.names.text_of(what), self.on.limits.events_per_global_max);
        self.table.change(xid, |saga| {
            let event = Event { at, what, kind: EventKind::Note };
            saga.events = noted(&saga.events, event, events_max);
        });
    }

    pub(crate) fn forget_oldest_saga(&mut self) {
        if let Some((_, xid)) = self.table.first_ended() {
            self.forget_saga(xid);
        }
    }

    fn forget_saga(&mut self, xid: Xid) {
        self.table.remove(xid);
        self.on.out.changes.push(Change::Delete(RecordKey::Saga(xid)));
    }
}

impl SagaRecord {
    /// Takes the answer to a call that the step owes.
    fn take(
        &mut self,
        now: Timestamp,
        step: StepRef,
        decision: Decision,
        outcome: PhaseTwoOutcome,
        told: u32,
    ) -> Next {
        match (decision, outcome) {
            (Decision::Commit, PhaseTwoOutcome::Done) => {
                self.finish(now, step, StepState::Done);
                Next::GoOn
            }
            (Decision::Commit, PhaseTwoOutcome::Output { output }) => {
                self.steps[step.place()].output = Some(output);
                self.finish(now, step, StepState::Done);
                Next::GoOn
            }
            (Decision::RollBack, PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }) => {
                self.finish(now, step, StepState::Compensated);
                Next::GoOn
            }
            (Decision::Commit, PhaseTwoOutcome::Refused { error, .. }) => {
                self.fail(now, step, error);
                self.refuse(step)
            }
            (Decision::Commit, PhaseTwoOutcome::Retryable { error }) => {
                self.fail(now, step, error);
                self.retry_or_give_up(step, told)
            }
            (Decision::RollBack, PhaseTwoOutcome::Refused { error, .. }) => {
                self.fail(now, step, error);
                self.steps[step.place()].state = StepState::CompensatingStuck;
                Next::Stay
            }
            (Decision::RollBack, PhaseTwoOutcome::Retryable { error }) => {
                self.fail(now, step, error);
                self.tell_after(step, told)
            }
        }
    }

    pub(super) fn finish(&mut self, now: Timestamp, step: StepRef, state: StepState) {
        let record = &mut self.steps[step.place()];
        record.state = state;
        record.ended_at = Some(now);
    }

    fn fail(&mut self, now: Timestamp, step: StepRef, error: Arc<str>) {
        let record = &mut self.steps[step.place()];
        record.attempts = record.attempts.saturating_add(1);
        record.last_failure = Some((now, error));
    }

    /// Takes a refusal. After the pivot the saga cannot turn back, so an operator must make the
    /// step possible.
    fn refuse(&mut self, step: StepRef) -> Next {
        if self.definition.steps[step.place()].kind == StepKind::Retriable {
            self.steps[step.place()].state = StepState::RunningStuck;
            return Next::Stay;
        }
        self.steps[step.place()].state = StepState::Failed;
        Next::TurnBack(TurnCause::Refused(step))
    }

    fn retry_or_give_up(&mut self, step: StepRef, told: u32) -> Next {
        let definition = &self.definition.steps[step.place()];
        let attempts = self.steps[step.place()].attempts;
        if definition.retry.attempts.is_some_and(|max| attempts >= max) {
            self.steps[step.place()].state = StepState::Failed;
            return Next::TurnBack(TurnCause::Exhausted(step));
        }
        let never_given_up = matches!(definition.kind, StepKind::Pivot | StepKind::Retriable);
        if never_given_up { self.tell_after(step, told) } else { Next::Stay }
    }

    /// Keeps the call due, and marks the step for operators after `told` failed attempts.
    fn tell_after(&mut self, step: StepRef, told: u32) -> Next {
        let record = &mut self.steps[step.place()];
        record.state = match record.state {
            StepState::Running if record.attempts >= told => StepState::RunningStuck,
            StepState::Compensating if record.attempts >= told => StepState::CompensatingStuck,
            as_it_is @ (StepState::Waiting
            | StepState::Running
            | StepState::RunningStuck
            | StepState::Done
            | StepState::Failed
            | StepState::Compensating
            | StepState::CompensatingStuck
            | StepState::Compensated) => as_it_is,
        };
        Next::Stay
    }

    /// Returns whether the saga has turned back.
    pub(super) fn is_turned_back(&self) -> bool {
        matches!(self.state, SagaState::Compensating(_) | SagaState::Compensated(..))
    }
}

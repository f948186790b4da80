//! The requests of applications and operators about sagas.

use std::sync::Arc;

use super::sagas::Sagas;
use crate::contract::{
    Asker, BranchId, Correlation, DecidedBy, Effect, GlobalStatus, Labels, OperatorAction, Outcome,
    Rejection, Reply, ReplyWhen, Resolution, RollbackReason, SagaDefinition, SagaPart, SagaRecord,
    SagaState, SagaStatus, StepKind, StepRecord, StepRef, StepState, TurnCause, Xid,
};
use crate::decision_context::HandlerResult;
use crate::global::operate::RESTORE_WITHOUT_ROWS;
use crate::operator::preview::Preview;
use crate::shares::{check_limit, check_share};

impl Sagas<'_> {
    /// Starts a saga. Returns the existing one if the key is known and the definition is the same,
    /// with the labels that it was started with.
    pub(crate) fn start_saga(
        &mut self,
        application: &Arc<str>,
        key: Arc<str>,
        definition: Arc<SagaDefinition>,
        labels: Labels,
    ) -> HandlerResult {
        if let Some(known) = self.table.of_key(&key) {
            if known.definition != definition {
                return Err(Rejection::SagaMismatch { key, xid: known.xid });
            }
            return Ok(Some(Reply::Saga(Box::new(known.clone()))));
        }
        // The key was looked up first: a saga that was started before is found, whatever the limits
        // are meanwhile.
        let invalid = |fault| Rejection::SagaInvalid { name: definition.name.clone(), fault };
        definition.check(self.on.limits).map_err(invalid)?;
        let (what, max) = ("unfinished sagas", self.on.limits.sagas_max);
        check_limit(what, self.table.unfinished() + 1, max)?;
        let client = self.on.asker.client;
        let owner = Asker { client, application: self.on.names.text(application) };
        check_share(self.on.limits, &[self.table.open()], &owner, what, 1, max)?;
        let xid = self.on.ids.xid()?;
        let saga = SagaRecord {
            xid,
            address: self.on.address.clone(),
            application: owner.application,
            key,
            begun_at: self.on.now,
            deadline: definition.timeout_ms.map(|timeout_ms| self.on.now.after_ms(timeout_ms)),
            state: SagaState::Running,
            cause_error: None,
            paused: false,
            steps: vec![StepRecord::default(); definition.steps.len()],
            events: Arc::default(),
            definition,
            labels,
            trace: self.on.trace.map(|trace| Box::new(*trace)),
        };
        self.table.insert_of(saga, client);
        self.advance_saga(xid);
        Ok(self.answer_and_forget(xid))
    }

    /// Returns the saga, at once or when it has ended. `room` says whether one more request may
    /// wait.
    pub(crate) fn get_saga(
        &mut self,
        to: Option<Correlation>,
        xid: Xid,
        reply_when: ReplyWhen,
        room: Result<(), Rejection>,
    ) -> HandlerResult {
        let saga = self.table.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        let under_way = matches!(saga.status(), SagaStatus::Running | SagaStatus::Compensating);
        // Requests for named locks count towards the same limit, and this wing cannot see them.
        match (to, reply_when) {
            (Some(to), ReplyWhen::Finished | ReplyWhen::Effective) if under_way && room.is_ok() => {
                self.waiting.await_end(xid, to, self.on.asker);
                Ok(None)
            }
            (_, ReplyWhen::Finished | ReplyWhen::Effective | ReplyWhen::Decided) => {
                Ok(self.saga_reply(xid))
            }
        }
    }

    pub(crate) fn signal_saga(
        &mut self,
        xid: Xid,
        signal: Arc<str>,
        payload: Arc<[u8]>,
        operator: Option<&str>,
    ) -> HandlerResult {
        let saga = self.table.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        let awaited = saga.each().find(|(step, definition, _)| {
            let is_signal = definition.kind == StepKind::Signal;
            is_signal && saga.definition.path(SagaPart::Step(*step)) == signal
        });
        let state = awaited.map(|(step, _, record)| (step, record.state, record.output.clone()));
        let is_turned_back = saga.is_turned_back();
        match state {
            Some((step, StepState::Waiting | StepState::Running, _)) if !is_turned_back => {
                self.table.change(xid, |saga| {
                    saga.steps[step.place()].output = Some(payload);
                    saga.finish(self.on.now, step, StepState::Done);
                });
                let by = operator.map_or_else(String::new, |operator| format!(" by {operator}"));
                self.note_saga(xid, &format!("signal {signal}{by}"));
                self.advance_saga(xid);
            }
            // Sent again it is answered as the first time.
            Some((_, StepState::Done, Some(known))) if known == payload => {}
            Some(_) | None => return Err(Rejection::UnknownSignal { xid, signal }),
        }
        Ok(self.answer_and_forget(xid))
    }

    pub(crate) fn cancel_saga(&mut self, xid: Xid, by: DecidedBy, reason: &str) -> HandlerResult {
        let saga = self.table.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        if saga.can_turn_back() {
            let cause = match by {
                DecidedBy::Client => TurnCause::Cancelled,
                DecidedBy::Operator => TurnCause::Operator,
            };
            self.turn_back(xid, cause, reason);
        } else if !saga.is_turned_back() {
            return Err(Rejection::PastPivot { xid, status: saga.status() });
        }
        Ok(self.answer_and_forget(xid))
    }

    pub(crate) fn operate_saga(
        &mut self,
        xid: Xid,
        action: OperatorAction,
        operator: &str,
    ) -> HandlerResult {
        let saga = self.table.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        match (saga.check_action(action)?, action) {
            (_, OperatorAction::Resolve { branch, resolution }) => {
                return self.resolve_step(xid, branch, resolution, operator);
            }
            (Preview::Unchanged, _) => {}
            (Preview::Changes, OperatorAction::Retry) => {
                self.note_saga(xid, &format!("retry by {operator}"));
                self.call_all(xid);
            }
            (Preview::Changes, OperatorAction::Pause) => self.pause(xid, operator),
            (Preview::Changes, OperatorAction::Resume) => self.resume(xid, operator),
        }
        self.put_saga(xid);
        Ok(Some(Reply::Operated(self.status(xid))))
    }

    fn pause(&mut self, xid: Xid, operator: &str) {
        self.table.change(xid, |saga| saga.paused = true);
        self.note_saga(xid, &format!("pause by {operator}"));
        self.on.out.effects.push(Effect::Hold { xid, branch: None });
    }

    fn resume(&mut self, xid: Xid, operator: &str) {
        self.table.change(xid, |saga| saga.paused = false);
        self.note_saga(xid, &format!("resume by {operator}"));
        self.call_all(xid);
    }

    /// An operator has put right by hand what the step could not do: it counts as done, or as
    /// compensated, in the direction in which the saga goes.
    fn resolve_step(
        &mut self,
        xid: Xid,
        branch: BranchId,
        resolution: Resolution,
        operator: &str,
    ) -> HandlerResult {
        let saga = self.table.get(xid).ok_or(Rejection::UnknownXid(xid))?;
        let (step, ended) = saga.resolved_step(branch, resolution)?;
        let name = saga.definition.path(SagaPart::Step(step));
        self.table.change(xid, |saga| saga.finish(self.on.now, step, ended));
        // Without this the dispatcher goes on with a call whose answer counts no more.
        self.on.out.effects.push(Effect::Hold { xid, branch: Some(branch) });
        self.note_saga(xid, &format!("step {name}: accepted as {ended} by {operator}"));
        self.advance_saga(xid);
        // The status is read first: the saga may be forgotten at once.
        let status = self.status(xid);
        self.forget_sagas_for(xid);
        Ok(Some(Reply::Operated(status)))
    }

    fn call_all(&mut self, xid: Xid) {
        if let Some(saga) = self.table.get(xid) {
            push_calls(saga, self.on.out);
        }
    }

    /// Returns the reply with the saga, and then makes room for it if it has ended: it may be
    /// forgotten at once.
    fn answer_and_forget(&mut self, xid: Xid) -> Option<Reply> {
        let reply = self.saga_reply(xid);
        self.forget_sagas_for(xid);
        reply
    }

    fn saga_reply(&self, xid: Xid) -> Option<Reply> {
        self.table.get(xid).map(|saga| Reply::Saga(Box::new(saga.clone())))
    }
}

impl SagaRecord {
    /// Returns what an operator's action would do, or why it is refused.
    pub(crate) fn check_action(&self, action: OperatorAction) -> Result<Preview, Rejection> {
        match action {
            _ if self.ended_at().is_some() => {
                Err(self.not_applicable("an operator's action on a saga that has ended"))
            }
            OperatorAction::Retry if self.paused => {
                Err(self.not_applicable("retry of a paused saga"))
            }
            OperatorAction::Retry => Ok(Preview::Changes),
            OperatorAction::Pause => Ok(Preview::of_change(!self.paused)),
            OperatorAction::Resume => Ok(Preview::of_change(self.paused)),
            OperatorAction::Resolve { branch, resolution } => {
                self.resolved_step(branch, resolution).map(|_| Preview::Changes)
            }
        }
    }

    /// Returns the step of a branch, and the state in which an operator's resolution ends it.
    fn resolved_step(
        &self,
        branch: BranchId,
        resolution: Resolution,
    ) -> Result<(StepRef, StepState), Rejection> {
        let place = StepRef::of_branch(branch);
        let record = place.and_then(|step| Some((step, self.steps.get(step.place())?.state)));
        let unknown = Rejection::UnknownBranch { xid: self.xid, branch };
        let (step, state) = record.ok_or(unknown)?;
        if resolution == Resolution::RestoreClean {
            return Err(self.not_applicable(RESTORE_WITHOUT_ROWS));
        }
        match (state, resolution) {
            (StepState::RunningStuck, Resolution::AcceptCurrent) => Ok((step, StepState::Done)),
            (StepState::CompensatingStuck, Resolution::AcceptCurrent) => {
                Ok((step, StepState::Compensated))
            }
            (
                StepState::Waiting
                | StepState::Running
                | StepState::RunningStuck
                | StepState::Done
                | StepState::Failed
                | StepState::Compensating
                | StepState::CompensatingStuck
                | StepState::Compensated,
                Resolution::RestoreClean | Resolution::AcceptCurrent | Resolution::ForceBefore,
            ) => Err(self
                .not_applicable("resolve of a step that is not stuck, or other than by accepting")),
        }
    }

    fn not_applicable(&self, action: &'static str) -> Rejection {
        Rejection::NotApplicable { xid: self.xid, action, status: self.global_status() }
    }

    /// Returns the corresponding status of a global. A saga can need an operator in both
    /// directions, a global only on its way back.
    pub(crate) fn global_status(&self) -> GlobalStatus {
        let reason = match self.state {
            SagaState::Running | SagaState::Completed(_) => RollbackReason::Requested,
            SagaState::Compensating(cause) | SagaState::Compensated(cause, _) => reason_of(cause),
        };
        match self.status() {
            SagaStatus::Running if self.can_turn_back() => GlobalStatus::Active,
            SagaStatus::Running => GlobalStatus::Committing,
            SagaStatus::Completed => GlobalStatus::Committed,
            SagaStatus::Compensating => GlobalStatus::RollingBack(reason),
            SagaStatus::Compensated => GlobalStatus::RolledBack(reason),
            SagaStatus::NeedsOperator => GlobalStatus::NeedsOperator(reason),
        }
    }
}

pub(super) fn reason_of(cause: TurnCause) -> RollbackReason {
    match cause {
        TurnCause::Refused(_) | TurnCause::Exhausted(_) | TurnCause::Cancelled => {
            RollbackReason::Requested
        }
        TurnCause::StepTimeout(_) | TurnCause::ChildTimeout(_) | TurnCause::Timeout => {
            RollbackReason::Timeout
        }
        TurnCause::Operator => RollbackReason::Operator,
    }
}

pub(crate) fn push_calls(saga: &SagaRecord, out: &mut Outcome) {
    if !saga.paused {
        let calls = saga.owing().filter_map(|step| saga.call(step));
        out.effects.extend(calls.map(Effect::PhaseTwo));
    }
}

//! Carries an action out on targets that a dry run has named.

use std::collections::BTreeMap;

use futures::future::join_all;
use handfast_core::{Command, Coordinator, DecidedBy, Decision, ReplyWhen, VotingRounds, XidText};

use super::{Act, Target};
use crate::admin::model::{BulkAction, BulkItem, BulkOutcome, BulkReply, Status};
use crate::admin::{AdminState, ApiError, actions, view};
use crate::audit::{Action, ActionStage};

/// The targets that are asked for at a time (BOUNDED). Fewer: more syncs of the audit log. More:
/// clients' requests wait behind more of them.
const AT_A_TIME: usize = 32;

/// An action on targets.
pub(super) struct Bulk {
    pub(super) act: Act,
    pub(super) targets: Vec<Target>,
    pub(super) operator: String,
    pub(super) reason: String,
}

impl Bulk {
    /// Carries it out, target by target. It is recorded as a whole and of each target, first as
    /// asked and then with its outcome.
    pub(super) async fn carry_out(self, state: &AdminState) -> Result<BulkReply, ApiError> {
        let whole = Action::new(&self.operator, "bulk");
        let described = |results: &str| Action {
            detail: actions::detail_of(&self.detail(results)),
            ..whole.clone()
        };
        actions::record_asked(state, &described("")).await?;
        let mut items = Vec::new();
        let mut failed = None;
        for targets in self.targets.chunks(AT_A_TIME) {
            match self.carry_out_part(state, targets, &whole.id).await {
                Ok(more) => items.extend(more),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let refusals = items.iter().filter(|it| it.outcome == BulkOutcome::Refused).count();
        let changes = items.len() - refusals;
        let results = format!(", {changes} done, {refusals} refused");
        let done = failed.map_or(Ok(()), Err);
        actions::record_answered(state, &described(&results), &done).await?;
        done.map(|()| BulkReply {
            action: self.act.action,
            dry_run: false,
            items,
            changes,
            refusals,
            confirmation: None,
            next: None,
        })
    }

    fn detail(&self, results: &str) -> String {
        let reason = if self.reason.is_empty() { "" } else { ": " };
        let (name, count) = (self.act.name(), self.targets.len());
        format!("{name}, {count} targets{results}{reason}{}", self.reason)
    }

    /// Carries out a part. If it cannot be recorded, none of it is carried out.
    async fn carry_out_part(
        &self,
        state: &AdminState,
        targets: &[Target],
        whole: &str,
    ) -> Result<Vec<BulkItem>, ApiError> {
        // Before anything is done: what is done must not be answered by the failure of a view.
        let names = names(state, targets).await?;
        let recorded: Vec<Action> =
            targets.iter().map(|target| self.recorded(state, *target, whole)).collect();
        let asked: Vec<_> = recorded.iter().map(|action| (action, ActionStage::Asked)).collect();
        let asked = state.audit().record_all(&asked).await;
        asked.map_err(|error| ApiError::NotRecorded(error.to_string()))?;
        let outcomes = join_all(targets.iter().map(|target| self.ask(state, *target))).await;
        let stage = |outcome: &Result<Status, ApiError>| {
            ActionStage::Answered(outcome.as_ref().map_or_else(ApiError::code, |_| "done"))
        };
        let stages = outcomes.iter().map(stage);
        let answered: Vec<_> = recorded.iter().zip(stages).collect();
        let answered = state.audit().record_all(&answered).await;
        answered.map_err(|error| ApiError::OutcomeNotRecorded {
            outcome: format!("{} of {} targets", self.act.name(), targets.len()),
            error: error.to_string(),
        })?;
        let items = names.iter().zip(outcomes);
        Ok(items.map(|(target, outcome)| item(target, outcome)).collect())
    }

    /// Returns the lines of one target, which look like those of a single action.
    fn recorded(&self, state: &AdminState, target: Target, whole: &str) -> Action {
        let mut action = actions::action(&self.operator, self.act.name(), target.xid, &self.reason);
        if self.act.action == BulkAction::Resolve {
            let word = view::word(view::resolution(self.act.resolution));
            action.detail = Some(actions::resolution_detail(word, &self.reason));
        }
        action.branch = target.branch.map(|branch| branch.to_string());
        action.bulk = Some(whole.to_owned());
        actions::located(state, &action)
    }

    async fn ask(&self, state: &AdminState, target: Target) -> Result<Status, ApiError> {
        let command = self.command(target).ok_or(ApiError::NotConfirmed)?;
        actions::status(state.engine().call(command).await?)
    }

    fn command(&self, target: Target) -> Option<Command> {
        let xid = target.xid;
        if self.act.action == BulkAction::Rollback {
            return Some(Command::End {
                xid,
                decision: Decision::RollBack,
                rounds: VotingRounds::PrepareOnly,
                by: DecidedBy::Operator,
                reason: actions::reason(&self.operator, &self.reason).into(),
                reply_when: ReplyWhen::Decided,
            });
        }
        let action = self.act.operation(target)?;
        Some(Command::Operate { xid, action, operator: self.operator.as_str().into() })
    }
}

/// Returns the targets as text, with the addresses under which they were begun.
async fn names(state: &AdminState, targets: &[Target]) -> Result<Vec<String>, ApiError> {
    let xids: Vec<_> = targets.iter().map(|target| target.xid).collect();
    let look = move |coordinator: &Coordinator| {
        xids.iter().map(|xid| coordinator.address(*xid)).collect::<Vec<_>>()
    };
    let addresses = state.engine().view(look).await?;
    let own = &state.about().advertised_address;
    let named = targets.iter().zip(addresses).map(|(target, address)| {
        let address = address.as_deref().unwrap_or(own);
        target.text(&XidText { address, xid: target.xid }.to_string())
    });
    Ok(named.collect())
}

fn item(target: &str, outcome: Result<Status, ApiError>) -> BulkItem {
    let (status, refusal) = match outcome {
        Ok(status) => (Some(status), None),
        Err(error) => (None, Some(error)),
    };
    BulkItem {
        target: target.to_owned(),
        outcome: if refusal.is_some() { BulkOutcome::Refused } else { BulkOutcome::Done },
        application: None,
        name: None,
        labels: BTreeMap::new(),
        status,
        effect: None,
        code: refusal.as_ref().map(|error| error.code().to_owned()),
        message: refusal.map(|error| error.to_string()),
    }
}

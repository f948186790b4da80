//! Branches that the database prepares: the steps of `twophase/phase_one.rs` and
//! `twophase/finish.rs`, with the product's names, notes and verdicts.
//!
//! ```text
//! statements … ── RegisterBranch ── PREPARE ─┬─ its session is free, or held for a while
//!                                            └─ no answer: report Unknown
//! ```
//!
//! Left out: branches that have only read, what a database refuses, and futures that are dropped.

use std::sync::Arc;

use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    self, BranchOutcome, Decision, PhaseOneOutcome, PhaseTwoBranch, PhaseTwoCall, Retryable,
};
use handfast_rm_core::XidText;
use handfast_rm_core::two_phase::{
    Answer, BranchContext, BranchName, Finished, PrepareOutcome, of_phase_two, of_prepare,
    outcome as told, read,
};

use super::at::{number_of, unanswered};
use super::phase_two::outcome;
use super::{BranchError, ClientProcess, Tell};
use crate::Mode;
use crate::database::{Cell, Database, DatabaseError, EventStatus, Held, UndoKey};
use crate::effect::key_of_purse;
use crate::local::Local;
use crate::purse::{self, Transfer, node_of};
use crate::world::SECOND;

/// How long a session stays with its branch.
const HOLD_LIMIT: u64 = 3 * SECOND;

/// The name of a database's purses, as the coordinator knows it.
pub(super) fn xa_resource_of(database: &Database) -> String {
    format!("purses-{}", database.index)
}

impl ClientProcess {
    /// Moves money as a branch that is prepared.
    ///
    /// # Errors
    /// After an error nothing stays, unless it is [`BranchError::CommitUnknown`].
    pub(crate) async fn run_prepared(
        self: &Arc<Self>,
        xid: &str,
        transfer: &Transfer,
    ) -> Result<(), BranchError> {
        let database = Arc::clone(&self.cluster.databases[transfer.database]);
        let branch = self.world.between(1, i64::MAX.unsigned_abs());
        let global = XidText::new(xid).expect("a coordinator's XID has its text form");
        let name = BranchName { node: node_of(self.index), branch, xid: global };
        let key = (number_of(xid), BranchId(branch));
        let (local, number) = database.begin_branch(key, name.to_string()).await?;
        if let Err(error) = self.write_transfer(&local, key, transfer).await {
            local.roll_back().await?;
            return Err(error.into());
        }
        self.crash_point("xa-before-register").await;
        let request = registration(&database, &name, number);
        if let Err(error) = self.register(request).await {
            // An unanswered registration may have arrived. Not prepared, the branch is rolled back
            // in any case: with its session, if it cannot be asked to.
            let rolled_back = local.roll_back().await;
            self.world.log(self.owner(), || format!("branch {name} given up: {rolled_back:?}"));
            if unanswered(&error) {
                self.report_branch(xid, key.1, PhaseOneOutcome::Failed).await;
            }
            return Err(BranchError::Coordinator(error));
        }
        self.crash_point("xa-after-register").await;
        let prepared = local.prepare().await;
        self.crash_point("xa-after-prepare").await;
        self.settle_prepare(name, prepared).await
    }

    async fn write_transfer(
        &self,
        local: &Local,
        branch: UndoKey,
        transfer: &Transfer,
    ) -> Result<(), DatabaseError> {
        let tells = self.world.plan.modes.contains(&Mode::Outbox);
        for edit in &transfer.edits {
            let before = local.lock_row(edit.row).await?;
            let after = Cell { value: before.value + edit.delta, writer: Some(branch) };
            local.update(edit.row, after).await?;
            if tells && edit.delta < 0 {
                let key = key_of_purse(purse::number_of(edit.row));
                let event = self.event_of(Tell { key, units: -edit.delta });
                local.emit(event, branch, EventStatus::New).await?;
            }
        }
        Ok(())
    }

    /// What PREPARE came to, and what the coordinator is told.
    async fn settle_prepare(
        self: &Arc<Self>,
        name: BranchName,
        prepared: Result<Option<Held>, DatabaseError>,
    ) -> Result<(), BranchError> {
        let answer = if prepared.is_ok() { Answer::Done } else { Answer::Lost };
        let report = match of_prepare(answer, None) {
            PrepareOutcome::Prepared => None,
            PrepareOutcome::RolledBack => Some(PhaseOneOutcome::Failed),
            PrepareOutcome::Unknown => Some(PhaseOneOutcome::Unknown),
        };
        self.world.log(self.owner(), || format!("branch {name}: PREPARE {answer:?}"));
        if let Some(report) = report {
            self.report_branch(name.xid.as_str(), BranchId(name.branch), report).await;
            return Err(BranchError::CommitUnknown);
        }
        if let Ok(Some(held)) = prepared {
            self.hold(name.to_string(), held);
        }
        Ok(())
    }

    /// Keeps a session with its branch for a while.
    fn hold(self: &Arc<Self>, name: String, held: Held) {
        self.sessions().insert(name.clone(), held);
        let (process, limit) = (Arc::clone(self), self.world.sleep(HOLD_LIMIT));
        self.world.spawn(self.owner(), async move {
            limit.await;
            let overdue = process.sessions().remove(&name);
            drop(overdue);
        });
    }

    /// Commits or rolls back prepared branches, one after the other.
    pub(super) async fn finish_prepared(
        self: &Arc<Self>,
        database: &Arc<Database>,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = self.finish_called(database, decision, branch).await;
            outcomes.push(outcome(branch, decision, result));
        }
        outcomes
    }

    async fn finish_called(
        self: &Arc<Self>,
        database: &Arc<Database>,
        decision: Decision,
        branch: &PhaseTwoBranch,
    ) -> Outcome {
        let (name, number) = match read(branch) {
            Ok(read) => read,
            Err(error) => {
                self.world.violate("total", format!("no note of a branch: {error}"));
                return Outcome::Retryable(Retryable { error });
            }
        };
        self.crash_point("xa-before-phase-two").await;
        let finished = self.finish_branch(database, decision, &name, number.as_deref()).await;
        self.crash_point("xa-after-phase-two").await;
        self.world.log(self.owner(), || format!("branch {name}: {decision:?} {finished:?}"));
        told(decision, branch.resolution(), &name, finished)
    }

    /// Commits or rolls back a branch. Idempotent.
    pub(super) async fn finish_branch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        decision: Decision,
        name: &BranchName,
        number: Option<&str>,
    ) -> Finished {
        let text = name.to_string();
        let held = self.sessions().remove(&text);
        let end = match decision {
            Decision::Commit => handfast_core::Decision::Commit,
            Decision::RollBack | Decision::Unspecified => handfast_core::Decision::RollBack,
        };
        let ended = database.end_prepared(text.clone(), end, held).await;
        let answer = ended.unwrap_or(Answer::Lost);
        let trace = match answer {
            Answer::Missing => database.trace(&text, number).await.ok(),
            Answer::Done
            | Answer::RolledBack
            | Answer::Nothing
            | Answer::Busy
            | Answer::Refused
            | Answer::Lost => None,
        };
        let message = Some(format!("{answer:?} {trace:?}"));
        Finished { verdict: of_phase_two(decision, answer, trace), message }
    }
}

fn registration(
    database: &Database,
    name: &BranchName,
    number: Option<String>,
) -> v1::RegisterBranchRequest {
    v1::RegisterBranchRequest {
        xid: name.xid.to_string(),
        branch_id: name.branch,
        resource_id: xa_resource_of(database),
        mode: v1::Mode::Xa.into(),
        application_data: BranchContext::of(name, number).to_bytes(),
        ..v1::RegisterBranchRequest::default()
    }
}

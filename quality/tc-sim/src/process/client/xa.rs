//! Branches that the database prepares: the steps of `twophase/phase_one.rs` and
//! `twophase/finish.rs`, with the product's names, notes and verdicts.
//!
//! ```text
//! statements … ── RegisterBranch ── PREPARE ─┬─ the session is free, or held for a while
//!                                            └─ no answer: report Unknown
//! ```
//!
//! Not modelled: branches that have only read, refusals of a database, and futures that are
//! dropped.

use std::sync::Arc;

use handfast_core::BranchId;
use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::{
    self, BranchOutcome, Decision, PhaseOneOutcome, PhaseTwoBranch, PhaseTwoCall, Retryable,
};
use handfast_rm_core::XidText;
use handfast_rm_core::two_phase::{
    BranchContext, BranchName, DatabaseReply, Finished, PrepareOutcome, of_phase_two, of_prepare,
    outcome as outcome_of, read,
};

use super::ClientProcess;
use super::at::{BranchError, is_unanswered, parse_xid};
use super::phase_two::branch_outcome;
use crate::model::database::{Database, DatabaseError, HeldConnection, LocalTransaction};
use crate::model::values::{EventStatus, RowVersion, UndoKey};
use crate::plan::Mode;
use crate::workload::edit::EventDraft;
use crate::workload::events::purse_key;
use crate::workload::transfers::{Transfer, node_of, purse_of, xa_resource_id};
use crate::world::SECOND;

/// How long a session stays with its prepared branch.
const HOLD_LIMIT: u64 = 3 * SECOND;

impl ClientProcess {
    /// Moves money in a branch that the database prepares.
    ///
    /// # Errors
    /// After an error no change is left, except possibly after [`BranchError::CommitUnknown`].
    pub(super) async fn run_transfer(
        self: &Arc<Self>,
        xid: &str,
        transfer: &Transfer,
    ) -> Result<(), BranchError> {
        let database = Arc::clone(&self.installation.databases[transfer.database]);
        let branch = self.world.between(1, i64::MAX.unsigned_abs());
        let global = XidText::new(xid).expect("a coordinator's XID has its text form");
        let name = BranchName { node: node_of(self.index), branch, xid: global };
        let key = (parse_xid(xid), BranchId(branch));
        let (local, number) = database.begin_branch(key, name.to_string()).await?;
        if let Err(error) = self.write_transfer(&local, key, transfer).await {
            local.roll_back().await?;
            return Err(error.into());
        }
        self.crash_point("xa-before-register").await;
        let request = registration(&database, &name, number);
        if let Err(error) = self.register(request).await {
            // A registration without a reply may have arrived. A branch that is not prepared is
            // rolled back in any case: at the latest when its session ends.
            let rolled_back = local.roll_back().await;
            self.world.log(self.owner(), || format!("branch {name} given up: {rolled_back:?}"));
            if is_unanswered(&error) {
                drop(self.report_branch(xid, key.1, PhaseOneOutcome::Failed).await);
            }
            return Err(BranchError::Coordinator(error));
        }
        self.crash_point("xa-after-register").await;
        let prepared = local.prepare().await;
        self.crash_point("xa-after-prepare").await;
        self.handle_prepared(name, prepared).await
    }

    async fn write_transfer(
        &self,
        local: &LocalTransaction,
        branch: UndoKey,
        transfer: &Transfer,
    ) -> Result<(), DatabaseError> {
        let emits_events = self.world.plan.modes.contains(&Mode::Outbox);
        for edit in &transfer.edits {
            let before = local.lock_row(edit.row).await?;
            let after = RowVersion { value: before.value + edit.delta, writer: Some(branch) };
            local.update(edit.row, after).await?;
            if emits_events && edit.delta < 0 {
                let key = purse_key(purse_of(edit.row));
                let event = self.event(EventDraft { key, units: -edit.delta });
                local.emit(event, branch, EventStatus::New).await?;
            }
        }
        Ok(())
    }

    /// Reports a PREPARE that failed, and holds the session of one that succeeded.
    async fn handle_prepared(
        self: &Arc<Self>,
        name: BranchName,
        prepared: Result<Option<HeldConnection>, DatabaseError>,
    ) -> Result<(), BranchError> {
        let answer = if prepared.is_ok() { DatabaseReply::Done } else { DatabaseReply::Lost };
        let report = match of_prepare(answer, None) {
            PrepareOutcome::Prepared => None,
            PrepareOutcome::RolledBack => Some(PhaseOneOutcome::Failed),
            PrepareOutcome::Unknown => Some(PhaseOneOutcome::Unknown),
        };
        self.world.log(self.owner(), || format!("branch {name}: PREPARE {answer:?}"));
        if let Some(report) = report {
            drop(self.report_branch(name.xid.as_str(), BranchId(name.branch), report).await);
            return Err(BranchError::CommitUnknown);
        }
        if let Ok(Some(held)) = prepared {
            self.hold(name.to_string(), held);
        }
        Ok(())
    }

    /// Keeps a session with its prepared branch until its phase two, or until the limit.
    fn hold(self: &Arc<Self>, name: String, held: HeldConnection) {
        self.sessions().insert(name.clone(), held);
        let (process, limit) = (Arc::clone(self), self.world.sleep(HOLD_LIMIT));
        self.world.spawn(self.owner(), async move {
            limit.await;
            let overdue = process.sessions().remove(&name);
            drop(overdue);
        });
    }

    /// Commits or rolls back prepared branches, one after the other.
    pub(super) async fn finish_xa_branches(
        self: &Arc<Self>,
        database: &Arc<Database>,
        call: &PhaseTwoCall,
    ) -> Vec<BranchOutcome> {
        let decision = call.decision();
        let mut outcomes = Vec::with_capacity(call.branches.len());
        for branch in &call.branches {
            let result = self.finish_xa_branch(database, decision, branch).await;
            outcomes.push(branch_outcome(branch, decision, result));
        }
        outcomes
    }

    async fn finish_xa_branch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        decision: Decision,
        branch: &PhaseTwoBranch,
    ) -> Outcome {
        let (name, number) = match read(branch) {
            Ok(read) => read,
            Err(error) => {
                self.judge.report("total", format!("no note of a branch: {error}"));
                return Outcome::Retryable(Retryable { error });
            }
        };
        self.crash_point("xa-before-phase-two").await;
        let finished = self.finish_branch(database, decision, &name, number.as_deref()).await;
        self.crash_point("xa-after-phase-two").await;
        self.world.log(self.owner(), || format!("branch {name}: {decision:?} {finished:?}"));
        outcome_of(decision, branch.resolution(), &name, finished)
    }

    /// Commits or rolls back a prepared branch. Idempotent.
    pub(super) async fn finish_branch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        decision: Decision,
        name: &BranchName,
        number: Option<&str>,
    ) -> Finished {
        let text = name.to_string();
        // On MariaDB only the session that is held can end the branch. It ends with this attempt.
        let held = self.sessions().remove(&text);
        let end = match decision {
            Decision::Commit => handfast_core::Decision::Commit,
            Decision::RollBack | Decision::Unspecified => handfast_core::Decision::RollBack,
        };
        let ended = database.end_prepared(text.clone(), end, held).await;
        let answer = ended.unwrap_or(DatabaseReply::Lost);
        let trace = match answer {
            DatabaseReply::Missing => database.trace(&text, number).await.ok(),
            DatabaseReply::Done
            | DatabaseReply::RolledBack
            | DatabaseReply::Nothing
            | DatabaseReply::Busy
            | DatabaseReply::Refused
            | DatabaseReply::Lost => None,
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
        resource_id: xa_resource_id(database.index),
        mode: v1::Mode::Xa.into(),
        application_data: BranchContext::of(name, number).to_bytes(),
        ..v1::RegisterBranchRequest::default()
    }
}

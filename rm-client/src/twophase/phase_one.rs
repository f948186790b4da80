//! Phase one ends: registration, then PREPARE, in this order.
//!
//! ```text
//! statements … ── what has it done? ── RegisterBranch ── PREPARE
//!                       │                   │               └─ no answer: report Unknown
//!                       │                   └─ refused: local rollback, nothing stays
//!                       └─ nothing: COMMIT, and the coordinator never hears of it
//! ```
//!
//! A branch is known to the coordinator, durably, before it is prepared. So a prepared branch that
//! the coordinator does not know is one that it has finished and forgotten.

use handfast_proto::v1;
use handfast_rm_core::two_phase::{BranchContext, BranchName, PrepareOutcome, of_prepare};

use super::database::{BranchWork, Sessions, XaDatabase, answer_of, send};
use super::error::XaError;
use super::transaction::{Branch, XaTransaction};
use crate::at::crash_point;
use crate::at::database::Steps;
use crate::error::Error;
use crate::unknown_outcome::UnknownOutcomeGuard;
use crate::xid::Xid;

impl<DB: XaDatabase> XaTransaction<'_, DB> {
    /// Ends phase one of a branch.
    pub(super) async fn prepare(mut self, branch: Branch) -> Result<(), sqlx::Error> {
        let work = DB::branch_work(&mut self.session, branch.begun, branch.only_reads).await;
        let Branch { name, xid, .. } = branch;
        let number = match work {
            Ok(BranchWork::Wrote(number)) => number,
            Ok(BranchWork::ReadOnly) => return self.end(DB::end_reading(&name)).await,
            Err(error) => {
                // Rolled back in any case: with its session, if it cannot be asked to.
                let _ = self.abandon(&name).await;
                return Err(error);
            }
        };
        crash_point("xa-before-register");
        // If the future is dropped from here on, the branch is rolled back with its session, but an
        // unanswered registration may have arrived.
        let (coordinator, failed) = (&self.shared.coordinator, v1::PhaseOneOutcome::Failed);
        let mut in_doubt = UnknownOutcomeGuard::new(coordinator, &xid, name.branch, failed);
        if let Err(error) = self.register(&name, number).await {
            // The registration has reported what it may have left.
            in_doubt.disarm();
            return Err(error);
        }
        crash_point("xa-after-register");
        // If the future is dropped from here on, the database may or may not get PREPARE, so the
        // global must not commit.
        in_doubt.set_outcome(v1::PhaseOneOutcome::Unknown);
        let prepared = send::<DB>(&mut self.session, DB::prepare(&name)).await;
        crash_point("xa-after-prepare");
        let ended = self.settle(name, prepared).await;
        // Only after a report, if one was due: if this is dropped before that, the guard reports.
        in_doubt.disarm();
        ended
    }

    async fn register(
        &mut self,
        name: &BranchName,
        number: Option<String>,
    ) -> Result<(), sqlx::Error> {
        let request = v1::RegisterBranchRequest {
            xid: name.xid.to_string(),
            branch_id: name.branch,
            resource_id: self.shared.identity.resource_id.clone(),
            mode: v1::Mode::Xa.into(),
            rows: Vec::new(),
            wait: None,
            application_data: BranchContext::of(name, number).to_bytes(),
            client_id: String::new(),
            traceparent: String::new(),
            is_last: false,
            may_be_lost: false,
        };
        let Err(error) = self.shared.coordinator.register_branch(request).await else {
            return Ok(());
        };
        // Rolled back in any case: with its session, if it cannot be asked to.
        let _ = self.abandon(name).await;
        // An unanswered registration may have arrived.
        if matches!(error, Error::Unanswered { .. }) {
            self.report(name, v1::PhaseOneOutcome::Failed).await;
        }
        Err(XaError::from(error).into())
    }

    /// Judges the answer to PREPARE, and reports to the coordinator where it has to know.
    async fn settle(
        mut self,
        name: BranchName,
        prepared: Result<Steps<DB>, sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let error = match prepared {
            Ok(_) => {
                self.release(name);
                return Ok(());
            }
            Err(error) => error,
        };
        let lost = error.as_database_error().is_none();
        // On a lost connection nothing can be asked, and the server may have prepared the branch.
        let abandoned = if lost { None } else { Some(self.abandon(&name).await) };
        let rollback = abandoned.as_ref().map(answer_of::<DB, ()>);
        match of_prepare(DB::answer(&error), rollback) {
            PrepareOutcome::Prepared => unreachable!("an error is no success"),
            PrepareOutcome::RolledBack => {
                self.report(&name, v1::PhaseOneOutcome::Failed).await;
                Err(error)
            }
            PrepareOutcome::Unknown => {
                self.report(&name, v1::PhaseOneOutcome::Unknown).await;
                Err(XaError::PrepareUnknown { reason: error.to_string() }.into())
            }
        }
    }

    async fn report(&self, name: &BranchName, outcome: v1::PhaseOneOutcome) {
        let xid = Xid::from(name.xid.clone());
        self.shared.coordinator.report_outcome(&xid, name.branch, outcome).await;
    }

    /// The branch is prepared: its session is free, or stays with it.
    fn release(mut self, name: BranchName) {
        match self.shared.sessions {
            Sessions::Free => self.session.mark_clean(),
            Sessions::Stay => self.shared.held.hold(name, self.session),
        }
    }
}

//! Reports a branch whose phase one is cut off by a dropped future.

use handfast_proto::v1::PhaseOneOutcome;

use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// Reports the outcome of a branch when it is dropped, unless it was disarmed before. The report is
/// queued before any later request of the caller, such as the end of the global.
#[derive(Debug)]
pub(crate) struct UnknownOutcomeGuard {
    pending: Option<(Coordinator, Xid, u64)>,
    outcome: PhaseOneOutcome,
}

impl UnknownOutcomeGuard {
    /// Arms the guard with the outcome to report if phase one is cut off from here on.
    pub(crate) fn new(
        coordinator: &Coordinator,
        xid: &Xid,
        branch: u64,
        outcome: PhaseOneOutcome,
    ) -> Self {
        Self { pending: Some((coordinator.clone(), xid.clone(), branch)), outcome }
    }

    /// Changes the outcome to report.
    pub(crate) fn set_outcome(&mut self, outcome: PhaseOneOutcome) {
        self.outcome = outcome;
    }

    /// Disarms the guard: phase one has ended, and there is nothing to report.
    pub(crate) fn disarm(&mut self) {
        self.pending = None;
    }
}

impl Drop for UnknownOutcomeGuard {
    fn drop(&mut self) {
        if let Some((coordinator, xid, branch)) = self.pending.take() {
            report_unawaited(&coordinator, &xid, branch, self.outcome);
        }
    }
}

/// Queues the report of how phase one of a branch ended, before any later request of the caller.
pub(crate) fn report_unawaited(
    coordinator: &Coordinator,
    xid: &Xid,
    branch: u64,
    outcome: PhaseOneOutcome,
) {
    if let Err(error) = coordinator.notify_outcome(xid, branch, outcome) {
        tracing::warn!(%xid, branch, %error, "branch outcome not reported");
    }
}

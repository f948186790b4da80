//! A branch whose phase one may be cut off by a dropped future.

use handfast_proto::v1::PhaseOneOutcome;

use crate::coordinator::Coordinator;
use crate::xid::Xid;

/// Reports a branch unless its phase one is settled before this is dropped. The report is under way
/// before anything that the caller asks for afterwards, such as the end of the global.
#[derive(Debug)]
pub(crate) struct InDoubt {
    pending: Option<(Coordinator, Xid, u64)>,
    outcome: PhaseOneOutcome,
}

impl InDoubt {
    /// What phase one has come to if it is cut off from here on.
    pub(crate) fn new(
        coordinator: &Coordinator,
        xid: &Xid,
        branch: u64,
        outcome: PhaseOneOutcome,
    ) -> Self {
        Self { pending: Some((coordinator.clone(), xid.clone(), branch)), outcome }
    }

    /// From here on it comes to something else.
    pub(crate) fn becomes(&mut self, outcome: PhaseOneOutcome) {
        self.outcome = outcome;
    }

    /// There is nothing to report any more.
    pub(crate) fn settled(&mut self) {
        self.pending = None;
    }
}

impl Drop for InDoubt {
    fn drop(&mut self) {
        let Some((coordinator, xid, branch)) = self.pending.take() else { return };
        if let Err(error) = coordinator.notify_outcome(&xid, branch, self.outcome) {
            tracing::warn!(%xid, branch, %error, "branch outcome not reported");
        }
    }
}

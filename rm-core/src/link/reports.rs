//! What this process has reported of branches, and the decisions that must not overtake it.
//!
//! A branch whose phase one was cut off is reported, and its global can only be rolled back from
//! then on. A commit of that global that this process asks for later is not sent before the report
//! is answered: the coordinator may refuse the one for being busy and take the other, and the one
//! may run out of time while there is no connection. It ends with the report, unsent, where that is
//! never answered.

use std::collections::BTreeMap;

use handfast_proto::v1::Decision;
use handfast_proto::v1::client_message::Body as Ask;

use super::event::RequestId;

/// Reports that are not answered, and the commits behind them, with the XIDs of both.
#[derive(Debug, Default)]
pub(super) struct Reports {
    unanswered: BTreeMap<RequestId, String>,
    behind: BTreeMap<RequestId, String>,
}

impl Reports {
    /// Takes note of a request. Whether it may be sent.
    pub(super) fn admit(&mut self, id: RequestId, ask: &Ask) -> bool {
        if let Ask::ReportBranch(report) = ask {
            self.unanswered.insert(id, report.xid.clone());
        }
        let Ask::End(end) = ask else { return true };
        let is_behind = end.decision() == Decision::Commit && self.is_doubtful(&end.xid);
        if is_behind {
            self.behind.insert(id, end.xid.clone());
        }
        !is_behind
    }

    /// Whether a request may not be sent yet.
    pub(super) fn holds_back(&self, id: RequestId) -> bool {
        self.behind.contains_key(&id)
    }

    /// The commits that do not leave before this report is answered.
    pub(super) fn behind(&self, id: RequestId) -> Vec<RequestId> {
        let Some(xid) = self.unanswered.get(&id) else { return Vec::new() };
        self.behind.iter().filter(|(_, of)| *of == xid).map(|(id, _)| *id).collect()
    }

    /// A request has ended. The commits that may be sent now.
    pub(super) fn end(&mut self, id: RequestId) -> Vec<RequestId> {
        self.behind.remove(&id);
        let behind = self.behind(id);
        let Some(xid) = self.unanswered.remove(&id) else { return Vec::new() };
        if self.is_doubtful(&xid) {
            return Vec::new();
        }
        self.behind.retain(|_, of| *of != xid);
        behind
    }

    fn is_doubtful(&self, xid: &str) -> bool {
        self.unanswered.values().any(|of| of == xid)
    }
}

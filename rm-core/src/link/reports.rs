//! The reports of branches that are not answered yet, and the commits that must not overtake them.
//!
//! A branch whose phase one was cut off is reported, and its global can only be rolled back from
//! then on. A commit of that global that this process asks for later is not sent before the report
//! is answered: the coordinator may refuse the report for being busy and take the commit, and the
//! report may run out of time while there is no connection. If the report is never answered, the
//! commit ends with it, unsent.

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
    /// Takes note of a request. Returns whether it may be sent.
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

    /// Returns whether a request is a report that is owed an answer.
    pub(super) fn is_unanswered(&self, id: RequestId) -> bool {
        self.unanswered.contains_key(&id)
    }

    /// Returns whether a request may not be sent yet.
    pub(super) fn holds_back(&self, id: RequestId) -> bool {
        self.behind.contains_key(&id)
    }

    /// Returns the commits that are not sent before this report is answered.
    pub(super) fn behind(&self, id: RequestId) -> Vec<RequestId> {
        let Some(xid) = self.unanswered.get(&id) else { return Vec::new() };
        self.behind.iter().filter(|(_, of)| *of == xid).map(|(id, _)| *id).collect()
    }

    /// Takes note of a request that has ended. Returns the commits that may be sent from then on.
    pub(super) fn end(&mut self, id: RequestId) -> Vec<RequestId> {
        self.behind.remove(&id);
        let behind = self.behind(id);
        let Some(xid) = self.unanswered.remove(&id) else { return Vec::new() };
        // The commits wait for every report of their global.
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

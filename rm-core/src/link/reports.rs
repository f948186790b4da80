//! The reports of branches that are not answered yet, and the commits that must not overtake them.
//!
//! A branch whose phase one was cut off is reported, and its global can only be rolled back from
//! then on. A commit of that global that this process asks for later is not sent before the report
//! is answered: the coordinator may refuse the report for being busy and take the commit, and the
//! report may run out of time while there is no connection. If the report is never answered, the
//! commit ends with it, unsent; one that is asked for later is preceded by the report once more.
//!
//! The registration of a last branch is such a commit, since the branch may decide its global.

use std::collections::{BTreeMap, VecDeque};

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{Decision, ReportBranchRequest};

use super::event::RequestId;

/// How many reports without an answer are kept for a later commit (BOUNDED). Too few: a commit that
/// is asked for after its branch's report has run out of time is carried out as if nothing had been
/// reported. Too many: memory, once a coordinator has been away for long.
const LOST_MAX: usize = 1_024;

/// Reports that are not answered, and the commits behind them with their XIDs.
#[derive(Debug, Default)]
pub(super) struct Reports {
    unanswered: BTreeMap<RequestId, ReportBranchRequest>,
    behind: BTreeMap<RequestId, String>,
    /// Reports whose time is over, oldest first.
    lost: VecDeque<ReportBranchRequest>,
}

impl Reports {
    /// Takes note of a request. Returns whether it may be sent.
    pub(super) fn admit(&mut self, id: RequestId, ask: &Ask) -> bool {
        if let Ask::ReportBranch(report) = ask {
            self.unanswered.insert(id, report.clone());
        }
        let behind = committed_by(ask).filter(|xid| self.is_doubtful(xid));
        if let Some(xid) = behind {
            self.behind.insert(id, xid.to_owned());
        }
        behind.is_none()
    }

    /// Takes out the reports that were never answered, and that a request must not overtake.
    pub(super) fn take_lost(&mut self, ask: &Ask) -> Vec<ReportBranchRequest> {
        let is_preceded = |report: &ReportBranchRequest| committed_by(ask) == Some(&report.xid);
        if !self.lost.iter().any(is_preceded) {
            return Vec::new();
        }
        let (taken, kept) = self.lost.drain(..).partition(is_preceded);
        self.lost = kept;
        Vec::from(taken)
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
        let Some(report) = self.unanswered.get(&id) else { return Vec::new() };
        self.behind.iter().filter(|(_, of)| **of == report.xid).map(|(id, _)| *id).collect()
    }

    /// Keeps a report, if it is one, whose time is over before it was answered.
    pub(super) fn lose(&mut self, id: RequestId) {
        let Some(report) = self.unanswered.get(&id) else { return };
        if self.lost.len() == LOST_MAX {
            self.lost.pop_front();
        }
        self.lost.push_back(report.clone());
    }

    /// Takes note of a request that has ended. Returns the commits that may be sent from then on.
    pub(super) fn end(&mut self, id: RequestId) -> Vec<RequestId> {
        self.behind.remove(&id);
        let behind = self.behind(id);
        let Some(report) = self.unanswered.remove(&id) else { return Vec::new() };
        // The commits wait for every report of their global.
        if self.is_doubtful(&report.xid) {
            return Vec::new();
        }
        self.behind.retain(|_, of| *of != report.xid);
        behind
    }

    fn is_doubtful(&self, xid: &str) -> bool {
        self.unanswered.values().any(|report| report.xid == xid)
    }
}

/// Returns the XID of the global that a request may commit.
fn committed_by(ask: &Ask) -> Option<&str> {
    if let Ask::End(end) = ask {
        return (end.decision() == Decision::Commit).then_some(&end.xid);
    }
    let Ask::RegisterBranch(branch) = ask else { return None };
    branch.is_last.then_some(&branch.xid)
}

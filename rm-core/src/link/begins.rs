//! The begins that their callers do not wait for, and the requests that follow them.
//!
//! A begin and the requests about its global travel in order. A busy coordinator may refuse the
//! begin and take a request behind it, which it refuses as about an unknown XID: that request is
//! sent again behind the begin. Where the begin itself is refused, that is the answer to what
//! follows it.

use std::collections::{BTreeMap, VecDeque};

use handfast_proto::v1;
use handfast_proto::v1::client_message::Body as Ask;

use super::error::RequestError;
use super::event::RequestId;

/// The refusal of a request about a global that the coordinator does not know.
pub(super) const UNKNOWN_XID: &str = "HF-TC-UNKNOWN-XID";
/// How many begins that have failed are kept, the newest (BOUNDED): each is of interest while its
/// transaction lasts.
const FAILED_MAX: usize = 4_096;

/// The begins with a lent XID, by XID, and what has to do with them.
#[derive(Debug, Default)]
pub(super) struct Begins {
    unanswered: BTreeMap<String, RequestId>,
    xids: BTreeMap<RequestId, String>,
    /// Registrations that were made behind an unanswered begin.
    followers: BTreeMap<RequestId, RequestId>,
    /// Requests that overtook their begin, and are sent again when it is answered.
    overtook: BTreeMap<RequestId, RequestId>,
    failed: BTreeMap<String, Failure>,
    /// The keys of `failed`, oldest first.
    failed_order: VecDeque<String>,
}

#[derive(Debug)]
enum Failure {
    Refused(v1::Rejection),
    Lost(RequestError),
}

/// The fate of a request that is refused as about an unknown XID.
#[derive(Debug, PartialEq)]
pub(super) enum Unknown {
    /// It is sent again behind its begin.
    Overtook,
    /// The refusal of its begin is its answer.
    Refused(v1::Rejection),
    /// No begin of this link has to do with it: the refusal stands.
    Unrelated,
}

impl Begins {
    /// Takes note of a begin whose caller does not wait.
    pub(super) fn note(&mut self, id: RequestId, xid: &str) {
        self.unanswered.insert(xid.to_owned(), id);
        self.xids.insert(id, xid.to_owned());
    }

    /// Takes note of a registration behind a begin.
    ///
    /// # Errors
    /// The error of the begin, if that has ended without an answer: with a branch from here on the
    /// global could not be said not to have begun.
    pub(super) fn admit(&mut self, id: RequestId, ask: &Ask) -> Result<(), RequestError> {
        let (Ask::RegisterBranch(v1::RegisterBranchRequest { xid, .. })
        | Ask::TryBranch(v1::TryBranchRequest { xid, .. })) = ask
        else {
            return Ok(());
        };
        if let Some(&begin) = self.unanswered.get(xid) {
            self.followers.insert(id, begin);
        }
        match self.failed.get(xid) {
            Some(Failure::Lost(error)) => Err(error.clone()),
            Some(Failure::Refused(_)) | None => Ok(()),
        }
    }

    /// Returns the XID of a begin whose caller does not wait.
    pub(super) fn xid_of(&self, id: RequestId) -> Option<&str> {
        self.xids.get(&id).map(String::as_str)
    }

    /// Takes note that a begin, if it is one, is refused.
    pub(super) fn refuse(&mut self, id: RequestId, refusal: &v1::Rejection) {
        if let Some(xid) = self.xids.get(&id).cloned() {
            self.keep(xid, Failure::Refused(refusal.clone()));
        }
    }

    /// Takes note that a begin, if it is one, is given up without an answer. Returns the
    /// registrations that end with it.
    pub(super) fn lose(&mut self, id: RequestId, error: &RequestError) -> Vec<RequestId> {
        let Some(xid) = self.xids.get(&id).cloned() else { return Vec::new() };
        self.keep(xid, Failure::Lost(error.clone()));
        let of_it = self.followers.iter().filter(|(_, begin)| **begin == id);
        of_it.map(|(follower, _)| *follower).collect()
    }

    /// Decides what becomes of a request that is refused as about an unknown XID.
    pub(super) fn of_unknown(&mut self, id: RequestId, ask: &Ask) -> Unknown {
        let xid = xid_of(ask);
        if let Some(&begin) = self.unanswered.get(xid) {
            self.overtook.insert(id, begin);
            return Unknown::Overtook;
        }
        match self.failed.get(xid) {
            Some(Failure::Refused(refusal)) => Unknown::Refused(refusal.clone()),
            Some(Failure::Lost(_)) | None => Unknown::Unrelated,
        }
    }

    /// Returns whether a request about an unknown XID may be one of these.
    pub(super) fn concern_any(&self) -> bool {
        !self.unanswered.is_empty() || !self.failed.is_empty()
    }

    /// Takes note of a request that has ended. Returns those that are to be sent again, if it is a
    /// begin.
    pub(super) fn end(&mut self, id: RequestId) -> Vec<RequestId> {
        self.followers.remove(&id);
        self.overtook.remove(&id);
        let Some(xid) = self.xids.remove(&id) else { return Vec::new() };
        self.unanswered.remove(&xid);
        let again = self.overtook.extract_if(.., |_, begin| *begin == id);
        again.map(|(request, _)| request).collect()
    }

    /// Takes note that everything is sent again, in order.
    pub(super) fn start_over(&mut self) {
        self.overtook.clear();
    }

    fn keep(&mut self, xid: String, failure: Failure) {
        if self.failed_order.len() == FAILED_MAX
            && let Some(oldest) = self.failed_order.pop_front()
        {
            self.failed.remove(&oldest);
        }
        self.failed_order.push_back(xid.clone());
        self.failed.insert(xid, failure);
    }
}

/// Returns the XID that a request is about; empty if it is about none.
fn xid_of(ask: &Ask) -> &str {
    match ask {
        Ask::RegisterBranch(request) => &request.xid,
        Ask::TryBranch(request) => &request.xid,
        Ask::ReportBranch(request) => &request.xid,
        Ask::CheckLocks(request) => &request.xid,
        Ask::ReportDatabaseWait(request) => &request.xid,
        Ask::End(request) => &request.xid,
        Ask::AcquireLock(request) => &request.xid,
        Ask::Hello(_)
        | Ask::RegisterResources(_)
        | Ask::Begin(_)
        | Ask::GetStatus(_)
        | Ask::Finished(_)
        | Ask::StartSaga(_)
        | Ask::GetSaga(_)
        | Ask::SignalSaga(_)
        | Ask::CancelSaga(_)
        | Ask::RenewLocks(_)
        | Ask::ReleaseLock(_)
        | Ask::FindLock(_)
        | Ask::ReportOutbox(_) => "",
    }
}

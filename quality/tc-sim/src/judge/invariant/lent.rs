//! LENT: an XID is lent once, to one client, and begins one global. No other begin draws it, and
//! the leader that lent it does not refuse it as not lent.

use std::collections::{BTreeMap, BTreeSet};

use handfast_core::{Xid, XidText};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{BeginReply, XidLoan};

use super::Invariant;
use super::one_leader::lent_xid;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The code of a refusal of a begin because of its XID.
const NOT_LENT: &str = "HF-TC-XID-NOT-LENT";

/// The invariant, with every XID that was lent, and those that coordinators drew for a begin.
#[derive(Debug, Default)]
pub(super) struct Lent {
    lent: BTreeSet<Xid>,
    drawn: BTreeSet<Xid>,
    /// How often a begin with an XID arrived.
    arrived: BTreeMap<Xid, u64>,
}

impl Invariant for Lent {
    fn name(&self) -> &'static str {
        "lent"
    }

    fn observe(&mut self, _: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::RequestArrived { request } => {
                if let Some(xid) = lent_xid(request) {
                    *self.arrived.entry(xid).or_default() += 1;
                }
            }
            Observation::ReplySent {
                request: Some(asked),
                reply: ServerBody::Begin(reply),
                ..
            } => {
                self.check_begun(asked.body, reply, verdict);
                if let Some(loan) = &reply.loan {
                    self.check_loan(loan, verdict);
                }
            }
            Observation::ReplySent {
                request: Some(asked),
                reply: ServerBody::Rejected(refusal),
                ..
            } => self.check_refused(asked.body, &refusal.code, verdict),
            Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::Recorded { .. }
            | Observation::LocalCommit { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::GuardedWrite(_)
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. }
            | Observation::Ended { .. } => {}
        }
    }
}

impl Lent {
    fn check_begun(&mut self, request: &ClientBody, reply: &BeginReply, verdict: &mut Verdict) {
        let Ok(XidText { xid, .. }) = XidText::parse(&reply.xid) else { return };
        let is_lent = self.lent.contains(&xid);
        match lent_xid(request) {
            Some(lent) => {
                verdict.require(is_lent && lent == xid, || {
                    format!(
                        "{xid} is begun for a client that sent {lent}, which was lent: {is_lent}"
                    )
                });
            }
            None => {
                verdict.require(!is_lent, || format!("{xid} is drawn for a begin, and was lent"));
                self.drawn.insert(xid);
            }
        }
    }

    /// An XID that was lent may begin one global. If its begin came twice that may have ended and
    /// be forgotten.
    fn check_refused(&self, request: &ClientBody, code: &str, verdict: &mut Verdict) {
        let Some(xid) = lent_xid(request) else { return };
        let is_fresh = self.lent.contains(&xid) && self.arrived.get(&xid) == Some(&1);
        verdict.require(!is_fresh || code != NOT_LENT, || {
            format!("a begin with {xid} is refused as not lent, and it was lent")
        });
    }

    fn check_loan(&mut self, loan: &XidLoan, verdict: &mut Verdict) {
        for xid in (loan.first..loan.first + u64::from(loan.count)).map(Xid) {
            let is_fresh = !self.drawn.contains(&xid) && self.lent.insert(xid);
            verdict.require(is_fresh, || format!("{xid} is lent, and was lent or drawn before"));
        }
    }
}

//! LENT: an XID is lent once, to one client, and begins one global. No other begin draws it.

use std::collections::BTreeSet;

use handfast_core::{Xid, XidText};
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_proto::v1::{BeginReply, XidLoan};

use super::Invariant;
use super::one_leader::lent_xid;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::Observation;

/// The invariant, with every XID that was lent, and those that coordinators drew for a begin.
#[derive(Debug, Default)]
pub(super) struct Lent {
    lent: BTreeSet<Xid>,
    drawn: BTreeSet<Xid>,
}

impl Invariant for Lent {
    fn name(&self) -> &'static str {
        "lent"
    }

    fn observe(&mut self, _: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        let Observation::ReplySent {
            request: Some(asked), reply: ServerBody::Begin(reply), ..
        } = observation
        else {
            return;
        };
        self.check_begun(asked.body, reply, verdict);
        if let Some(loan) = &reply.loan {
            self.check_loan(loan, verdict);
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

    fn check_loan(&mut self, loan: &XidLoan, verdict: &mut Verdict) {
        for xid in (loan.first..loan.first + u64::from(loan.count)).map(Xid) {
            let is_fresh = !self.drawn.contains(&xid) && self.lent.insert(xid);
            verdict.require(is_fresh, || format!("{xid} is lent, and was lent or drawn before"));
        }
    }
}

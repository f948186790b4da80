//! The XIDs that the coordinator has lent to this process.
//!
//! A begin with one of them needs no answer before the requests about its global are sent. They
//! belong to one connection: a coordinator that is found later may be another one, or may have
//! taken them back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::{BeginReply, XidLoan};

use super::event::RequestId;

/// How many XIDs are asked for at a time: as many as the coordinator lends. Fewer: bursts wait for
/// answers. More: more are left unused when the process ends.
const WANTED: u32 = 64;
/// With fewer in stock, more are asked for: the rest lasts for as long as the answer takes.
const FEW: u64 = 32;

/// A lent XID that is taken for a begin, and the timeout that its global gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentXid {
    /// The XID in text.
    pub xid: String,
    /// The timeout in force.
    pub timeout: Duration,
}

/// The stock. BOUNDED: a loan is asked for only while there are few, one at a time.
#[derive(Debug, Default)]
pub(super) struct XidStock {
    loans: VecDeque<Loan>,
    left: u64,
    /// The begin with which XIDs are asked for.
    asked_by: Option<RequestId>,
}

#[derive(Debug)]
struct Loan {
    address: Arc<str>,
    next: u64,
    end: u64,
    timeout_ms_default: u64,
    timeout_ms_max: u64,
}

impl XidStock {
    /// Returns how many XIDs to ask for with the next begin.
    pub(super) fn wants(&self) -> u32 {
        if self.asked_by.is_none() && self.left < FEW { WANTED } else { 0 }
    }

    /// Takes note of the begin with which XIDs are asked for.
    pub(super) fn asked_by(&mut self, id: RequestId) {
        self.asked_by = Some(id);
    }

    /// Takes note of the end of a request, with whatever result.
    pub(super) fn end(&mut self, id: RequestId) {
        self.asked_by.take_if(|asked_by| *asked_by == id);
    }

    /// Takes the next XID, for a global with this timeout; 0 for the coordinator's default.
    pub(super) fn take(&mut self, timeout_ms: u64) -> Option<LentXid> {
        let loan = self.loans.front_mut()?;
        let xid = format!("{}:{}", loan.address, loan.next);
        let asked = if timeout_ms == 0 { loan.timeout_ms_default } else { timeout_ms };
        let timeout = Duration::from_millis(asked.min(loan.timeout_ms_max));
        loan.next += 1;
        self.left -= 1;
        if loan.next == loan.end {
            self.loans.pop_front();
        }
        Some(LentXid { xid, timeout })
    }

    /// Takes in what the coordinator lends with the answer to a begin.
    pub(super) fn receive(&mut self, id: RequestId, reply: &BeginReply) {
        if self.asked_by != Some(id) {
            return;
        }
        let (
            Some(XidLoan { first, count, timeout_ms_default, timeout_ms_max }),
            Some((address, _)),
        ) = (reply.loan, reply.xid.rsplit_once(':'))
        else {
            return;
        };
        let count = u64::from(count.min(WANTED));
        let Some(end) = first.checked_add(count).filter(|_| count > 0) else { return };
        let address = Arc::from(address);
        self.loans.push_back(Loan {
            address,
            next: first,
            end,
            timeout_ms_default,
            timeout_ms_max,
        });
        self.left += count;
    }

    /// Forgets the XIDs, as their connection has ended. One that is asked for may still come.
    pub(super) fn clear(&mut self) {
        self.loans.clear();
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(first: u64, count: u32) -> BeginReply {
        let loan = XidLoan { first, count, timeout_ms_default: 60_000, timeout_ms_max: 90_000 };
        BeginReply { xid: "tc:7091:5".to_owned(), loan: Some(loan), ..BeginReply::default() }
    }

    #[test]
    fn xids_are_taken_in_order_and_once() {
        let mut stock = XidStock::default();
        assert_eq!((stock.take(0), stock.wants()), (None, 64));
        stock.asked_by(RequestId(1));
        assert_eq!(stock.wants(), 0, "one request at a time");
        stock.receive(RequestId(2), &reply(500, 64));
        stock.receive(RequestId(1), &reply(100, 2));
        stock.end(RequestId(1));
        let taken = [0, 70_000, 0].map(|timeout_ms| stock.take(timeout_ms));
        let lent = |xid: &str, seconds| {
            Some(LentXid { xid: xid.to_owned(), timeout: Duration::from_secs(seconds) })
        };
        assert_eq!(taken, [lent("tc:7091:100", 60), lent("tc:7091:101", 70), None]);
    }

    #[test]
    fn more_are_asked_for_when_few_are_left() {
        let mut stock = XidStock::default();
        stock.asked_by(RequestId(1));
        stock.receive(RequestId(1), &reply(100, 1_000));
        stock.end(RequestId(1));
        let taken = (0..).take_while(|_| stock.wants() == 0 && stock.take(99_000).is_some());
        assert_eq!(taken.count(), 33, "no more than were wanted are kept");
        stock.clear();
        assert_eq!(stock.take(0), None);
    }

    #[test]
    fn a_loan_that_makes_no_sense_is_none() {
        let mut stock = XidStock::default();
        for reply in
            [reply(1, 0), reply(u64::MAX, 2), BeginReply { xid: "tc".into(), ..reply(1, 2) }]
        {
            stock.asked_by(RequestId(1));
            stock.receive(RequestId(1), &reply);
            assert_eq!(stock.take(0), None);
        }
    }
}

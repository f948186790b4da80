//! The XIDs that the server has lent a connection, as the client library keeps them.

use std::collections::VecDeque;

use handfast_proto::v1;

/// How many XIDs are asked for at a time, and how few are left then: as in the library.
const WANTED: u32 = 64;
const FEW: u64 = 32;

/// The unused XIDs.
#[derive(Debug, Default)]
pub(super) struct LentXids {
    loans: VecDeque<(String, std::ops::Range<u64>)>,
    /// The id of the begin with which XIDs are asked for.
    asked_by: Option<u64>,
}

impl LentXids {
    /// Takes the next XID, if there is one.
    pub(super) fn take(&mut self) -> Option<String> {
        let (address, loan) = self.loans.front_mut()?;
        let xid = loan.next().map(|number| format!("{address}:{number}"));
        if loan.is_empty() {
            self.loans.pop_front();
        }
        xid
    }

    /// Returns how many XIDs to ask for with a begin.
    pub(super) fn wants(&mut self, id: u64) -> u32 {
        let left: u64 = self.loans.iter().map(|(_, loan)| loan.end - loan.start).sum();
        if self.asked_by.is_some() || left >= FEW {
            return 0;
        }
        self.asked_by = Some(id);
        WANTED
    }

    /// Takes in the answer to a begin.
    pub(super) fn receive(&mut self, id: u64, reply: &v1::BeginReply) {
        if self.asked_by.take_if(|asked_by| *asked_by == id).is_none() {
            return;
        }
        if let (Some(loan), Some((address, _))) = (&reply.loan, reply.xid.rsplit_once(':')) {
            let end = loan.first.saturating_add(loan.count.into());
            self.loans.push_back((address.to_owned(), loan.first..end));
        }
    }
}

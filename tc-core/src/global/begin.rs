//! The begin of a global, with an XID that is drawn here or lent to the client before.
//!
//! Nothing is stored (decision 0002). A begin may come again: with its key, or with its lent XID.

use std::cmp::Ordering;
use std::sync::Arc;

use super::branches::Branches;
use super::globals::Globals;
use super::loans::LoanTable;
use super::state::{Global, GlobalExtras, Phase};
use crate::collections::interner::Origin;
use crate::contract::{
    Asker, ClientId, GlobalStatus, Labels, LentXid, LoanTerms, Rejection, Reply, Xid, XidLoan,
};
use crate::decision_context::HandlerResult;
use crate::shares::{check_limit, check_share};

impl Globals<'_> {
    pub(crate) fn begin(
        &mut self,
        application: Arc<str>,
        name: Arc<str>,
        timeout_ms: Option<u64>,
        labels: Labels,
        key: Option<Arc<str>>,
        loan: LoanTerms,
    ) -> HandlerResult {
        let known = key.as_ref().and_then(|key| self.keys.find(&application, key));
        let lent = || loan.xid.as_ref().map_or(Ok(None), |lent| self.known_by(lent));
        if let Some(begun) = known.map_or_else(lent, |xid| Ok(Some(xid)))?
            && let Some(again) = self.begin_again(begun)
        {
            return Ok(Some(again));
        }
        let limits = self.on.limits;
        let what = "unfinished globals";
        check_limit(what, self.globals.len() + 1, limits.globals_max)?;
        // A global counts for the application that its begin names, whatever its connection's is.
        let owner = Asker { client: self.on.asker.client, application: application.clone() };
        check_share(limits, &[self.globals.open()], &owner, what, 1, limits.globals_max)?;
        let timeout_ms = timeout_ms.unwrap_or(limits.timeout_ms_default).min(limits.timeout_ms_max);
        // A begin that was refused leaves its lent XID unused, and is decided again if it comes
        // again.
        let (xid, address) = match loan.xid {
            Some(LentXid { xid, address }) => {
                self.take_lent(xid);
                (xid, address)
            }
            None => (self.on.ids.xid()?, self.on.address.clone()),
        };
        let client = owner.client;
        let origin = Origin { address: address.clone(), application, name, client };
        self.labels.insert(&labels, xid);
        self.keys.insert(&origin.application, key.as_ref(), xid);
        self.globals.insert(Global {
            xid,
            origin: self.on.names.origin(&origin),
            begun_at: self.on.now,
            timeout_ms,
            deadline: self.on.now.after_ms(timeout_ms),
            phase: Phase::Active,
            asks_its_last: false,
            stored: false,
            rows: 0,
            unfinished: 0,
            refused: 0,
            branches: Branches::default(),
            extras: GlobalExtras { labels, key, ..GlobalExtras::default() }.boxed(),
        });
        // The client puts lent numbers behind the address of this reply's XID. Of a global with the
        // address of an earlier leader it is told none, and asks again with its next begin.
        let may_lend = address == *self.on.address;
        let loan = may_lend.then(|| self.lend(loan.wants)).flatten();
        Ok(Some(Reply::Begun { xid, address, timeout_ms, found: None, loan }))
    }

    /// Returns the global that has been begun with a lent XID already, if there is one.
    ///
    /// # Errors
    /// The sender may not begin a global with it (LENT). An XID that an earlier leader has lent is
    /// taken once: only the process that was lent it sends it, and only while it has seen no answer
    /// about it (decision 0040).
    fn known_by(&self, lent: &LentXid) -> Result<Option<Xid>, Rejection> {
        let (xid, client) = (lent.xid, self.on.asker.client);
        let refusal = Rejection::XidNotLent(xid);
        if let Some(global) = self.globals.get(xid) {
            // A global that was stored has lost its client.
            let is_own = [client, ClientId::default()].contains(&global.client());
            return if is_own { Ok(Some(xid)) } else { Err(refusal) };
        }
        if self.history.get(xid).is_some() {
            return Ok(Some(xid));
        }
        let is_known = client != ClientId::default();
        let may_begin = match xid.epoch().cmp(&self.on.ids.epoch()) {
            Ordering::Less => {
                is_known && xid.may_be_drawn() && !self.loans.has_used_earlier(client, xid)
            }
            Ordering::Equal => self.loans.is_lent(client, xid) && lent.address == *self.on.address,
            Ordering::Greater => false,
        };
        if may_begin { Ok(None) } else { Err(refusal) }
    }

    /// Takes note that a lent XID is used.
    fn take_lent(&mut self, xid: Xid) {
        let client = self.on.asker.client;
        if xid.epoch() < self.on.ids.epoch() {
            self.loans.take_earlier(client, xid);
        } else {
            self.loans.take(client, xid);
        }
    }

    /// Lends the sender XIDs, if it wants some and there is room (BOUNDED).
    fn lend(&mut self, wants: u32) -> Option<XidLoan> {
        let (limits, client) = (self.on.limits, self.on.asker.client);
        let room = limits.globals_max.saturating_sub(self.loans.unused());
        let count = LoanTable::count_for(wants, room);
        if count == 0 || client == ClientId::default() {
            return None;
        }
        let first = self.on.ids.xids(count).ok()?;
        self.loans.lend(client, first, count);
        let (timeout_ms_default, timeout_ms_max) =
            (limits.timeout_ms_default, limits.timeout_ms_max);
        Some(XidLoan { first, count, timeout_ms_default, timeout_ms_max })
    }

    /// Answers the begin of a known global, unfinished or remembered.
    fn begin_again(&mut self, xid: Xid) -> Option<Reply> {
        let found = self.found(xid);
        self.adopt(xid);
        let open = self.globals.get(xid);
        let open = open.map(|global| (global.origin.address.clone(), global.timeout_ms));
        let finished = || {
            let global = self.history.get(xid)?;
            let timeout_ms = global.deadline.0.saturating_sub(global.begun_at.0);
            Some((global.origin.address.clone(), timeout_ms))
        };
        let (address, timeout_ms) = open.or_else(finished)?;
        Some(Reply::Begun { xid, address, timeout_ms, found, loan: None })
    }

    /// Returns how a global stands for a client that begins it again. A global of the same client
    /// in which nothing has been done counts as new: the client may have lost the reply to its
    /// begin.
    fn found(&self, xid: Xid) -> Option<GlobalStatus> {
        let client = self.on.asker.client;
        let is_own = |global: &Global| {
            client != ClientId::default()
                && global.client() == client
                && global.branches.is_empty()
                && global.status() == GlobalStatus::Active
        };
        let is_own = self.globals.get(xid).is_some_and(is_own);
        (!is_own).then(|| self.status(xid))
    }

    /// Makes an undecided global that of the sender. The process that began it may be gone, and a
    /// global without a branch ends with its client.
    fn adopt(&mut self, xid: Xid) {
        let client = self.on.asker.client;
        let has_changed = self.globals.get(xid).is_some_and(|it| it.client() != client);
        if client == ClientId::default() || !has_changed || self.undecided(xid).is_err() {
            return;
        }
        // It goes out and comes in again, so that it counts towards the share of its client.
        if let Some(mut global) = self.globals.remove(xid) {
            let origin = Origin { client, ..Origin::clone(&global.origin) };
            global.origin = self.on.names.origin(&origin);
            self.globals.insert(*global);
        }
    }
}

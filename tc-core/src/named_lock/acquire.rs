//! Acquiring a named lock: granted, in the queue, or not.
//!
//! First come, first served: a free lock goes to the longest waiter, whatever share
//! later requests ask for, so readers never keep a writer waiting forever. A global that
//! holds some of it comes first. The answer to a request that waits is the grant itself.

use std::sync::Arc;

use super::end::LEASE_LENGTH;
use super::named_locks::NamedLocks;
use super::table::Acquisition;
use super::turn::{Turn, TurnId};
use crate::contract::{
    Asker, Change, Correlation, FencingToken, LeaseId, LeaseRecord, LockShare, LockToken, NewLease,
    Record, RecordKey, Rejection, Reply, Timestamp, Xid,
};
use crate::shares::{check_limit, check_share};

/// How an acquisition went.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// It is answered at once.
    Answered(Reply),
    /// It waits in the place of an earlier request.
    Waits,
    /// It waits in a place of its own, unless that closes a cycle, which the caller looks for: the
    /// wait-for graph goes through rows as well.
    Queued(TurnId),
}

impl NamedLocks<'_> {
    /// Takes a lease, or finds the one of this acquisition. The caller has checked that the global
    /// that asks, if one does, is undecided.
    pub(crate) fn acquire(
        &mut self,
        to: Option<Correlation>,
        wanted: NewLease,
    ) -> Result<Acquired, Rejection> {
        if self.leases.barred.contains(wanted.token) {
            return Ok(Acquired::Answered(Reply::LockBusy { holder: None }));
        }
        // Most names are not known, and then nothing is in the way.
        let is_known = self.leases.is_known(&wanted.name);
        if is_known {
            // The requester still holds it if no other client took it after its time was up.
            self.drop_ended(&wanted.name, Some(wanted.token));
            self.grant_turns(&wanted.name);
        }
        match self.leases.acquisition(wanted.token) {
            Some(Acquisition::Held(id)) => {
                return self.hold_on(id, &wanted).map(Acquired::Answered);
            }
            Some(Acquisition::Waits(id)) => return self.wait_on(to, id, &wanted),
            None => {}
        }
        if let Some(of) = self.leases.other_parts(&wanted.name, wanted.share) {
            return Err(Rejection::LockParts { name: wanted.name, of });
        }
        if !is_known || self.is_turn_of(&wanted) {
            let fence = self.grant_lease(self.on.asker, wanted)?;
            return Ok(Acquired::Answered(Reply::LockGranted { fence, waited_ms: 0 }));
        }
        self.wait_for_lock(to, wanted)
    }

    /// Refuses lengths that no lease may have.
    pub(crate) fn check_lengths(&self, wanted: &NewLease) -> Result<(), Rejection> {
        let max = self.on.limits.lease_ms_max;
        let lengths =
            [(LEASE_LENGTH, wanted.lease_ms), ("milliseconds of a delay", wanted.delay_ms)];
        if let Some(&(what, _)) = lengths.iter().find(|(_, length)| *length > max) {
            return Err(Rejection::LimitReached { what, max });
        }
        Ok(())
    }

    /// Answers a repeated acquisition that holds a lease, and renews the lease.
    fn hold_on(&mut self, id: LeaseId, wanted: &NewLease) -> Result<Reply, Rejection> {
        // If the global holds the lock more than once, nothing would be given back.
        let is_alone = self.leases.held(&wanted.name).nth(1).is_none();
        let renew = |lease: &mut LeaseRecord| {
            if lease.name != wanted.name {
                return Err(Rejection::LockTokenTaken { token: lease.token });
            }
            // A share never grows: the request may be an earlier one that arrives late.
            if lease.share == LockShare::All && is_alone {
                lease.share = wanted.share;
            }
            Ok(lease.renew(self.on.now, wanted.lease_ms).then_some(lease.fence))
        };
        let held = self.leases.change(id, renew).unwrap_or(Ok(None))?;
        self.put_lease(id);
        // What a smaller share has given back may be enough for the next request.
        self.grant_turns(&wanted.name);
        let holder = self.leases.holder(self.on.now, &wanted.name);
        let busy = Reply::LockBusy { holder };
        Ok(held.map_or(busy, |fence| Reply::LockGranted { fence, waited_ms: 0 }))
    }

    /// Answers a repeated acquisition that waits: it keeps its place, and the reply goes to this
    /// request.
    fn wait_on(
        &mut self,
        to: Option<Correlation>,
        id: TurnId,
        wanted: &NewLease,
    ) -> Result<Acquired, Rejection> {
        let waits = |turn: &Turn| (turn.wanted.name.clone(), turn.wanted.share);
        if self.leases.turn(id).map(waits) != Some((wanted.name.clone(), wanted.share)) {
            return Err(Rejection::LockTokenTaken { token: wanted.token });
        }
        let holder = self.leases.holder(self.on.now, &wanted.name);
        // A request that does not wait is answered, and leaves the place of the earlier one as it
        // is.
        let Some(to) = to.filter(|_| wanted.wait_ms > 0) else {
            return Ok(Acquired::Answered(Reply::LockBusy { holder }));
        };
        let deadline = self.turn_deadline(wanted);
        let earlier = self.leases.wait_on(id, self.on.now, to, deadline);
        self.on.reply(earlier, Reply::LockBusy { holder });
        Ok(Acquired::Waits)
    }

    fn turn_deadline(&self, wanted: &NewLease) -> Timestamp {
        self.on.now.after_ms(wanted.wait_ms.min(self.on.limits.wait_ms_max))
    }

    /// Returns whether it is granted at once. A global that holds the lock already does not stand
    /// behind the requests that wait for it.
    fn is_turn_of(&self, wanted: &NewLease) -> bool {
        let NewLease { name, share, xid, .. } = wanted;
        let is_owner = xid.is_some() && self.leases.held(name).any(|lease| lease.xid == *xid);
        let is_next = is_owner || self.leases.queue(name).next().is_none();
        is_next && self.leases.has_room(name, *share, *xid)
    }

    fn wait_for_lock(
        &mut self,
        to: Option<Correlation>,
        wanted: NewLease,
    ) -> Result<Acquired, Rejection> {
        let Some(reply_to) = to.filter(|_| wanted.wait_ms > 0) else {
            let holder = self.leases.holder(self.on.now, &wanted.name);
            return Ok(Acquired::Answered(Reply::LockBusy { holder }));
        };
        self.refuse_behind_a_rollback(&wanted)?;
        self.check_room_to_wait()?;
        let deadline = self.turn_deadline(&wanted);
        let (asker, now) = (self.on.asker.clone(), self.on.now);
        let turn = Turn { reply_to, asker, wanted, since: now, queued_at: now, deadline };
        Ok(Acquired::Queued(self.leases.enqueue(turn)))
    }

    fn grant_lease(&mut self, asker: &Asker, wanted: NewLease) -> Result<FencingToken, Rejection> {
        let holder = self.holder_of(asker, wanted.xid);
        let (what, max) = ("leases", self.on.limits.leases_max);
        check_limit(what, self.leases.len() + 1, max)?;
        check_share(self.on.limits, &[self.leases.tally()], &holder, what, 1, max)?;
        let fence = self.fence_of(&wanted)?;
        let id = self.on.ids.lease()?;
        if let Some(xid) = wanted.xid {
            self.owners.store(xid, self.on.out);
        }
        let record = LeaseRecord {
            id,
            name: wanted.name,
            token: wanted.token,
            share: wanted.share,
            xid: wanted.xid,
            fence,
            label: self.on.names.text(&wanted.label),
            application: self.on.names.text(&holder.application),
            granted_at: self.on.now,
            ends_at: self.on.now.after_ms(wanted.lease_ms),
            lease_ms: wanted.lease_ms,
            // At least the end of the lease, which is granted for its whole length.
            hold_until: wanted
                .hold_ms_max
                .map(|max| self.on.now.after_ms(max.max(wanted.lease_ms))),
            delay_ms: wanted.delay_ms,
        };
        self.leases.add(record, holder.client);
        self.put_lease(id);
        Ok(fence)
    }

    /// Returns the owner of a lease. A request without a name uses the global's application.
    fn holder_of(&self, asker: &Asker, xid: Option<Xid>) -> Asker {
        let of_global = xid.and_then(|xid| self.owners.application(xid));
        let application = match of_global {
            Some(application) if asker.application.is_empty() => application,
            Some(_) | None => &asker.application,
        };
        Asker { client: asker.client, application: Arc::clone(application) }
    }

    /// Holders of parts beside each other have the same token: the resource accepts all of them,
    /// and none of them once a client has held all.
    fn fence_of(&mut self, wanted: &NewLease) -> Result<FencingToken, Rejection> {
        let is_part = wanted.share != LockShare::All;
        let is_beside = |lease: &&LeaseRecord| is_part || lease.share == LockShare::All;
        let beside = self.leases.held(&wanted.name).filter(is_beside);
        // Those of one global may have several: it may have been a reader before it was a writer.
        let fence = beside.map(|lease| lease.fence).max();
        fence.map_or_else(|| self.on.ids.token(), Ok)
    }

    pub(super) fn put_lease(&mut self, id: LeaseId) {
        let lease = self.leases.lease(id).cloned();
        self.on.out.changes.extend(lease.map(|lease| Change::Put(Record::Lease(lease))));
    }

    pub(super) fn drop_lease(&mut self, id: LeaseId) {
        if self.leases.remove(id).is_some() {
            self.on.out.changes.push(Change::Delete(RecordKey::Lease(id)));
        }
    }

    /// Forgets the leases of a lock whose places are free for others, except that of token `but`.
    fn drop_ended(&mut self, name: &str, but: Option<LockToken>) {
        let ended = |lease: &&LeaseRecord| lease.frees_at().is_some_and(|at| at <= self.on.now);
        let others = |lease: &&LeaseRecord| Some(lease.token) != but;
        let ended = self.leases.held(name).filter(ended).filter(others).map(|lease| lease.id);
        let ended: Vec<LeaseId> = ended.collect();
        ended.into_iter().for_each(|id| self.drop_lease(id));
    }

    /// Grants every request whose turn it is.
    pub(super) fn grant_turns(&mut self, name: &str) {
        while let Some((id, share, xid)) = self.leases.next_turn(name) {
            // A request for another number of parts than the holders' is refused in its turn: it
            // would keep those behind it waiting for a lock that they could share.
            let parts = self.leases.other_parts(name, share);
            if parts.is_none() && !self.leases.has_room(name, share, xid) {
                return;
            }
            let Some(turn) = self.leases.dequeue(id) else { return };
            let waited_ms = self.on.now.0.saturating_sub(turn.since.0);
            let granted = match parts {
                Some(of) => Err(Rejection::LockParts { name: turn.wanted.name, of }),
                None => self.grant_lease(&turn.asker, turn.wanted),
            };
            let granted = granted.map(|fence| Reply::LockGranted { fence, waited_ms });
            self.on.reply(Some(turn.reply_to), granted.unwrap_or_else(Reply::Rejected));
        }
    }
}

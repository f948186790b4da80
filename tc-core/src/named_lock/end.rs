//! The continuation and end of leases: renewed, released, out of time, broken by an operator.

use std::sync::Arc;

use super::named_locks::NamedLocks;
use super::table::Acquisition;
use super::turn::TurnId;
use crate::contract::{Correlation, LeaseId, LeaseRecord, LockToken, Rejection, Reply};
use crate::decision_context::HandlerResult;
use crate::shares::check_limit;

/// The name of the limit in [`Rejection::LimitReached`].
pub(super) const LEASE_LENGTH: &str = "milliseconds of a lease";

impl NamedLocks<'_> {
    /// Renews leases, and answers for each whether it was renewed. A lost lease is never taken
    /// again.
    ///
    /// A length above the limit is refused, not shortened: its client would count on all of it. A
    /// lease that was granted before the limit was lowered keeps its length.
    pub(crate) fn renew_locks(&mut self, tokens: &[LockToken], lease_ms: u64) -> HandlerResult {
        check_limit("renewals in one request", tokens.len(), self.on.limits.rows_per_request_max)?;
        let max = self.on.limits.lease_ms_max;
        if lease_ms > max && !tokens.iter().any(|&token| self.was_granted_for(token, lease_ms)) {
            return Err(Rejection::LimitReached { what: LEASE_LENGTH, max });
        }
        let renewed = tokens.iter().map(|&token| self.renew_lock(token, lease_ms));
        Ok(Some(Reply::LocksRenewed { held: renewed.collect() }))
    }

    fn was_granted_for(&self, token: LockToken, lease_ms: u64) -> bool {
        let Some(Acquisition::Held(id)) = self.leases.acquisition(token) else { return false };
        self.leases.lease(id).is_some_and(|lease| lease.lease_ms >= lease_ms)
    }

    fn renew_lock(&mut self, token: LockToken, lease_ms: u64) -> bool {
        let Some(Acquisition::Held(id)) = self.leases.acquisition(token) else { return false };
        // A lease whose time is up stays in the table until a tick, or a request for it, comes.
        let renew = |lease: &mut LeaseRecord| {
            lease.is_held(self.on.now) && lease.renew(self.on.now, lease_ms)
        };
        let renewed = self.leases.change(id, renew).unwrap_or(false);
        if renewed {
            self.put_lease(id);
        }
        renewed
    }

    /// Ends an acquisition, in whatever state it is. A lease that a global owns ends with its
    /// global and at no other time: what it protects is not decided yet.
    pub(crate) fn release_lock(
        &mut self,
        name: &str,
        token: LockToken,
        refuses_late: bool,
    ) -> HandlerResult {
        // The token is barred although nothing may be found below: its request may still arrive.
        if refuses_late {
            self.leases.barred.add(self.on.now, token);
        }
        let freed = match self.leases.acquisition(token) {
            Some(Acquisition::Held(id)) => self.end_lease(id),
            Some(Acquisition::Waits(id)) => {
                self.give_up_turn(id);
                false
            }
            None => false,
        };
        // This reply leaves before the change is stored (decision 0011). The other one names a
        // holder, and waits for what it has seen to be durable.
        if freed {
            return Ok(Some(Reply::LockFreed));
        }
        Ok(Some(Reply::LockNotHeld { current: self.leases.holder(self.on.now, name) }))
    }

    /// Ends a lease. Returns whether it was held until then.
    fn end_lease(&mut self, id: LeaseId) -> bool {
        let Some(lease) = self.leases.lease(id) else { return false };
        let (was_held, owner, name) = (lease.is_held(self.on.now), lease.xid, lease.name.clone());
        if owner.is_none() {
            self.drop_lease(id);
            self.grant_turns(&name);
        }
        was_held
    }

    /// Removes a request from the queue, and answers that the lock is busy.
    pub(super) fn give_up_turn(&mut self, id: TurnId) {
        let Some(turn) = self.leases.turn(id) else { return };
        let holder = self.leases.holder(self.on.now, &turn.wanted.name);
        self.end_turn(id, Reply::LockBusy { holder });
    }

    pub(super) fn end_turn(&mut self, id: TurnId, reply: Reply) {
        if let Some(turn) = self.leases.dequeue(id) {
            self.on.reply(Some(turn.reply_to), reply);
            self.grant_turns(&turn.wanted.name);
        }
    }

    /// Gives up the turn of a request whose sender does not wait any more.
    pub(crate) fn forget_turn(&mut self, waiting: Correlation) {
        let Some(id) = self.leases.awaited(waiting) else { return };
        if let Some(turn) = self.leases.dequeue(id) {
            self.grant_turns(&turn.wanted.name);
        }
    }

    /// Ends the leases of a lock, or one of them, whatever their holders do: an operator says so.
    pub(crate) fn break_lock(
        &mut self,
        name: &Arc<str>,
        token: Option<LockToken>,
    ) -> HandlerResult {
        let is_meant = |lease: &&LeaseRecord| token.is_none_or(|token| token == lease.token);
        let broken: Vec<_> = self.leases.held(name).filter(is_meant).map(|it| it.id).collect();
        if broken.is_empty() {
            return Err(Rejection::LockNotHeld { name: name.clone() });
        }
        let leases = broken.len();
        for id in broken {
            self.end_turns_of_owner(id);
            self.drop_lease(id);
        }
        self.grant_turns(name);
        Ok(Some(Reply::LockBroken { leases }))
    }

    /// Ends the other requests of a lease's owner for the same lock: without the lease they would
    /// stand behind others, and could close a cycle that is not searched for.
    fn end_turns_of_owner(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.lease(id) else { return };
        let Some(xid) = lease.xid else { return };
        let turns: Vec<TurnId> = self.leases.turns_of(xid, &lease.name).collect();
        turns.into_iter().for_each(|turn| self.give_up_turn(turn));
    }

    /// Ends the leases and the waits whose time is up.
    pub(crate) fn tick(&mut self, max: usize) {
        for _ in 0..max {
            let Some(id) = self.leases.first_freed(self.on.now) else { break };
            let name = self.leases.lease(id).map(|lease| lease.name.clone());
            self.drop_lease(id);
            name.into_iter().for_each(|name| self.grant_turns(&name));
        }
        for _ in 0..max {
            let Some(id) = self.leases.first_expired(self.on.now) else { break };
            self.give_up_turn(id);
        }
    }
}

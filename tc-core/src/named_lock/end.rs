//! How leases go on and end: renewed, let go, out of time, broken by an operator.

use std::sync::Arc;

use super::table::Standing;
use super::turn::TurnId;
use crate::contract::{
    Correlation, LeaseId, LeaseRecord, LockToken, Outcome, Rejection, Reply, Timestamp,
};
use crate::coordinator::Coordinator;
use crate::reply::{Answer, push_reply};
use crate::shares::check_limit;

impl Coordinator {
    /// Renews leases, and tells of each whether it is held for so long from here on. What was lost
    /// is never taken again.
    pub(crate) fn renew_locks(
        &mut self,
        now: Timestamp,
        tokens: &[LockToken],
        lease_ms: u64,
        out: &mut Outcome,
    ) -> Answer {
        check_limit("renewals in one request", tokens.len(), self.limits.rows_per_request_max)?;
        let lease_ms = lease_ms.min(self.limits.lease_ms_max);
        let renewed = tokens.iter().map(|&token| self.renew_lock(now, token, lease_ms, out));
        Ok(Some(Reply::LocksRenewed { held: renewed.collect() }))
    }

    fn renew_lock(
        &mut self,
        now: Timestamp,
        token: LockToken,
        lease_ms: u64,
        out: &mut Outcome,
    ) -> bool {
        let Some(Standing::Held(id)) = self.leases.standing(token) else { return false };
        let renew = |lease: &mut LeaseRecord| lease.is_held(now) && lease.renew(now, lease_ms);
        let renewed = self.leases.change(id, renew).unwrap_or(false);
        if renewed {
            self.put_lease(id, out);
        }
        renewed
    }

    /// Ends an acquisition, in whatever state it is. A lease that a global owns ends with its
    /// global and at no other time: what it protects is not decided yet.
    pub(crate) fn release_lock(
        &mut self,
        now: Timestamp,
        name: &str,
        token: LockToken,
        is_doubtful: bool,
        out: &mut Outcome,
    ) -> Answer {
        if is_doubtful {
            self.leases.barred.add(now, token);
        }
        let freed = match self.leases.standing(token) {
            Some(Standing::Held(id)) => self.let_go_of(now, id, out),
            Some(Standing::Waits(id)) => {
                self.give_up_turn(now, id, out);
                false
            }
            None => false,
        };
        if freed {
            return Ok(Some(Reply::LockFreed));
        }
        Ok(Some(Reply::LockNotHeld { current: self.leases.holder(now, name) }))
    }

    /// Whether it was held until then.
    fn let_go_of(&mut self, now: Timestamp, id: LeaseId, out: &mut Outcome) -> bool {
        let Some(lease) = self.leases.lease(id) else { return false };
        let (was_held, owner, name) = (lease.is_held(now), lease.xid, lease.name.clone());
        if owner.is_none() {
            self.drop_lease(id, out);
            self.grant_turns(now, &name, out);
        }
        was_held
    }

    /// Takes a request out of the queue and tells it that it was not its turn.
    pub(super) fn give_up_turn(&mut self, now: Timestamp, id: TurnId, out: &mut Outcome) {
        let Some(turn) = self.leases.turn(id) else { return };
        let holder = self.leases.holder(now, &turn.wanted.name);
        self.end_turn(now, id, Reply::LockBusy { holder }, out);
    }

    pub(super) fn end_turn(&mut self, now: Timestamp, id: TurnId, reply: Reply, out: &mut Outcome) {
        if let Some(turn) = self.leases.step_out(id) {
            push_reply(out, Some(turn.reply_to), reply);
            self.grant_turns(now, &turn.wanted.name, out);
        }
    }

    /// Gives up the turn of a request that nobody waits for any more.
    pub(crate) fn forget_turn(&mut self, now: Timestamp, waiting: Correlation, out: &mut Outcome) {
        let Some(id) = self.leases.awaited(waiting) else { return };
        if let Some(turn) = self.leases.step_out(id) {
            self.grant_turns(now, &turn.wanted.name, out);
        }
    }

    /// Ends the leases of a lock, or one of them, whoever holds them: an operator says so.
    pub(crate) fn break_lock(
        &mut self,
        now: Timestamp,
        name: &Arc<str>,
        token: Option<LockToken>,
        out: &mut Outcome,
    ) -> Answer {
        let is_meant = |lease: &&LeaseRecord| token.is_none_or(|token| token == lease.token);
        let broken: Vec<_> = self.leases.held(name).filter(is_meant).map(|it| it.id).collect();
        if broken.is_empty() {
            return Err(Rejection::LockNotHeld { name: name.clone() });
        }
        let leases = broken.len();
        for id in broken {
            self.end_turns_of_owner(now, id, out);
            self.drop_lease(id, out);
        }
        self.grant_turns(now, name, out);
        Ok(Some(Reply::LockBroken { leases }))
    }

    /// Ends what the owner of a lease wants of the same lock besides: without the lease it would
    /// stand behind others, and could close a circle that nobody looks for.
    fn end_turns_of_owner(&mut self, now: Timestamp, id: LeaseId, out: &mut Outcome) {
        let Some(lease) = self.leases.lease(id) else { return };
        let Some(xid) = lease.xid else { return };
        let turns: Vec<TurnId> = self.leases.turns_of(xid, &lease.name).collect();
        turns.into_iter().for_each(|turn| self.give_up_turn(now, turn, out));
    }

    /// Ends the leases whose time is up, and the waits.
    pub(crate) fn tick_leases(&mut self, now: Timestamp, max: usize, out: &mut Outcome) {
        for _ in 0..max {
            let Some(id) = self.leases.first_freed(now) else { break };
            let name = self.leases.lease(id).map(|lease| lease.name.clone());
            self.drop_lease(id, out);
            name.into_iter().for_each(|name| self.grant_turns(now, &name, out));
        }
        for _ in 0..max {
            let Some(id) = self.leases.first_expired(now) else { break };
            self.give_up_turn(now, id, out);
        }
    }
}

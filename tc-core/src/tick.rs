//! The passing of time: it expires globals, sagas, leases and waiting requests, and forgets what is
//! finished and what clients that are gone have left.
//!
//! Nothing that is decided is ever dropped by time.

use crate::contract::{Change, Outcome, RecordKey, RollbackReason, Timestamp, Xid};
use crate::coordinator::Coordinator;
use crate::decision_context::HandlerResult;
use crate::global::globals::Globals;
use crate::global::state::Phase;
use crate::row_lock::table::Touched;

/// The size of changes beyond which a tick expires no further saga, in bytes: after a change of
/// leader many may be due at one moment, each with all that its steps were given. Too large: one
/// decision exceeds what a database takes in one statement; too small: more turns than needed.
const TICK_BYTES_ENOUGH: usize = 1 << 20;

impl Coordinator {
    /// Does what is due, a bounded number of each kind (BOUNDED).
    pub(crate) fn tick(&mut self, now: Timestamp, out: &mut Outcome) -> HandlerResult {
        // With a limit of 0 nothing would ever run out.
        let max = self.environment.limits.expiries_per_tick_max.max(1);
        self.global_wing(now, out).tick(max);
        self.tick_sagas(now, max, out);
        for _ in 0..max {
            if self.saga_forgetting_due().is_none_or(|due| due > now) {
                break;
            }
            self.saga_wing(now, out).forget_oldest_saga();
        }
        self.global_wing(now, out).named_locks().tick(max);
        self.tick_departed(now, max, out);
        Ok(None)
    }

    fn tick_sagas(&mut self, now: Timestamp, max: usize, out: &mut Outcome) {
        let (mut measured, mut bytes) = (out.changes.len(), 0);
        for _ in 0..max {
            let Some((_, xid)) = self.sagas.next_timeout().filter(|&(at, _)| at <= now) else {
                break;
            };
            self.saga_wing(now, out).expire_saga(xid);
            bytes += out.changes[measured..].iter().map(Change::approximate_bytes).sum::<usize>();
            measured = out.changes.len();
            if bytes >= TICK_BYTES_ENOUGH {
                break;
            }
        }
    }

    /// Ends the globals without a branch of clients that have been gone for long enough, and takes
    /// back the XIDs that are lent to them.
    fn tick_departed(&mut self, now: Timestamp, max: usize, out: &mut Outcome) {
        for _ in 0..max {
            // Each turn ends one global: a client may have left more of them than one tick may end.
            let Some(client) = self.departed.first_due(now) else { return };
            match self.globals.first_without_branch(client) {
                Some(xid) => self.global_wing(now, out).abandon(xid),
                None => {
                    self.loans.forget(client);
                    self.departed.remove(client);
                }
            }
        }
    }

    pub(crate) fn saga_forgetting_due(&self) -> Option<Timestamp> {
        self.sagas.forgetting_due(&self.environment.limits)
    }
}

impl Globals<'_> {
    fn tick(&mut self, max: usize) {
        let now = self.on.now;
        for _ in 0..max {
            let Some(xid) = self.globals.expired(now) else { break };
            if !self.settle_last(xid) {
                self.time_out(xid);
            }
        }
        for _ in 0..max {
            let Some(id) = self.rows.waiters.expired(now) else { break };
            // Each is settled by itself: `expire_waiter` relies on QUEUE, and the end of one wait
            // may have freed the rows of the next.
            let mut touched = Touched::new();
            self.expire_waiter(id, &mut touched);
            self.settle(touched);
        }
        for _ in 0..max {
            let due = self.history.forgetting_due(self.on.limits, self.on.restart);
            if due.is_none_or(|due| due > now) {
                break;
            }
            self.forget_oldest();
        }
    }

    /// Ends a global without a branch whose client is gone. Where a request of another client waits
    /// for the global, such as for its first branch, the global is decided and the request is
    /// answered; nothing else knows of it.
    fn abandon(&mut self, xid: Xid) {
        let has_waiters = self.rows.waiters.of_global(xid).next().is_some();
        if has_waiters || self.leases.is_of_global(xid) {
            let phase = Phase::RollingBack(RollbackReason::Timeout);
            self.decide_global(xid, phase, "decided: roll back (its client is gone)");
        } else {
            // It leaves no record and no place in the history, as after a restart (decision 0002).
            if let Some(global) = self.globals.remove(xid) {
                let application = &global.origin.application;
                self.forget_names(xid, global.labels(), application, global.key());
            }
        }
    }

    /// Makes room for a global that has just been added to the history (BOUNDED).
    pub(crate) fn forget_beyond_the_limit(&mut self) {
        // One is forgotten for each that is added. If the limit was lowered, ticks forget the rest.
        if self.history.len() > self.on.limits.history_max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(global) = self.history.pop() {
            let application = &global.origin.application;
            self.forget_names(global.xid, global.labels(), application, global.key());
            self.on.delete(RecordKey::Global(global.xid));
        }
    }
}

//! What the passing of time does: it expires globals, sagas, leases and waiting requests, and
//! forgets what is finished, and what clients have left that are gone.
//!
//! Nothing that is decided is ever dropped by time.

use crate::contract::{Change, Outcome, RecordKey, RollbackReason, Timestamp};
use crate::coordinator::Coordinator;
use crate::global::state::Phase;
use crate::row_lock::table::Touched;

impl Coordinator {
    pub(crate) fn tick(&mut self, now: Timestamp, out: &mut Outcome) {
        let max = self.limits.expiries_per_tick_max.max(1);
        for _ in 0..max {
            let Some(xid) = self.globals.expired(now) else { break };
            let phase = Phase::RollingBack(RollbackReason::Timeout);
            self.decide_global(now, xid, phase, "decided: roll back (timeout)", out);
        }
        for _ in 0..max {
            let Some(id) = self.waits.expired(now) else { break };
            let mut touched = Touched::new();
            self.expire_waiter(id, &mut touched, out);
            self.settle(now, touched, out);
        }
        for _ in 0..max {
            if self.forgetting_due().is_none_or(|due| due > now) {
                break;
            }
            self.forget_oldest(out);
        }
        for _ in 0..max {
            let Some((_, xid)) = self.sagas.next_timeout().filter(|&(at, _)| at <= now) else {
                break;
            };
            self.expire_saga(now, xid, out);
        }
        for _ in 0..max {
            if self.saga_forgetting_due().is_none_or(|due| due > now) {
                break;
            }
            self.forget_oldest_saga(out);
        }
        self.tick_leases(now, max, out);
        self.tick_gone(now, max, out);
    }

    /// When the longest finished global is to be forgotten.
    pub(crate) fn forgetting_due(&self) -> Option<Timestamp> {
        let oldest = self.history.oldest()?;
        let crowded = self.history.len() > self.limits.history_max;
        let kept_until = self.restart.kept_until(oldest, self.limits.retention_ms);
        Some(if crowded { oldest } else { kept_until })
    }

    /// Makes room for a global that has just been added to the history (BOUNDED).
    pub(crate) fn forget_beyond_the_limit(&mut self, out: &mut Outcome) {
        if self.history.len() > self.limits.history_max {
            self.forget_oldest(out);
        }
    }

    fn forget_oldest(&mut self, out: &mut Outcome) {
        let forgotten = self.history.pop().map(RecordKey::Global);
        out.changes.extend(forgotten.map(Change::Delete));
    }
}

//! The time in which a process leads, as the process knows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handfast_core::Epoch;

use super::host::{NoAnswer, StoreHost};
use super::journal::RowPosition;
use super::lease::{LEASE, LeaseHolder};
use crate::world::MS;

/// The pause between two looks at whether the term is over: a leader notices late.
const LOOK_EVERY: u64 = 300 * MS;

/// A lease that is held, and what is stored under it.
#[derive(Debug)]
pub(super) struct LeaderTerm {
    pub(super) epoch: Epoch,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the lease may end; `None` once the term is over.
    until: Option<u64>,
    /// The last row that is stored. Absent while a batch is being stored, and ever after if its
    /// caller went away: whether it is there is not known then.
    last: Option<RowPosition>,
}

impl LeaderTerm {
    pub(super) fn new(epoch: Epoch, until: u64) -> Arc<Self> {
        let state = State { until: Some(until), last: None };
        Arc::new(Self { epoch, state: Mutex::new(state) })
    }

    /// Takes note of the mark, behind which batches are stored.
    pub(super) fn begin(&self, mark: RowPosition) {
        self.lock().last = Some(mark);
    }

    /// Returns whether no other process can lead, as far as this one knows.
    pub(super) fn is_certain(&self, now: u64) -> bool {
        self.lock().until.is_some_and(|until| now < until)
    }

    pub(super) fn end(&self) {
        self.lock().until = None;
    }

    /// Takes the row behind which the next batch is stored.
    pub(super) fn begin_write(&self) -> Option<RowPosition> {
        self.lock().last.take()
    }

    pub(super) fn end_write(&self, last: RowPosition) {
        self.lock().last = Some(last);
    }

    /// Completes when the term is over, or a little later.
    pub(super) async fn lost(&self, host: &StoreHost) {
        while self.is_certain(host.world.now()) {
            host.world.sleep(LOOK_EVERY).await;
        }
    }

    /// Renews the lease until the term is over.
    pub(super) async fn keep(self: Arc<Self>, host: Arc<StoreHost>, holder: LeaseHolder) {
        let epoch = self.epoch;
        loop {
            host.world.sleep(LEASE / 3).await;
            let sent = host.world.now();
            if !self.is_certain(sent) {
                return self.end();
            }
            match host.ask(holder.server, move |host| host.renew_lease(holder, epoch)).await {
                Ok(true) => self.prolong(host.world.now(), sent + LEASE),
                Ok(false) => return self.end(),
                // It may be renewed or not. The process goes on relying on the time it was sure of.
                Err(NoAnswer) => {}
            }
        }
    }

    /// A term that is over stays so. The store counts from a later moment than this process does.
    fn prolong(&self, now: u64, until: u64) {
        let mut state = self.lock();
        state.until = state.until.filter(|until| now < *until).map(|_| until);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

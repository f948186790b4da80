//! The coordinators' store: records as the real codec writes them, on a disk that can fail.
//!
//! It keeps the contract of `Store`: there is one leader by epoch, and a batch is stored as a whole
//! or not at all. A batch whose writer dies before it has the answer may be lost, torn (which the
//! store notices, so that it drops the batch) or stored without an acknowledgement. Two
//! coordinators share the store, as replicas of one log would. A fault moves leadership between
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt};
use handfast_core::{Change, Epoch, Record};
use handfast_server::store::codec::{decode, encode_change};
use handfast_server::store::{Store, StoreError};

use super::observation::{Observation, Observer};
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};

/// The disk, which stands for all disks of a replicated store.
#[derive(Debug)]
pub(crate) struct Disk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: Epoch,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    leader: usize,
    slow_until: u64,
    stuck_until: u64,
    fails_next: bool,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let state = State {
            epoch: Epoch(0),
            records: BTreeMap::new(),
            leader: 0,
            slow_until: 0,
            stuck_until: 0,
            fails_next: false,
        };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn leader(&self) -> usize {
        self.lock().leader
    }

    /// Lets another coordinator lead, as soon as it tries to.
    pub(crate) fn move_leadership(&self, to: usize) {
        self.lock().leader = to;
    }

    /// Makes writes slow until a point in time.
    pub(crate) fn slow_down(&self, until: u64) {
        self.lock().slow_until = until;
    }

    /// Blocks writes until a point in time.
    pub(crate) fn stall(&self, until: u64) {
        self.lock().stuck_until = until;
    }

    /// Makes the next write fail.
    pub(crate) fn fail_next_write(&self) {
        self.lock().fails_next = true;
    }

    /// Ends slow and stuck phases, and failures to come.
    pub(crate) fn heal(&self) {
        let mut state = self.lock();
        (state.slow_until, state.stuck_until, state.fails_next) = (0, 0, false);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store of one coordinator, on the shared disk.
pub(crate) struct SimStore {
    world: Arc<World>,
    observer: Arc<dyn Observer>,
    disk: Arc<Disk>,
    server: usize,
}

impl SimStore {
    pub(crate) fn new(
        world: Arc<World>,
        observer: Arc<dyn Observer>,
        disk: Arc<Disk>,
        server: usize,
    ) -> Self {
        Self { world, observer, disk, server }
    }

    async fn gain_leadership(&self, at_least: Epoch) -> Result<(Epoch, Vec<Record>), StoreError> {
        while self.disk.leader() != self.server {
            self.world.sleep(50 * MS).await;
        }
        self.world.sleep(self.world.between(MS, 20 * MS)).await;
        let (epoch, stored) = {
            let mut state = self.disk.lock();
            state.epoch = state.epoch.next().max(at_least);
            (state.epoch, state.records.clone())
        };
        self.world.log(Owner::Server(self.server), || format!("leads under epoch {}", epoch.0));
        let decoded: Result<Vec<Record>, _> =
            stored.iter().map(|(key, value)| decode(key, value)).collect();
        let records = decoded
            .map_err(|source| StoreError::Damaged { directory: "simulated".into(), source })?;
        Ok((epoch, records))
    }

    async fn confirm_leadership(&self, epoch: Epoch) -> Result<(), StoreError> {
        self.world.sleep(self.world.between(50, MS)).await;
        let leads = self.disk.lock().epoch == epoch;
        if leads { Ok(()) } else { Err(StoreError::LostLeadership) }
    }

    /// Ends when another coordinator leads, which a heartbeat notices within a second.
    async fn lose_leadership(&self, epoch: Epoch) {
        while self.disk.lock().epoch == epoch {
            self.world.sleep(SECOND).await;
        }
    }

    async fn write(&self, epoch: Epoch, batch: Vec<Change>) -> Result<(), StoreError> {
        let mut unsynced = Unsynced { store: self, epoch, batch: Some(batch) };
        let slow = self.disk.lock().slow_until > self.world.now();
        let longest = if slow { 800 * MS } else { 3 * MS };
        self.world.sleep(self.world.between(200, longest)).await;
        loop {
            let stuck_until = self.disk.lock().stuck_until;
            if stuck_until <= self.world.now() {
                break;
            }
            self.world.sleep((stuck_until - self.world.now()).min(SECOND)).await;
        }
        if std::mem::take(&mut self.disk.lock().fails_next) {
            return Err(StoreError::Write {
                directory: "simulated".into(),
                source: io::Error::other("the disk failed"),
            });
        }
        unsynced.sync()
    }
}

/// A batch that is being written. If it is dropped before it is synced, its fate is drawn.
struct Unsynced<'s> {
    store: &'s SimStore,
    epoch: Epoch,
    batch: Option<Vec<Change>>,
}

impl Unsynced<'_> {
    fn sync(&mut self) -> Result<(), StoreError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let mut state = self.store.disk.lock();
        if state.epoch != self.epoch {
            return Err(StoreError::LostLeadership);
        }
        for change in &batch {
            let (key, value) = encode_change(change);
            match value {
                Some(value) => drop(state.records.insert(key, value)),
                None => drop(state.records.remove(&key)),
            }
        }
        drop(state);
        let owner = Owner::Server(self.store.server);
        self.store.world.log(owner, || format!("stored {}", describe(&batch)));
        self.store.observer.observe(&Observation::Stored { batch: &batch });
        Ok(())
    }
}

impl Drop for Unsynced<'_> {
    fn drop(&mut self) {
        let world = &self.store.world;
        if self.batch.is_none() || !world.faulty() {
            return;
        }
        let fates = [Fault::WriteLost, Fault::WriteTorn, Fault::WriteUnacknowledged];
        let weights = fates.map(|fault| world.plan.permille(fault));
        let total: u64 = weights.iter().sum();
        let mut drawn = world.between(0, total);
        let fate = fates.into_iter().zip(weights).find(|(_, weight)| {
            let chosen = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            chosen
        });
        if let Some((fault, _)) = fate {
            world.count_fault(fault);
            world.log(Owner::Server(self.store.server), || format!("unsynced batch: {fault}"));
        }
        if let Some((Fault::WriteUnacknowledged, _)) = fate {
            // The sync fails if another coordinator leads by now, and the batch is lost.
            let _lost_leadership = self.sync();
        }
    }
}

/// Describes the changes of a batch for the log.
fn describe(batch: &[Change]) -> String {
    let words = batch.iter().map(|change| match change {
        Change::Put(Record::Global(global)) => format!("global {} {:?}", global.xid, global.state),
        Change::Put(Record::Branch(branch)) => {
            format!("branch {}/{} {:?}", branch.xid, branch.id, branch.state)
        }
        Change::Put(Record::Lease(lease)) => format!("lease {:?} of {}", lease.id, lease.name),
        Change::Put(Record::Saga(saga)) => format!("saga {} {:?}", saga.xid, saga.state),
        Change::Put(Record::Closure(closure)) => closure.to_string(),
        Change::Delete(key) => format!("gone {key:?}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Store for SimStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.gain_leadership(at_least).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.write(epoch, batch).boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        self.confirm_leadership(epoch).boxed()
    }

    fn lost(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        self.lose_leadership(epoch).boxed()
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").field("server", &self.server).finish_non_exhaustive()
    }
}

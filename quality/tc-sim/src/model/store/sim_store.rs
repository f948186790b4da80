//! The store as one process of a coordinator has it open.
//!
//! ```text
//! lead:    follow ▸ take the lease ▸ look at the newest row ▸ lay the mark behind it ▸ read
//! commit:  append behind the last row; without an answer, again: a row is stored once
//! ```
//!
//! A process may fall asleep between any two of these, and at two places it does so on purpose:
//! before its mark, and before a batch.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either, FutureExt, pending, select};
use handfast_core::{Change, Epoch, Record};
use handfast_server::store::codec::decode;
use handfast_server::store::watch;
use handfast_server::store::{CoordinatorNode, Leader, Store, StoreError};

use super::host::{BatchAnswer, NoAnswer, StoreHost};
use super::journal::{EncodedRecords, RowPosition};
use super::lease::{LEASE, LeaseAnswer, LeaseHolder};
use super::term::LeaderTerm;
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};

/// The longest pause between two looks of a follower at the lease.
const LOOK_EVERY: u64 = 100 * MS;
/// The rows between two compactions: few, so that leaders sleep through some.
const ROWS_UNTIL_COMPACTION: u64 = 6;
/// How long giving up the lease may take.
const GIVE_UP_LIMIT: u64 = 2 * SECOND;
/// Longer than any run.
const AGES: Duration = Duration::from_secs(1_000_000);

/// The store of one process.
pub(crate) struct SimStore {
    world: Arc<World>,
    host: Arc<StoreHost>,
    holder: LeaseHolder,
    leader: watch::Sender<Leader>,
    term: Mutex<Option<Arc<LeaderTerm>>>,
    /// A moment before each at which the engine asks how long the lead is certain.
    opened_at: Instant,
}

impl SimStore {
    pub(crate) fn open(host: &Arc<StoreHost>, server: usize) -> Self {
        let world = Arc::clone(&host.world);
        let known = if world.plan.servers == 1 { Leader::Here } else { Leader::Unknown };
        Self {
            world,
            host: Arc::clone(host),
            holder: host.admit(server),
            leader: watch::Sender::new(known),
            term: Mutex::new(None),
            opened_at: Instant::now(),
        }
    }

    /// Returns whether no other process can ever lead.
    fn is_alone(&self) -> bool {
        self.world.plan.servers == 1
    }

    async fn gain(&self, at_least: Epoch) -> Result<(Epoch, Vec<Record>), StoreError> {
        self.give_up_term().await;
        let mut at_least = at_least;
        loop {
            let term = self.take_lease(at_least).await;
            if let Some((mark, records)) = self.take_over(&term).await {
                term.begin(mark);
                *self.lock() = Some(Arc::clone(&term));
                return Ok((term.epoch, decoded(&records)?));
            }
            term.end();
            // No epoch is tried twice: its mark may have been laid although no answer came.
            at_least = term.epoch.next();
        }
    }

    /// Follows until no other process has the lease, and takes it.
    async fn take_lease(&self, at_least: Epoch) -> Arc<LeaderTerm> {
        let (host, holder) = (&self.host, self.holder);
        loop {
            let sent = self.world.now();
            let asked = host.ask(holder.server, move |host| host.take_lease(holder, at_least));
            let pause = match asked.await {
                Ok(LeaseAnswer::Taken(epoch)) => return self.rely_on_lease(epoch, sent),
                Ok(LeaseAnswer::Held { by, epoch, left }) => {
                    self.publish(Leader::Elsewhere { epoch, node: node(by) });
                    left.min(LOOK_EVERY)
                }
                Err(NoAnswer) => LOOK_EVERY,
            };
            self.world.sleep(pause).await;
        }
    }

    fn rely_on_lease(&self, epoch: Epoch, sent: u64) -> Arc<LeaderTerm> {
        self.publish(Leader::Here);
        if self.is_alone() {
            return LeaderTerm::new(epoch, u64::MAX);
        }
        // From when the request left: the store counts from later, so that this process stops
        // relying on the lease before another one can take it.
        let term = LeaderTerm::new(epoch, sent + LEASE);
        let keeping = Arc::clone(&term).keep(Arc::clone(&self.host), self.holder);
        self.world.spawn(self.owner(), keeping);
        term
    }

    /// Lays the mark, and reads what was stored before it. Returns `None` if the epoch cannot lead.
    async fn take_over(&self, term: &LeaderTerm) -> Option<(RowPosition, EncodedRecords)> {
        let mark = self.lay_mark(term).await?;
        while term.is_certain(self.world.now()) {
            if let Ok(records) = self.ask(move |host| host.read(mark)).await {
                return records.map(|records| (mark, records));
            }
        }
        None
    }

    async fn lay_mark(&self, term: &LeaderTerm) -> Option<RowPosition> {
        let (server, epoch) = (self.holder.server, term.epoch);
        while term.is_certain(self.world.now()) {
            self.sleep_past_lease(Fault::CandidateAsleep).await;
            let Ok(newest) = self.ask(StoreHost::newest).await else { continue };
            if newest.epoch >= epoch {
                return None;
            }
            self.sleep_past_lease(Fault::CandidateAsleep).await;
            match self.ask(move |host| host.lay_mark(server, newest, epoch)).await {
                Ok(true) => return Some(RowPosition { number: newest.number + 1, epoch }),
                // The journal has moved on.
                Ok(false) => {}
                // The mark may be there, and another one of this epoch must not follow it.
                Err(NoAnswer) => return None,
            }
        }
        None
    }

    async fn store(&self, epoch: Epoch, batch: Vec<Change>) -> Result<(), StoreError> {
        let term = self.term(epoch).ok_or(StoreError::LostLeadership)?;
        let last = term.begin_write().ok_or(StoreError::LostLeadership)?;
        self.sleep_past_lease(Fault::LeaderAsleep).await;
        let stored = self.append(last, batch.into());
        // An answer may never come: once the term is over, the engine must not wait for it.
        match select(pin!(stored), pin!(term.lost(&self.host))).await {
            Either::Left((BatchAnswer::Durable, _)) => {
                term.end_write(last.next());
                self.compact_if_due(last.next().number);
                Ok(())
            }
            Either::Left((BatchAnswer::Failed, _)) => Err(StoreError::Write {
                directory: "simulated".into(),
                source: std::io::Error::other("the disk failed"),
            }),
            Either::Left((BatchAnswer::Deposed, _)) | Either::Right(_) => {
                term.end();
                Err(StoreError::LostLeadership)
            }
        }
    }

    /// Sends a batch until its result is known.
    async fn append(&self, last: RowPosition, batch: Arc<[Change]>) -> BatchAnswer {
        loop {
            let sent = self.host.append(self.holder.server, last, Arc::clone(&batch));
            if let Ok(answer) = sent.await {
                return answer;
            }
        }
    }

    /// Carries rows over in the background, in two steps as the product does.
    fn compact_if_due(&self, last: u64) {
        if !last.is_multiple_of(ROWS_UNTIL_COMPACTION) {
            return;
        }
        let (host, server) = (Arc::clone(&self.host), self.holder.server);
        self.world.spawn(self.owner(), async move {
            if let Ok(applied) = host.ask(server, StoreHost::applied).await {
                // Without an answer a later compaction goes on.
                let _compacted = host.ask(server, move |host| host.compact(applied, last)).await;
            }
        });
    }

    async fn confirm_lead(&self, epoch: Epoch) -> Result<(), StoreError> {
        let term = self.term(epoch).ok_or(StoreError::LostLeadership)?;
        let newest = async {
            loop {
                if let Ok(newest) = self.ask(StoreHost::newest).await {
                    return newest;
                }
            }
        };
        let confirmed = match select(pin!(newest), pin!(term.lost(&self.host))).await {
            Either::Left((newest, _)) => newest.epoch == epoch,
            Either::Right(_) => false,
        };
        if confirmed {
            return Ok(());
        }
        term.end();
        Err(StoreError::LostLeadership)
    }

    /// Ends the term of this process, if there is one, and gives up its lease.
    async fn give_up_term(&self) {
        let Some(term) = self.lock().take() else { return };
        term.end();
        self.publish(Leader::Unknown);
        let (holder, epoch) = (self.holder, term.epoch);
        let until = self.world.now() + GIVE_UP_LIMIT;
        while self.world.now() < until {
            if self.ask(move |host| host.give_up_lease(holder, epoch)).await.is_ok() {
                return;
            }
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&StoreHost) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.host.ask(self.holder.server, request).await
    }

    /// Lets the process stand still here for longer than its lease, if the fault strikes.
    async fn sleep_past_lease(&self, fault: Fault) {
        if self.world.strikes(fault) {
            self.world.log(self.owner(), || format!("fault: {fault}"));
            self.world.freeze(self.owner(), self.world.between(LEASE, 3 * LEASE));
            // Gives way once: a task that is being polled runs on although its process is frozen.
            self.world.sleep(1).await;
        }
    }

    fn publish(&self, leader: Leader) {
        self.leader.send_if_modified(|known| {
            let is_news = *known != leader;
            *known = leader;
            is_news
        });
    }

    fn owner(&self) -> Owner {
        Owner::Server(self.holder.server)
    }

    fn term(&self, epoch: Epoch) -> Option<Arc<LeaderTerm>> {
        self.lock().clone().filter(|term| term.epoch == epoch)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<LeaderTerm>>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decoded(records: &EncodedRecords) -> Result<Vec<Record>, StoreError> {
    let decoded: Result<Vec<Record>, _> =
        records.iter().map(|(key, value)| decode(key, value)).collect();
    decoded.map_err(|source| StoreError::Damaged { directory: "simulated".into(), source })
}

/// Returns a coordinator as the others and the clients know it.
pub(super) fn node(server: usize) -> CoordinatorNode {
    CoordinatorNode {
        id: format!("server-{server}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        grpc: address_of(server),
        admin: format!("admin:{server}"),
        seata: None,
    }
}

/// Returns the address at which clients reach a coordinator.
pub(crate) fn address_of(server: usize) -> String {
    format!("sim:{server}")
}

impl Store for SimStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.gain(at_least).boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store(epoch, batch).boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        self.confirm_lead(epoch).boxed()
    }

    fn lost(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        if self.is_alone() {
            return pending().boxed();
        }
        async move {
            if let Some(term) = self.term(epoch) {
                term.lost(&self.host).await;
            }
        }
        .boxed()
    }

    /// The engine compares with the real clock, on which a run takes no time: the answer is a
    /// moment that has passed or one that is far off.
    fn certain_until(&self, epoch: Epoch) -> Option<Instant> {
        if self.is_alone() {
            return None;
        }
        let now = self.world.now();
        let is_certain = self.term(epoch).is_some_and(|term| term.is_certain(now));
        Some(if is_certain { self.opened_at + AGES } else { self.opened_at })
    }

    fn resign(&self, epoch: Epoch) -> BoxFuture<'_, ()> {
        async move {
            if self.term(epoch).is_some() {
                self.host.observe_resigned(epoch);
                self.give_up_term().await;
            }
        }
        .boxed()
    }

    fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.subscribe()
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").field("holder", &self.holder).finish_non_exhaustive()
    }
}

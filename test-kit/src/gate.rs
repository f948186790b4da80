//! The store of a test's coordinator: the memory store, with moments at which the coordinator dies.
//!
//! A death is no flag in the coordinator. The batch is stored or not, its answer never comes, and
//! the process around the engine is ended, as a process is that loses its power just then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use handfast_core::{Change, Epoch, GlobalState, Record};
use handfast_server::store::{MemoryStore, Store, StoreError};
use tokio::sync::mpsc::UnboundedSender;

/// The moment at which a coordinator dies.
///
/// ```
/// use handfast_test::{Death, Fault};
///
/// let fault = Fault::coordinator_dies(Death::AfterWrite(2));
/// # drop(fault);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Death {
    /// A global is being decided, and the decision is not stored: nothing of it remains.
    BeforeDecision,
    /// A decision is stored, and no answer and no phase-two call has left.
    AfterDecision,
    /// The n-th write from now on, counted from 1, is not stored.
    BeforeWrite(usize),
    /// The n-th write from now on, counted from 1, is stored, and nothing has left because of it.
    AfterWrite(usize),
}

/// A death to come.
#[derive(Debug)]
struct Planned {
    death: Death,
    writes: usize,
    struck: Arc<AtomicUsize>,
}

/// A store that survives its coordinators.
#[derive(Debug)]
pub(crate) struct Gate {
    store: MemoryStore,
    planned: Mutex<Vec<Planned>>,
    writes: AtomicUsize,
    deaths: UnboundedSender<()>,
}

enum Side {
    Before,
    After,
}

impl Gate {
    /// Makes an empty store that says when the coordinator has to die.
    pub(crate) fn new(deaths: UnboundedSender<()>) -> Self {
        let (planned, writes) = (Mutex::default(), AtomicUsize::new(0));
        Self { store: MemoryStore::new(), planned, writes, deaths }
    }

    /// Has the coordinator die at this moment, once.
    pub(crate) fn plan(&self, death: Death, struck: Arc<AtomicUsize>) {
        self.with_planned(|planned| planned.push(Planned { death, writes: 0, struck }));
    }

    /// Forgets the death that would have counted here.
    pub(crate) fn forget(&self, struck: &Arc<AtomicUsize>) {
        self.with_planned(|planned| planned.retain(|it| !Arc::ptr_eq(&it.struck, struck)));
    }

    /// Returns how many batches were to be stored so far.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    fn death(&self, batch: &[Change]) -> Option<Side> {
        let decides = batch.iter().any(is_decision);
        self.with_planned(|planned| {
            for it in planned.iter_mut() {
                it.writes += 1;
            }
            let due = planned.iter().position(|it| it.side(decides).is_some())?;
            let due = planned.remove(due);
            due.struck.fetch_add(1, Ordering::SeqCst);
            due.side(decides)
        })
    }

    fn with_planned<R>(&self, look: impl FnOnce(&mut Vec<Planned>) -> R) -> R {
        look(&mut self.planned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Planned {
    fn side(&self, decides: bool) -> Option<Side> {
        match self.death {
            Death::BeforeDecision => decides.then_some(Side::Before),
            Death::AfterDecision => decides.then_some(Side::After),
            Death::BeforeWrite(nth) => (self.writes == nth).then_some(Side::Before),
            Death::AfterWrite(nth) => (self.writes == nth).then_some(Side::After),
        }
    }
}

fn is_decision(change: &Change) -> bool {
    matches!(change, Change::Put(Record::Global(global)) if global.state != GlobalState::Active)
}

impl Store for Gate {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.store.lead(at_least)
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let death = self.death(&batch);
        async move {
            if !matches!(death, Some(Side::Before)) {
                self.store.commit(epoch, batch).await?;
            }
            if death.is_some() {
                // Without a receiver the test has ended.
                let _ = self.deaths.send(());
                return pending().await;
            }
            Ok(())
        }
        .boxed()
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.confirm(epoch)
    }
}

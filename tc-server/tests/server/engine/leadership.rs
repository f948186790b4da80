//! The life of an engine on a store that others can lead: it follows, leads, is certain for a
//! while, and gives the lead up.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, pending};
use handfast_core::{Change, Command, Epoch, Record, Reply};
use handfast_server::clock::WallClock;
use handfast_server::engine::{Engine, EngineError, Leadership, Settings};
use handfast_server::store::{CoordinatorNode, Leader, MemoryStore, Store, StoreError};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

use super::{RecordedEffects, begin, begin_request, register, start};

/// Longer than an engine needs to stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store in memory that another node may lead, and whose lead the test may cast doubt on.
#[derive(Debug)]
pub(super) struct SharedStore {
    memory: MemoryStore,
    pub(super) leader: watch::Sender<Leader>,
    certain_until: Option<Instant>,
    /// A confirmation takes one permit.
    confirmations: Semaphore,
    confirming: Notify,
    /// The changes of each batch, and what came after them.
    log: Mutex<Vec<String>>,
}

impl SharedStore {
    pub(super) fn new(leader: Leader, certain_until: Option<Instant>) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryStore::new(),
            leader: watch::Sender::new(leader),
            certain_until,
            confirmations: Semaphore::new(0),
            confirming: Notify::new(),
            log: Mutex::default(),
        })
    }

    fn note(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }
}

impl Store for SharedStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        async move {
            let mut leader = self.leader.subscribe();
            leader.wait_for(|leader| *leader == Leader::Here).await.unwrap();
            self.memory.lead(at_least).await
        }
        .boxed()
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.note(format!("{} changes", batch.len()));
        self.memory.commit(epoch, batch)
    }

    fn confirm(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.confirming.notify_one();
            self.confirmations.acquire().await.unwrap().forget();
            self.memory.confirm(epoch).await
        }
        .boxed()
    }

    fn lost(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    /// As stores do, says the present when the time has passed. Regression: an engine that had
    /// looked at the clock before took that for a time to come, and answered a begin in doubt.
    fn certain_until(&self, _epoch: Epoch) -> Option<Instant> {
        self.certain_until.map(|until| until.max(Instant::now()))
    }

    fn resign(&self, _epoch: Epoch) -> BoxFuture<'_, ()> {
        async { self.note("resigned".to_owned()) }.boxed()
    }

    fn leader(&self) -> watch::Receiver<Leader> {
        self.leader.subscribe()
    }
}

pub(super) fn launch(store: &Arc<SharedStore>) -> Engine {
    let store: Arc<dyn Store> = Arc::<SharedStore>::clone(store);
    let clock = Arc::new(WallClock::start());
    Engine::launch(store, clock, Settings::new("tc"), Arc::<RecordedEffects>::default())
}

pub(super) fn elsewhere() -> Leader {
    let node = CoordinatorNode {
        id: "two".to_owned(),
        version: "1".to_owned(),
        grpc: "tc-2:7091".to_owned(),
        admin: "tc-2:7092".to_owned(),
        seata: None,
    };
    Leader::Elsewhere { epoch: Epoch(7), node }
}

pub(super) async fn until(engine: &mut Engine, wanted: impl Fn(&Leadership) -> bool) {
    engine.leadership.wait_for(wanted).await.unwrap();
}

#[tokio::test]
async fn an_engine_that_follows_answers_at_once_that_it_does() {
    let store = SharedStore::new(elsewhere(), None);
    let mut engine = launch(&store);
    until(&mut engine, |it| it.leader_elsewhere().is_some()).await;
    assert_eq!(*engine.leadership.borrow(), Leadership::Following(elsewhere()));
    assert_eq!(engine.handle.call(begin_request()).await, Err(EngineError::NotLeading));
    store.leader.send_replace(Leader::Unknown);
    until(&mut engine, |it| *it == Leadership::Following(Leader::Unknown)).await;
    store.leader.send_replace(Leader::Here);
    engine.until_leading().await.unwrap();
    begin(&engine.handle).await;
}

/// Regression: a stop was not heard by an engine that waited for the lead.
#[tokio::test]
async fn an_engine_that_follows_can_be_stopped() {
    let store = SharedStore::new(elsewhere(), None);
    let engine = launch(&store);
    engine.handle.stop();
    let ended = timeout(PATIENCE, engine.ended).await.expect("it hears of the stop");
    ended.unwrap().unwrap();
    assert_eq!(*engine.leadership.borrow(), Leadership::Ended);
    assert_eq!(*store.log.lock().unwrap(), Vec::<String>::new(), "there was no lead to resign");
}

/// Another node may lead by then, which would know nothing of the global.
#[tokio::test]
async fn a_begin_waits_for_a_confirmation_once_the_lead_is_uncertain() {
    let store = SharedStore::new(Leader::Here, Some(Instant::now()));
    let mut engine = launch(&store);
    engine.until_leading().await.unwrap();
    let mut begun = std::pin::pin!(begin(&engine.handle));
    tokio::select! {
        biased;
        xid = &mut begun => panic!("{xid} is begun by a node that may not lead"),
        () = store.confirming.notified() => {}
    }
    store.confirmations.add_permits(1);
    begun.await;
}

#[tokio::test]
async fn a_stop_stores_what_is_begun_and_then_resigns() {
    let store = SharedStore::new(Leader::Here, None);
    let mut engine = launch(&store);
    engine.until_leading().await.unwrap();
    let xids = [begin(&engine.handle).await, begin(&engine.handle).await];
    engine.handle.stop();
    engine.ended.await.unwrap().unwrap();
    assert_eq!(*store.log.lock().unwrap(), ["2 changes", "resigned"]);
    let mut next = launch(&store);
    next.until_leading().await.unwrap();
    for (xid, branch) in xids.into_iter().zip(1..) {
        let registered = next.handle.call(register(xid, branch)).await;
        assert!(matches!(registered, Ok(Reply::Registered { .. })), "{registered:?}");
    }
}

/// Messages of shared stores have limits, and one batch must not hold more than a few of the
/// largest requests.
#[tokio::test]
async fn a_batch_ends_when_it_has_bytes_enough() {
    let store = SharedStore::new(Leader::Here, None);
    let (engine, _) = start(Arc::<SharedStore>::clone(&store), Settings::new("tc")).await;
    let xid = begin(&engine.handle).await;
    let requests = (1..=64).map(|branch| {
        let Command::RegisterBranch { xid, mut branch, wait } = register(xid, branch) else {
            unreachable!("it registers");
        };
        branch.application_data = vec![0; 64 << 10].into();
        let engine = engine.handle.clone();
        async move { engine.call(Command::RegisterBranch { xid, branch, wait }).await }
    });
    for registered in futures::future::join_all(requests).await {
        assert!(matches!(registered, Ok(Reply::Registered { .. })), "{registered:?}");
    }
    let log = store.log.lock().unwrap();
    let changes = |line: &String| line.split_once(' ').unwrap().0.parse::<usize>().unwrap();
    // The global is stored with the first.
    assert_eq!(log.iter().map(changes).sum::<usize>(), 65, "{log:?}");
    assert!(log.iter().all(|line| changes(line) <= 17), "{log:?}");
}

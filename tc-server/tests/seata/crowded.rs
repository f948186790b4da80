//! Requests that meet a coordinator whose queue is full, or follow too many on their connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use handfast_core::{
    BranchId, Change, Command, Epoch, Holding, LockWait, Mode, NewBranch, Record, Xid, XidText,
};
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{GlobalReport, GlobalStatusAnswer, MergedWarp, Message};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};
use handfast_server::accept::Acceptor;
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{self, Engine, EngineError, EngineHandle, EngineResult, Leadership};
use handfast_server::seata;
use handfast_server::store::{MemoryStore, Store, StoreError};
use handfast_server::turned_away::PortName;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, PATIENCE, branch, end, report, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

const MEANWHILE: Duration = Duration::from_millis(20);

/// A store that writes while the test does not hold it.
#[derive(Debug)]
struct HeldStore {
    memory: MemoryStore,
    open: Arc<Semaphore>,
}

impl Store for HeldStore {
    fn lead(&self, at_least: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        self.memory.lead(at_least)
    }

    fn commit(&self, epoch: Epoch, batch: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let _open = self.open.acquire().await.expect("the semaphore is never closed");
            self.memory.commit(epoch, batch).await
        }
        .boxed()
    }
}

/// A coordinator with room for one request beside two batches of one request each.
struct Small {
    address: SocketAddr,
    engine: EngineHandle,
    leadership: watch::Receiver<Leadership>,
    dispatcher: Dispatcher,
    store: Arc<Semaphore>,
}

impl Small {
    async fn start(phase_two_wait: Duration) -> Self {
        let open = Arc::new(Semaphore::new(1));
        let store = HeldStore { memory: MemoryStore::new(), open: Arc::clone(&open) };
        let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
        let settings = dispatch::Settings::default();
        let (dispatcher, _timer) = Dispatcher::start(Arc::clone(&clock), settings, 1);
        let settings =
            engine::Settings { queue_max: 1, batch_max: 1, ..engine::Settings::new("tc:8091") };
        let phase_two = Arc::new(dispatcher.clone());
        let engine = Engine::start(Arc::new(store), clock, settings, phase_two).await.unwrap();
        let (engine, leadership) = (engine.handle, engine.leadership);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut small = Self { address, engine, leadership, dispatcher, store: open };
        let settings = seata::Settings { phase_two_wait, ..seata::Settings::default() };
        small.address = small.open_port(settings).await;
        small
    }

    /// Opens a port for clients, and returns its address.
    async fn open_port(&self, settings: seata::Settings) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (leadership, dispatcher) = (self.leadership.clone(), self.dispatcher.clone());
        let engine = self.engine.clone();
        let front = seata::SeataFrontend::new(engine, leadership, dispatcher, settings, None);
        let acceptor = Acceptor::new(listener, 16, PortName::Seata);
        tokio::spawn(front.serve(acceptor, CancellationToken::new()));
        address
    }

    async fn client(&self, version: &str) -> Client {
        let mut client = Client::connect_to(self.address, version).await;
        client.register_rm(DATABASE).await.outcome.unwrap();
        client
    }

    /// Sends requests until there is no room, beginning with one that must be written.
    async fn crowd(&self, write: Command) -> FuturesUnordered<BoxFuture<'static, EngineResult>> {
        let mut asking = FuturesUnordered::new();
        let (mut command, mut refused) = (write, 0);
        // Requests that the engine has not taken yet count for the limit too.
        while refused < 100 {
            let engine = self.engine.clone();
            let asked = std::mem::replace(&mut command, Command::GetStatus { xid: Xid(1) });
            asking.push(async move { engine.call(asked).await }.boxed());
            let answered = asking.next().now_or_never();
            refused += usize::from(matches!(answered, Some(Some(Err(EngineError::Busy)))));
            tokio::task::yield_now().await;
        }
        asking
    }
}

/// Returns a request that makes the engine write.
fn registration(xid: &str) -> Command {
    let branch = NewBranch {
        id: BranchId(7),
        resource: "r".into(),
        mode: Mode::At,
        rows: Vec::new(),
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    Command::RegisterBranch { xid: XidText::parse(xid).unwrap().xid, branch, wait }
}

fn standing(answer: Message) -> GlobalStatusAnswer {
    let (Message::GlobalCommitResult(standing)
    | Message::GlobalRollbackResult(standing)
    | Message::GlobalStatusResult(standing)
    | Message::GlobalReportResult(standing)) = answer
    else {
        panic!("another answer")
    };
    standing
}

/// A client takes nearly every answer to a commit for "committed", so a commit cannot be refused.
/// Other requests can, and are refused at once.
#[tokio::test]
async fn a_decision_waits_for_room_in_a_full_queue() {
    for phase_two_wait in [Duration::ZERO, Duration::from_secs(10)] {
        let small = Small::start(phase_two_wait).await;
        let mut client = small.client("2.3.0").await;
        let (kept, undone) = (client.begin(60_000).await, client.begin(60_000).await);
        let (other, saga) = (client.begin(60_000).await, client.begin_named("$Saga_x", 60_000));
        let saga = saga.await.xid;
        client.branch(&kept, DATABASE, "t:1").await;
        let held = small.store.acquire().await.unwrap();
        let _asking = small.crowd(registration(&other)).await;
        let (extra_data, word) = (String::new(), Some(GlobalStatus::Committed));
        let saga_ended = GlobalReport { xid: saga.clone(), extra_data, status: word };
        let mut ids = Vec::new();
        for request in [
            Message::GlobalCommit(end(&kept)),
            Message::GlobalRollback(end(&undone)),
            Message::GlobalStatus(end(&other)),
            Message::GlobalReport(saga_ended),
        ] {
            ids.push(client.send(&request, MessageKind::Request).await);
        }
        refused_at_once(&mut client, &other).await;
        // Long enough for the wait for phase two to end if it is zero.
        let early = timeout(MEANWHILE, client.read()).await;
        assert!(early.is_err(), "{early:?} before there was room");
        drop(held);
        let mut told = Vec::new();
        for id in ids {
            let answer = timeout(PATIENCE, client.answer_to(id)).await.expect("it is not answered");
            told.push(standing(answer));
        }
        assert!(told.iter().all(|it| it.result.is_ok()), "{told:?}");
        // If the wait for phase two is zero, the answer is that phase two takes longer.
        let committed = [GlobalStatus::Committed, GlobalStatus::CommitRetrying];
        assert!(committed.contains(&told[0].status), "{told:?}");
        let told: Vec<_> = told[1..].iter().map(|it| it.status).collect();
        let expected = [GlobalStatus::Rollbacked, GlobalStatus::Begin, GlobalStatus::Committed];
        assert_eq!(told, expected);
        assert_eq!(client.status(&saga).await, GlobalStatus::Committed);
    }
}

/// Checks the answers to the other requests while there is no room.
async fn refused_at_once(client: &mut Client, xid: &str) {
    let begun = client.begin_named("buy", 60_000).await;
    assert_eq!(begun.result.unwrap_err().code, ExceptionCode::BeginFailed);
    let register = branch(xid, BranchType::At, DATABASE, "t:2");
    let registered = client.register_branch(register.clone()).await;
    assert_eq!(registered.result.unwrap_err().code, ExceptionCode::BranchRegisterFailed);
    let reported = client.report(report(xid, 7, BranchStatus::PhaseOneFailed, "")).await;
    assert_eq!(reported.unwrap_err().code, ExceptionCode::BranchReportFailed);
    let queried = client.ask(Message::GlobalLockQuery(register)).await;
    let Message::GlobalLockQueryResult(queried) = queried else { panic!("another answer") };
    assert_eq!(queried.result.unwrap_err().code, ExceptionCode::LockableCheckFailed);
}

/// A decision, whose outcome is unknown then, gets no answer. Every other request gets a failure.
#[tokio::test]
async fn requests_to_a_stopped_coordinator_are_answered() {
    let small = Small::start(Duration::from_secs(10)).await;
    let mut client = small.client("2.3.0").await;
    let xid = client.begin(60_000).await;
    small.engine.stop();
    refused_at_once(&mut client, &xid).await;
    let (extra_data, status) = (String::new(), Some(GlobalStatus::Rollbacked));
    let report = GlobalReport { xid: xid.clone(), extra_data, status };
    for request in [Message::GlobalStatus(end(&xid)), Message::GlobalReport(report)] {
        let told = timeout(PATIENCE, client.ask(request)).await.expect("it is not answered");
        let told = standing(told);
        assert_eq!(told.status, GlobalStatus::UnKnown);
        told.result.unwrap_err();
    }
}

/// The answers to other parts are not lost with that of a part whose outcome is unknown.
#[tokio::test]
async fn a_merged_decision_without_answer_spares_the_others() {
    let small = Small::start(Duration::from_secs(10)).await;
    let mut old = small.client("2.2.0").await;
    let xid = old.begin(60_000).await;
    small.engine.stop();
    let query = branch(&xid, BranchType::At, DATABASE, "t:1");
    let parts = vec![
        Message::GlobalLockQuery(query),
        Message::GlobalCommit(end(&xid)),
        Message::GlobalStatus(end(&xid)),
    ];
    let merged = MergedWarp { parts, ids: vec![70, 80, 90] };
    old.send(&Message::MergedWarp(merged), MessageKind::OneWay).await;
    let queried = timeout(PATIENCE, old.answer_to(70)).await.expect("it is not answered");
    let Message::GlobalLockQueryResult(queried) = queried else { panic!("another answer") };
    assert_eq!(queried.result.unwrap_err().code, ExceptionCode::LockableCheckFailed);
    let told = timeout(PATIENCE, old.answer_to(90)).await.expect("it is not answered");
    assert_eq!(standing(told).status, GlobalStatus::UnKnown);
    assert!(!old.has_come(80), "nearly every answer means that it is committed");
}

/// Regression: a coordinator that was busy when the time came left them for a whole period.
#[tokio::test]
async fn undo_logs_are_deleted_once_there_is_room() {
    let small = Small::start(Duration::ZERO).await;
    let mut client = small.client("2.3.0").await;
    let xid = client.begin(60_000).await;
    let held = small.store.acquire().await.unwrap();
    let _asking = small.crowd(registration(&xid)).await;
    let (delay, period) = (Duration::from_millis(1), Duration::from_secs(3_600));
    let undo_logs = seata::UndoLogs { save_days: 7, delay, period };
    let settings = seata::Settings { undo_logs, ..seata::Settings::default() };
    let mut deleter = Client::connect_to(small.open_port(settings).await, "2.3.0").await;
    deleter.register_rm(DATABASE).await.outcome.unwrap();
    let early = timeout(MEANWHILE, deleter.read()).await;
    assert!(early.is_err(), "{early:?} before there was room");
    drop(held);
    let asked = timeout(PATIENCE, deleter.read()).await.expect("it is not asked").unwrap();
    assert!(matches!(asked.message, Message::UndoLogDelete(_)), "{asked:?}");
}

/// The first request waits for an answer that comes behind the second request.
#[tokio::test]
async fn an_answer_is_read_behind_an_excess_request() {
    let server = start_with(|seata| {
        (seata.requests_max, seata.phase_two_wait_ms) = (1, 600_000);
    });
    let server = server.await;
    let mut client = Client::rm(&server, "2.3.0", "deduct").await;
    let (mut xids, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let xid = client.begin(60_000).await;
        let action = branch(&xid, BranchType::Tcc, "deduct", "");
        client.register_branch(action).await.result.unwrap();
        xids.push(xid);
    }
    for xid in &xids {
        ids.push(client.send(&Message::GlobalCommit(end(xid)), MessageKind::Request).await);
    }
    for id in &ids[1..] {
        let told = timeout(PATIENCE, client.answer_to(*id)).await.expect("it is not answered");
        assert_eq!(standing(told).status, GlobalStatus::CommitRetrying, "it does not wait");
    }
    for _ in 0..3 {
        client.carry_out_commit().await;
    }
    let told = timeout(PATIENCE, client.answer_to(ids[0])).await.expect("it is not answered");
    assert_eq!(standing(told).status, GlobalStatus::Committed);
    for xid in &xids {
        client.reaches(xid, GlobalStatus::Committed).await;
    }
}

/// The commit behind the first request releases the lock that it waits for. A request that needs
/// the lock meanwhile is refused at once.
#[tokio::test]
async fn a_commit_is_read_behind_a_registration_that_waits_for_it() {
    let server = start_with(|seata| (seata.requests_max, seata.lock_wait_ms) = (1, 600_000));
    let server = server.await;
    let mut client = Client::rm(&server, "2.3.0", DATABASE).await;
    let (holder, next) = (client.begin(60_000).await, client.begin(60_000).await);
    client.branch(&holder, DATABASE, "t:1").await;
    let wanted = branch(&next, BranchType::At, DATABASE, "t:1");
    let waits = client.send(&Message::BranchRegister(wanted.clone()), MessageKind::Request).await;
    let late = timeout(PATIENCE, client.register_branch(wanted)).await.expect("no answer");
    assert_eq!(late.result.unwrap_err().code, ExceptionCode::LockKeyConflict);
    assert_eq!(client.commit(&holder).await, GlobalStatus::CommitRetrying, "it is decided");
    let granted = timeout(PATIENCE, client.answer_to(waits)).await.expect("it is not answered");
    let Message::BranchRegisterResult(granted) = granted else { panic!("another answer") };
    granted.result.unwrap();
}

/// Regression: a merged request counted as one, however many requests it had.
#[tokio::test]
async fn each_part_of_a_merged_request_counts() {
    let server = start_with(|seata| (seata.requests_max, seata.lock_wait_ms) = (2, 600_000));
    let server = server.await;
    let mut old = Client::rm(&server, "2.2.0", DATABASE).await;
    let (holder, next) = (old.begin(60_000).await, old.begin(60_000).await);
    old.branch(&holder, DATABASE, "t:1").await;
    old.branch(&holder, DATABASE, "t:2").await;
    let wanted = |key| branch(&next, BranchType::At, DATABASE, key);
    let parts = ["t:1", "t:2"].map(|key| Message::BranchRegister(wanted(key))).to_vec();
    let merged = Message::MergedWarp(MergedWarp { parts, ids: vec![70, 80] });
    let waits = old.send(&merged, MessageKind::OneWay).await;
    let late = timeout(PATIENCE, old.register_branch(wanted("t:1"))).await;
    let late = late.expect("it waits").result;
    assert_eq!(late.unwrap_err().code, ExceptionCode::LockKeyConflict);
    old.commit(&holder).await;
    let granted = timeout(PATIENCE, old.answer_to(waits)).await.expect("it is not answered");
    let Message::MergeResult(granted) = granted else { panic!("another answer") };
    for granted in granted.parts {
        let Message::BranchRegisterResult(granted) = granted else { panic!("another answer") };
        granted.result.unwrap();
    }
}

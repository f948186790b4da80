//! A store that hangs: an operator's views meanwhile and afterwards.

use std::sync::{Arc, Weak};

use axum::body::{Body, to_bytes};
use futures::future::{BoxFuture, FutureExt as _, pending, ready};
use handfast_core::{
    BranchId, Change, Command, Epoch, Holding, Labels, LoanTerms, LockWait, Mode, NewBranch,
    Record, Reply, Xid,
};
use handfast_server::admin::{self, About, AdminState, Readiness};
use handfast_server::audit::AuditLog;
use handfast_server::clock::{Clock as _, WallClock};
use handfast_server::config::AdminConfig;
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{Engine, EngineHandle, Settings};
use handfast_server::security::{Access, CookieSeal};
use handfast_server::store::{
    CoordinatorNode, MemoryStore, RecordSnapshot, RecordSource, Store, StoreError,
};
use handfast_test_services::until;
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// A store that never completes a write.
#[derive(Debug)]
struct HangingStore;

impl Store for HangingStore {
    fn lead(&self, _: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        ready(Ok((Epoch(1), Vec::new()))).boxed()
    }

    fn commit(&self, _: Epoch, _: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        pending().boxed()
    }
}

/// A store that writes when the test permits it.
#[derive(Debug, Default)]
struct SlowStore {
    asked: Notify,
    let_go: Notify,
}

impl Store for SlowStore {
    fn lead(&self, _: Epoch) -> BoxFuture<'_, Result<(Epoch, Vec<Record>), StoreError>> {
        ready(Ok((Epoch(1), Vec::new()))).boxed()
    }

    fn commit(&self, _: Epoch, _: Vec<Change>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.asked.notify_one();
        self.let_go.notified().map(Ok).boxed()
    }
}

/// Records that are read when the test permits it.
#[derive(Debug, Default)]
struct SlowRecords {
    asked: Notify,
    let_go: Notify,
}

impl RecordSource for SlowRecords {
    fn snapshot(&self) -> BoxFuture<'_, Result<RecordSnapshot, StoreError>> {
        self.asked.notify_one();
        self.let_go.notified().map(|()| Err(StoreError::LostLeadership)).boxed()
    }
}

async fn start(
    store: Arc<dyn Store>,
    settings: Settings,
    audit: AuditLog,
) -> (EngineHandle, axum::Router) {
    start_on(store, Weak::<MemoryStore>::new(), settings, audit).await
}

async fn start_on(
    store: Arc<dyn Store>,
    records: Weak<dyn RecordSource>,
    settings: Settings,
    audit: AuditLog,
) -> (EngineHandle, axum::Router) {
    let clock = Arc::new(WallClock::start());
    let dispatch = dispatch::Settings::default();
    let (dispatcher, _timer) = Dispatcher::start(Arc::<WallClock>::clone(&clock), dispatch, 1);
    let phase_two = Arc::new(dispatcher.clone());
    let engine = Engine::start(store, Arc::<WallClock>::clone(&clock), settings, phase_two);
    let Engine { handle, leadership, .. } = engine.await.unwrap();
    let (store, advertised_address) = ("hanging", "tc".to_owned());
    let node = CoordinatorNode {
        id: "tc".to_owned(),
        version: "0".to_owned(),
        grpc: "127.0.0.1:7091".to_owned(),
        admin: "127.0.0.1:7092".to_owned(),
        seata: None,
    };
    let (started_at, seata, peers) = (clock.now(), None, None);
    let about = About {
        node,
        store,
        records,
        advertised_address,
        started_at,
        seata,
        peers,
        is_encrypted: false,
    };
    let doors = (Access::Open, audit, CookieSeal::draw());
    let config = AdminConfig { request_timeout_ms: 3_600_000, ..AdminConfig::default() };
    let readiness = Readiness::new(leadership);
    let state = AdminState::new(handle.clone(), dispatcher, clock, doors, readiness, config, about);
    (handle, admin::router(state))
}

async fn begin(engine: &EngineHandle) -> Xid {
    let begin = Command::Begin {
        application: "a".into(),
        name: "place-order".into(),
        timeout_ms: None,
        labels: Labels::NONE,
        key: None,
        loan: LoanTerms::default(),
    };
    let Ok(Reply::Begun { xid, .. }) = engine.call(begin).await else { panic!("not begun") };
    xid
}

/// Registers a branch, which no store acknowledges.
async fn register(engine: &EngineHandle) {
    let xid = begin(engine).await;
    let branch = NewBranch {
        id: BranchId(1),
        resource: "sqlite:stock".into(),
        mode: Mode::At,
        rows: Vec::new(),
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    engine.notify(vec![Command::RegisterBranch { xid, branch, wait }]).await.unwrap();
}

async fn scrape(admin: &axum::Router) -> String {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = admin.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

// Metrics that hang with the store cannot show that it hangs.
#[tokio::test]
async fn metrics_are_answered_while_the_store_hangs() {
    let (engine, admin) =
        start(Arc::new(HangingStore), Settings::new("tc"), AuditLog::to_log()).await;
    let told = tokio::spawn(async move { register(&engine).await });
    // The first scrapes may come before the batch that hangs.
    let is_stuck = async || scrape(&admin).await.contains("\nhandfast_answering 0\n");
    until("the batch hangs", is_stuck).await;
    told.abort();
}

// Regression: a busy coordinator looked like one that had lost its lead.
#[tokio::test]
async fn a_busy_coordinator_counts_as_leading() {
    let settings = Settings { queue_max: 1, ..Settings::new("tc") };
    let (engine, admin) = start(Arc::new(HangingStore), settings, AuditLog::to_log()).await;
    assert!(scrape(&admin).await.contains("\nhandfast_leading 1\n"));
    loop {
        // The engine runs on this thread, so that the queue is full when the scrape begins.
        while engine.notify(vec![Command::Tick]).now_or_never().is_some() {}
        let metrics = scrape(&admin).await;
        assert!(metrics.contains("\nhandfast_leading 1\n"), "{metrics}");
        // Other tests of this process share the gauges.
        if metrics.contains("\nhandfast_answering 0\n") {
            break;
        }
    }
}

// Regression: an executed decision was answered, and recorded, as refused.
#[tokio::test]
async fn an_executed_action_is_answered_during_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = AuditLog::open(&path).unwrap();
    let store = Arc::new(SlowStore::default());
    let (engine, admin) = start(Arc::<SlowStore>::clone(&store), Settings::new("tc"), audit).await;
    let Xid(number) = begin(&engine).await;
    let request = Request::post(format!("/api/v1/transactions/{number}/commit"));
    let asked = tokio::spawn(admin.oneshot(request.body(Body::empty()).unwrap()));
    store.asked.notified().await;
    engine.stop();
    store.let_go.notify_one();
    let response = asked.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(body, format!(r#"{{"xid":"tc:{number}","status":"committed"}}"#));
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert!(recorded.lines().next_back().unwrap().contains(r#""outcome":"done""#), "{recorded}");
}

// Regression: the audit log had no outcome of a backup whose client had gone.
#[tokio::test]
async fn the_outcome_of_a_backup_is_recorded_without_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let audit = AuditLog::open(&path).unwrap();
    let records = Arc::new(SlowRecords::default());
    let source: Arc<dyn RecordSource> = Arc::<SlowRecords>::clone(&records);
    let (store, settings) = (Arc::new(MemoryStore::new()), Settings::new("tc"));
    let (_engine, admin) = start_on(store, Arc::downgrade(&source), settings, audit).await;
    let request = Request::post("/api/v1/backup").body(Body::empty()).unwrap();
    let asked = tokio::spawn(admin.oneshot(request));
    records.asked.notified().await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    records.let_go.notify_one();
    let recorded = || std::fs::read_to_string(&path).unwrap();
    let answered = async || recorded().contains(r#""stage":"answered""#);
    until("the answer is recorded", answered).await;
}

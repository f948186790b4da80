//! A store that hangs: what an operator sees meanwhile.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use futures::future::{BoxFuture, FutureExt as _, pending, ready};
use handfast_core::{
    BranchId, Change, Epoch, Holding, LockWait, Mode, NewBranch, Record, Reply, What,
};
use handfast_server::admin::{self, About, AdminState, Readiness};
use handfast_server::audit::AuditLog;
use handfast_server::clock::{Clock as _, WallClock};
use handfast_server::config::AdminConfig;
use handfast_server::dispatch::{self, Dispatcher};
use handfast_server::engine::{Engine, EngineHandle, Settings};
use handfast_server::security::Access;
use handfast_server::store::{Store, StoreError};
use http::{Request, StatusCode};
use tower::ServiceExt as _;

/// Nothing is ever written.
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

async fn start() -> (EngineHandle, axum::Router) {
    let clock = Arc::new(WallClock::start());
    let settings = dispatch::Settings::default();
    let (dispatcher, _timer) = Dispatcher::start(Arc::<WallClock>::clone(&clock), settings, 1);
    let phase_two = Arc::new(dispatcher.clone());
    let store = Arc::new(HangingStore);
    let engine =
        Engine::start(store, Arc::<WallClock>::clone(&clock), Settings::new("tc"), phase_two);
    let Engine { handle, standing, .. } = engine.await.unwrap();
    let (store, advertised_address) = ("hanging", "tc".to_owned());
    let about = About { store, advertised_address, started_at: clock.now(), seata: None };
    let doors = (Access::Open, AuditLog::to_log());
    let config = AdminConfig { request_timeout_ms: 3_600_000, ..AdminConfig::default() };
    let readiness = Readiness::new(standing);
    let state = AdminState::new(handle.clone(), dispatcher, clock, doors, readiness, config, about);
    (handle, admin::router(state))
}

/// Registers a branch, which no store acknowledges.
async fn register(engine: &EngineHandle) {
    let begin =
        What::Begin { application: "a".into(), name: "place-order".into(), timeout_ms: None };
    let Ok(Reply::Begun { xid, .. }) = engine.call(begin).await else { panic!("not begun") };
    let branch = NewBranch {
        id: BranchId(1),
        resource: "sqlite:stock".into(),
        mode: Mode::At,
        rows: Vec::new(),
        application_data: Box::default(),
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    engine.tell(vec![What::RegisterBranch { xid, branch, wait }]).await.unwrap();
}

// Metrics that hang with the store tell nobody that it hangs.
#[tokio::test]
async fn metrics_are_answered_while_the_store_hangs() {
    let (engine, admin) = start().await;
    let scrape = async || {
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = admin.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let told = tokio::spawn(async move { register(&engine).await });
    // The first scrapes may come before the batch that hangs.
    while !scrape().await.contains("\nhandfast_answering 0\n") {}
    told.abort();
}

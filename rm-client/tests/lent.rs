//! Begins that are not waited for, against a real coordinator: what their callers are told, and
//! what the coordinator knows, when answers are lost, the coordinator dies, or it refuses.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use at::bank::Bank;
use at::tc::{Tc, Wire};
use futures::FutureExt;
use handfast::propagation::{CarryXidLayer, XidMiddleware};
use handfast::{
    AtError, AtResource, Error, Global, GlobalStatus, Handfast, RollbackCause, RollbackReason,
    TransactionError, Xid,
};
use handfast_core::{Coordinator, GlobalFilter, Limits, PageBounds};
use handfast_server::embedded::{RunningServer, Server};
use handfast_test_services::until;
use sqlx::Sqlite;
use tokio::net::TcpListener;
use tower::{Service, ServiceExt};

const TAKE: &str = "UPDATE account SET cents = cents - 1 WHERE id = 1";
const ROLLED_BACK: GlobalStatus = GlobalStatus::RolledBack(RollbackReason::Requested);

async fn connect(endpoint: String) -> Handfast {
    let connect = Handfast::connect(endpoint).application("tests");
    connect.back_off(Duration::from_millis(1), Duration::from_millis(20)).await.unwrap()
}

/// Returns a process that has XIDs in stock.
async fn with_stock(endpoint: String) -> Handfast {
    let handfast = connect(endpoint).await;
    handfast.transaction("first").run(async |_tx| Ok::<_, Error>(())).await.unwrap();
    handfast
}

/// Begins a global without waiting for the coordinator, which is seen by it being away.
fn begin_ahead(handfast: &Handfast) -> Global {
    let begun = handfast.transaction("order").begin().now_or_never();
    begun.expect("no answer is waited for").unwrap()
}

/// Polls until the global has the expected status, which the coordinator reaches by itself.
async fn await_status(handfast: &Handfast, xid: &Xid, expected: GlobalStatus) {
    until("the global has the status", async || {
        handfast.outcome(xid).await.expect("it answers") == expected
    })
    .await;
}

async fn debit(resource: &AtResource<Sqlite>) -> Result<(), sqlx::Error> {
    sqlx::query(TAKE).execute(resource).await.map(drop)
}

async fn known(tc: &Tc) -> usize {
    let filter = GlobalFilter { is_unfinished: true, ..GlobalFilter::default() };
    let look = move |coordinator: &Coordinator| {
        coordinator.globals(&filter, None, PageBounds::NONE).items.len()
    };
    tc.engine().view(look).await.unwrap()
}

/// A list shows a transaction before anything was done in it.
#[tokio::test]
async fn the_coordinator_knows_a_global_from_its_begin_on() {
    let tc = Tc::start().await;
    let handfast = with_stock(tc.endpoint()).await;
    let global = begin_ahead(&handfast);
    until("it is listed", async || known(&tc).await == 1).await;
    assert_eq!(handfast.outcome(global.xid()).await.unwrap(), GlobalStatus::Active);
    global.commit().await.unwrap();
}

#[tokio::test]
async fn a_branch_and_the_commit_follow_a_begin_whose_answer_is_lost() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = with_stock(wire.endpoint()).await;
    let bank = Bank::<Sqlite>::new(&handfast).await;
    let resource = handfast.at(bank.pool.clone()).await.unwrap();
    wire.swallow_answers();
    let global = begin_ahead(&handfast);
    let xid = global.xid().clone();
    let branch = tokio::spawn(global.scope(async move { debit(&resource).await }));
    until("it is begun", async || known(&tc).await == 1).await;
    wire.mend();
    branch.await.unwrap().unwrap();
    global.commit().await.unwrap();
    await_status(&handfast, &xid, GlobalStatus::Committed).await;
    assert_eq!(bank.sum().await, 2_999);
}

/// The next coordinator has never heard of the XID. What follows the begin is sent behind it.
#[tokio::test]
async fn an_unanswered_begin_goes_to_the_next_coordinator() {
    let mut tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = with_stock(wire.endpoint()).await;
    let bank = Bank::<Sqlite>::new(&handfast).await;
    let resource = handfast.at(bank.pool.clone()).await.unwrap();
    wire.swallow_answers();
    let (committed, undone, dropped) =
        (begin_ahead(&handfast), begin_ahead(&handfast), begin_ahead(&handfast));
    let xids = [&committed, &undone, &dropped].map(|global| global.xid().clone());
    until("they are begun", async || known(&tc).await == 3).await;
    tc.kill().await;
    drop(dropped);
    tc.restart().await;
    wire.mend();
    committed.scope(debit(&resource)).await.unwrap();
    committed.commit().await.unwrap();
    undone.rollback("test").await.unwrap();
    let [committed, undone, dropped] = &xids;
    await_status(&handfast, committed, GlobalStatus::Committed).await;
    assert_eq!(handfast.outcome(undone).await.unwrap(), ROLLED_BACK);
    until("nothing is left open", async || known(&tc).await == 0).await;
    assert_eq!(handfast.outcome(dropped).await.unwrap(), ROLLED_BACK);
    assert_eq!(bank.sum().await, 2_999);
}

/// Otherwise it would stay open until its timeout.
#[tokio::test]
async fn a_global_that_is_dropped_before_its_begin_is_answered_is_rolled_back() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = with_stock(wire.endpoint()).await;
    wire.swallow_requests();
    let global = begin_ahead(&handfast);
    let xid = global.xid().clone();
    drop(global);
    let gone = handfast.transaction("gone").run(async |_tx| {
        std::future::pending::<()>().await;
        Ok::<_, Error>(())
    });
    assert!(tokio::time::timeout(Duration::from_millis(20), gone).await.is_err());
    wire.mend();
    await_status(&handfast, &xid, ROLLED_BACK).await;
    until("nothing is left open", async || known(&tc).await == 0).await;
}

/// Nothing was done, whatever the coordinator has heard.
#[tokio::test]
async fn a_commit_whose_begin_has_no_answer_is_not_begun() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let connect = Handfast::connect(wire.endpoint()).request_deadline(Duration::from_secs(2));
    let handfast = connect.await.unwrap();
    handfast.transaction("first").begin().await.unwrap().begun().await.unwrap();
    wire.swallow_answers();
    let global = begin_ahead(&handfast);
    let xid = global.xid().clone();
    let error = global.commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::NotBegun(_)), "{error:?}");
    assert_eq!(error.code(), "HF-TM-UNANSWERED");
    let asker = self::connect(tc.endpoint()).await;
    await_status(&asker, &xid, ROLLED_BACK).await;
}

const GLOBALS_MAX: usize = 8;

/// A coordinator at which there is room for few globals.
async fn of_few_globals() -> RunningServer {
    let all = 100;
    let limits = Limits {
        globals_max: GLOBALS_MAX,
        share_per_connection: all,
        share_per_application: all,
        ..Limits::default()
    };
    Server::builder().limits(limits).start().await.unwrap()
}

#[tokio::test]
async fn a_refused_begin_is_the_error_of_what_follows_it() {
    let server = of_few_globals().await;
    let handfast = with_stock(format!("http://{}", server.address())).await;
    let bank = Bank::<Sqlite>::new(&handfast).await;
    let resource = handfast.at(bank.pool.clone()).await.unwrap();
    let holder = connect(format!("http://{}", server.address())).await;
    let held = (0..GLOBALS_MAX).map(|_| holder.transaction("holder").begin());
    let held = futures::future::try_join_all(held).await.unwrap();
    futures::future::try_join_all(held.iter().map(Global::begun)).await.unwrap();
    let refused = |error: &sqlx::Error| AtError::of(error).map(|it| it.code().to_owned());

    let work = async |_tx| debit(&resource).await;
    let error = handfast.transaction("order").run(work).await.unwrap_err();
    let TransactionError::RolledBack { by: RollbackCause::Application(cause), .. } = &error else {
        unreachable!("{error:?}")
    };
    assert_eq!(refused(cause).as_deref(), Some("HF-TC-LIMIT-REACHED"));

    let error =
        handfast.transaction("order").run(async |_tx| Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, TransactionError::NotBegun(_)), "{error:?}");
    assert_eq!(error.code(), "HF-TC-LIMIT-REACHED");

    let global = handfast.transaction("order").begin().await.unwrap();
    assert_eq!(global.begun().await.unwrap_err().code(), "HF-TC-LIMIT-REACHED");
    let late = global.scope(debit(&resource)).await.unwrap_err();
    assert_eq!(refused(&late).as_deref(), Some("HF-TC-LIMIT-REACHED"));
    global.rollback("there is nothing").await.unwrap();

    futures::future::try_join_all(held.into_iter().map(Global::commit)).await.unwrap();
    handfast.transaction("order").run(work).await.unwrap();
    assert_eq!(bank.sum().await, 2_999);
}

/// A service that counts its calls, and how many of them carry an XID.
#[derive(Clone, Default)]
struct Counting {
    calls: Arc<AtomicUsize>,
}

impl Service<http::Request<()>> for Counting {
    type Response = ();
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<(), Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<()>) -> Self::Future {
        assert!(request.headers().contains_key("tx_xid"));
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(()))
    }
}

/// Another process must not meet an XID that the coordinator does not know.
#[tokio::test]
async fn the_xid_leaves_the_process_after_the_answer() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let handfast = with_stock(wire.endpoint()).await;
    let counting = Counting::default();
    let service =
        tower::ServiceBuilder::new().layer(CarryXidLayer::new()).service(counting.clone());
    let (asked, url) = count_requests().await;
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    let client = client.with(XidMiddleware::new()).build();

    wire.swallow_answers();
    let global = begin_ahead(&handfast);
    let xid = global.xid().clone();
    let by_tower = tokio::spawn(global.scope(service.oneshot(http::Request::new(()))));
    let by_http = tokio::spawn(global.scope(async move { client.get(url).send().await.map(drop) }));
    let by_hand = tokio::spawn(global.scope(handfast::begun_xid()));
    until("it is begun", async || known(&tc).await == 1).await;
    tokio::task::yield_now().await;
    assert!(!by_tower.is_finished() && !by_http.is_finished() && !by_hand.is_finished());
    assert_eq!((counting.calls.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)), (0, 0));
    wire.mend();
    by_tower.await.unwrap().unwrap();
    by_http.await.unwrap().unwrap();
    assert_eq!(by_hand.await.unwrap().unwrap(), Some(xid));
    assert_eq!((counting.calls.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)), (1, 1));
    global.commit().await.unwrap();
}

/// Returns the URL of a service that counts its calls.
async fn count_requests() -> (Arc<AtomicUsize>, String) {
    let asked = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&asked);
    let count = async move || counter.fetch_add(1, Ordering::SeqCst).to_string();
    let app = axum::Router::new().route("/", axum::routing::get(count));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (asked, format!("http://{address}/"))
}

/// A resource that was made over another connection asks the coordinator over that one.
#[tokio::test]
async fn a_branch_over_another_connection_comes_after_the_answer() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let (handfast, other) = (with_stock(wire.endpoint()).await, connect(tc.endpoint()).await);
    let bank = Bank::<Sqlite>::new(&other).await;
    let resource = other.at(bank.pool.clone()).await.unwrap();
    wire.swallow_requests();
    let global = begin_ahead(&handfast);
    let mut branch = tokio::spawn(global.scope(async move { debit(&resource).await }));
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut branch).await;
    assert!(waits.is_err(), "{waits:?}");
    wire.mend();
    branch.await.unwrap().unwrap();
    global.commit().await.unwrap();
    assert_eq!(bank.sum().await, 2_999);
}

/// Regression: a globally committed read was refused as about an unknown transaction.
#[tokio::test]
async fn a_read_over_another_connection_comes_after_the_answer() {
    let tc = Tc::start().await;
    let wire = Wire::to(tc.address()).await;
    let (handfast, other) = (with_stock(wire.endpoint()).await, connect(tc.endpoint()).await);
    let bank = Bank::<Sqlite>::new(&other).await;
    let resource = other.at(bank.pool.clone()).await.unwrap();
    wire.swallow_requests();
    let begun = handfast.transaction("order").read_committed().begin().now_or_never();
    let global = begun.expect("no answer is waited for").unwrap();
    let read = async move {
        let cents = "SELECT cents FROM account WHERE id = 1";
        sqlx::query_scalar::<_, i64>(cents).fetch_one(&resource).await
    };
    let mut read = tokio::spawn(global.scope(read));
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut read).await;
    assert!(waits.is_err(), "{waits:?}");
    wire.mend();
    assert_eq!(read.await.unwrap().unwrap(), 1_000);
    global.commit().await.unwrap();
}

/// More transactions at a time than there are XIDs in stock.
#[tokio::test]
async fn a_burst_beyond_the_stock_waits_for_answers() {
    let tc = Tc::start().await;
    let handfast = with_stock(tc.endpoint()).await;
    let globals = (0..500).map(|_| handfast.transaction("order").begin());
    let globals = futures::future::try_join_all(globals).await.unwrap();
    let mut xids: Vec<Xid> = globals.iter().map(|global| global.xid().clone()).collect();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), 500);
    let ended = futures::future::join_all(globals.into_iter().map(Global::commit)).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

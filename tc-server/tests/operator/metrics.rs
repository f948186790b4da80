//! Counters of what has happened, on a coordinator in a process of its own: tests of one process
//! share a recorder.

use handfast_proto::v1::Decision;
use handfast_server::admin::model::{SagaDetail, SagaReply, SagaStanding, Status};
use handfast_test_services::{until, until_some};
use http::{Method, StatusCode};
use serde_json::json;

use crate::application::{Application, registration};
use crate::port::Admin;
use crate::serving::Coordinator;

/// Returns the value of a series.
async fn value(admin: &Admin, series: &str) -> f64 {
    let (_, text) = admin.send(Method::GET, "/metrics", None).await;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
    line.unwrap_or_else(|| panic!("{series}: {text}")).parse().unwrap()
}

async fn start() -> (Coordinator, Admin) {
    let coordinator = Coordinator::start(&["--store", "memory"]);
    let admin = Admin::new(&format!("http://{}", coordinator.admin), None);
    (coordinator, admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn dirty_writes_and_repeated_calls_are_counted() {
    let (coordinator, admin) = start().await;
    let mut application = Application::connect(coordinator.grpc).await;
    let (dirty, retries) = ("handfast_dirty_writes_total", "handfast_phase_two_retries_total");
    assert_eq!((value(&admin, dirty).await, value(&admin, retries).await), (0.0, 0.0));
    let xid = application.refuse().await;
    admin.until(&xid, Status::NeedsOperator).await;
    assert_eq!((value(&admin, dirty).await, value(&admin, retries).await), (1.0, 0.0));
    admin.post(&format!("/api/v1/transactions/{xid}/retry"), None).await;
    application.refuse_again().await;
    until("it is refused again", async || admin.show(&xid).await.branches[0].attempts >= 2).await;
    assert_eq!((value(&admin, dirty).await, value(&admin, retries).await), (2.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_counted_once() {
    let (coordinator, admin) = start().await;
    let mut application = Application::connect(coordinator.grpc).await;
    let (one, other) = (application.begin("one").await, application.begin("other").await);
    application.register(&one, 1, "1:a").await.unwrap();
    application.register(&other, 2, "1:b").await.unwrap();
    let mut client = application.client.clone();
    let request = registration(&one, 3, "1:b", 60_000);
    let waiting = tokio::spawn(async move { client.register_branch(request).await });
    until("it waits", async || value(&admin, "handfast_waiters").await > 0.0).await;
    let request = registration(&other, 4, "1:a", 60_000);
    let refused = application.client.register_branch(request).await.unwrap_err();
    assert_eq!(refused.metadata().get("handfast-code").unwrap(), "HF-TC-DEADLOCK");
    assert_eq!(value(&admin, "handfast_deadlocks_total").await, 1.0);
    application.end(&other, Decision::Commit).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(value(&admin, "handfast_deadlocks_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sagas_are_counted_apart_by_outcome_and_cause() {
    let (coordinator, admin) = start().await;
    let step = json!({"name": "a", "kind": "compensable", "resource": "stock", "action": "a"});
    let wait = json!({"name": "yes", "kind": "signal"});
    let start = async |key: &str| {
        let saga = json!({"name": "s", "steps": [step, wait]});
        let body = json!({"key": key, "saga": saga}).to_string();
        let (status, body) = admin.post("/api/v1/sagas", Some(&body)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str::<SagaReply>(&body).unwrap().xid
    };
    let ended = async |xid: &str, status: SagaStanding| {
        until_some("the saga has ended", async || {
            let detail: SagaDetail = admin.get(&format!("/api/v1/sagas/{xid}")).await;
            (detail.saga.status == status).then_some(())
        })
        .await;
    };
    let mut stock = Application::connect_for_sagas(coordinator.grpc, &["stock"]).await;
    stock.begin("place-order").await;
    let completed = start("1").await;
    assert_eq!(value(&admin, r#"handfast_sagas{state="running"}"#).await, 1.0);
    assert_eq!(value(&admin, r#"handfast_globals{state="active"}"#).await, 2.0);
    stock.finish().await;
    let signal = format!("/api/v1/sagas/{completed}/signal");
    admin.post(&signal, Some(r#"{"signal": "yes"}"#)).await;
    ended(&completed, SagaStanding::Completed).await;
    let refused = start("2").await;
    stock.refuse_step("no").await;
    stock.finish().await;
    ended(&refused, SagaStanding::Compensated).await;
    let of_sagas =
        async |labels: &str| value(&admin, &format!("handfast_sagas_total{{{labels}}}")).await;
    assert_eq!(of_sagas(r#"outcome="completed",cause="""#).await, 1.0);
    assert_eq!(of_sagas(r#"outcome="compensated",cause="refused""#).await, 1.0);
    assert_eq!(of_sagas(r#"outcome="compensated",cause="operator""#).await, 0.0);
    assert_eq!(value(&admin, r#"handfast_sagas{state="running"}"#).await, 0.0);
    let globals = value(&admin, r#"handfast_globals_total{outcome="committed",reason=""}"#).await;
    assert_eq!(globals, 0.0, "sagas are not counted among transactions");
    assert_eq!(value(&admin, "handfast_processes").await, 1.0);
    let build = format!("handfast_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&admin, &build).await, 1.0);
}

//! Events of branches: they are published when the global has committed, and never otherwise.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use handfast::Global;
use handfast::XaResource;
use handfast::outbox::{self, Broker, Event, EventState, PublishError, Relay};
use handfast_test_services::until;
use sqlx::Pool;

use crate::database::{XaTestDatabase, on_both};
use crate::scene::{DEBIT, Scene};

on_both!(
    an_event_is_published_after_the_global_commits,
    an_event_is_dropped_when_the_global_rolls_back,
    an_event_alone_makes_a_branch,
    an_event_of_an_undecided_branch_is_not_overtaken,
    an_event_outside_a_global_is_published_at_once,
);

/// A broker that keeps the published payloads.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl Kept {
    fn payloads(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Broker for Kept {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        let payload = String::from_utf8(event.payload_bytes().to_vec()).unwrap();
        self.0.lock().unwrap().push(payload);
        ready(Ok(())).boxed()
    }
}

fn event(payload: &str) -> Event {
    Event::new("accounts", "1").payload(payload)
}

/// Runs a branch with a debit and an event.
async fn debit_and_emit<DB: XaTestDatabase>(
    resource: &XaResource<DB>,
    global: &Global,
    payload: &str,
) {
    let work = async {
        let mut local = resource.begin().await.unwrap();
        DB::run_xa(&mut local, DEBIT).await.unwrap();
        local.emit(&event(payload)).await.unwrap();
        local.commit().await.unwrap();
    };
    Box::pin(global.scope(work)).await;
}

async fn states<DB: XaTestDatabase>(pool: &Pool<DB>) -> Vec<EventState> {
    let rows = outbox::list(pool, None, 100).await.unwrap();
    rows.into_iter().map(|row| row.state).collect()
}

async fn an_event_is_published_after_the_global_commits<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    debit_and_emit(&resource, &global, "debited").await;
    assert_eq!(scene.prepared().await.len(), 1);
    assert_eq!(states(&scene.bank.pool).await, []);
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    scene.until_committed(&xid).await;
    let rows = outbox::list(&scene.bank.pool, None, 100).await.unwrap();
    assert_eq!((rows.len(), rows[0].state), (1, EventState::New));
    assert_eq!(rows[0].xid.as_deref(), Some(xid.as_str()));
    scene.assert_clean([990, 1000]).await;
}

async fn an_event_is_dropped_when_the_global_rolls_back<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    debit_and_emit(&resource, &global, "debited").await;
    let xid = global.xid().clone();
    global.rollback("test").await.unwrap();
    scene.until_rolled_back(&xid).await;
    assert_eq!(states(&scene.bank.pool).await, []);
    scene.assert_clean([1000, 1000]).await;
}

/// The branch has written, so it is prepared, and not ended as a branch that has only read.
async fn an_event_alone_makes_a_branch<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    let work = async {
        let mut local = resource.begin().await.unwrap();
        local.emit(&event("news")).await.unwrap();
        local.commit().await.unwrap();
    };
    Box::pin(global.scope(work)).await;
    assert_eq!(scene.prepared().await.len(), 1);
    global.rollback("test").await.unwrap();
    assert_eq!(states(&scene.bank.pool).await, []);
}

/// A later event of the key waits for the earlier one, which is still invisible.
async fn an_event_of_an_undecided_branch_is_not_overtaken<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let global = scene.begin().await;
    debit_and_emit(&resource, &global, "first").await;
    let mut local = scene.bank.pool.begin().await.unwrap();
    outbox::emit(&mut local, &event("second")).await.unwrap();
    local.commit().await.unwrap();

    let (broker, pool) = (Kept::default(), scene.bank.pool.clone());
    let relay = Relay::new(pool.clone(), broker.clone());
    let relay = relay.lease(Duration::from_secs(1)).idle_max(Duration::from_millis(5));
    let relay = tokio::spawn(relay.run(std::future::pending()));
    rounds(&pool).await;
    assert_eq!(broker.payloads(), [""; 0]);
    let xid = global.xid().clone();
    global.commit().await.unwrap();
    until("both events are published", async || broker.payloads().len() == 2).await;
    assert_eq!(broker.payloads(), ["first", "second"]);
    relay.abort();
    scene.until_committed(&xid).await;
}

/// Waits until the relay has renewed its lease a few times. By then it has searched all events that
/// existed before.
async fn rounds<DB: XaTestDatabase>(pool: &Pool<DB>) {
    let sql = format!("SELECT CAST(MAX(until_ms) AS {}) FROM event_relay", DB::TEXT);
    for _ in 0..3 {
        let before = DB::raw_rows(pool, &sql).await.unwrap();
        let moved = async || DB::raw_rows(pool, &sql).await.unwrap() != before;
        until("the table changes", moved).await;
    }
}

async fn an_event_outside_a_global_is_published_at_once<DB: XaTestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let resource = scene.resource().await;
    let mut local = resource.begin().await.unwrap();
    local.emit(&event("news")).await.unwrap();
    local.commit().await.unwrap();
    assert_eq!(states(&scene.bank.pool).await, [EventState::New]);
}

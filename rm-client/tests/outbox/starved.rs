//! As many events that cannot be published as a relay claims at a time. Events of other keys and
//! topics are published all the same, and no event overtakes its key.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::outbox::{
    self, Broker, Event, EventState, InProcess, InProcessSubscription, PublishError, Subscription,
};
use sqlx::MySql;

use crate::at::{TestDatabase, on_every_database};
use crate::scene::{PATIENCE, Recorder, Scene, TOPIC, event, start, until};

on_every_database!(
    events_without_a_subscription_block_no_others,
    an_unpublished_event_keeps_its_key_in_order,
);

const BATCH: u32 = 3;

async fn emit<DB: TestDatabase>(scene: &Scene<DB>, event: &Event) {
    let mut local = scene.pool().begin().await.unwrap();
    outbox::emit(&mut local, event).await.unwrap();
    local.commit().await.unwrap();
}

/// Receives and acknowledges the next event, and returns its payload.
async fn taken(events: &mut InProcessSubscription) -> Vec<u8> {
    let delivery = tokio::time::timeout(PATIENCE, events.next()).await;
    let delivery = delivery.expect("events arrive").unwrap();
    events.acknowledge(&delivery).await.unwrap();
    delivery.event.payload_bytes().to_vec()
}

/// The broker was unavailable for a batch of events whose topic had no subscription. The relay
/// claimed the same batch again and again.
async fn events_without_a_subscription_block_no_others<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let broker = InProcess::new();
    let mut events = broker.subscribe(TOPIC);
    for key in ["1", "2", "3"] {
        emit(&scene, &Event::new("unsubscribed", key).payload(key)).await;
    }
    scene.emit("4", "a").await;
    let relay = start(scene.relay_to(broker.clone()).batch(BATCH));
    assert_eq!(taken(&mut events).await, b"a");
    scene.emit("4", "b").await;
    assert_eq!(taken(&mut events).await, b"b");
    let mut late = broker.subscribe("unsubscribed");
    for _ in 0..3 {
        taken(&mut late).await;
    }
    until(async || scene.states().await == [EventState::Published; 5]).await;
    relay.stop().await;
}

/// A broker that accepts only events whose payload does not begin with "not".
#[derive(Debug)]
struct Selective(Recorder);

impl Broker for Selective {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        async move {
            if event.payload_bytes().starts_with(b"not") {
                // The recorder counts refused events too.
                self.0.publish(event).await?;
                return Err(PublishError::Unavailable { reason: "not this one".to_owned() });
            }
            self.0.publish(event).await
        }
        .boxed()
    }
}

/// While others are published, the event's attempts are not counted, and no event of its key
/// overtakes it.
async fn an_unpublished_event_keeps_its_key_in_order<DB: TestDatabase>() {
    let scene = Scene::<DB>::new().await;
    let broker = Selective(scene.broker.clone());
    for (key, payload) in [("1", "not"), ("2", "a"), ("1", "behind"), ("2", "b"), ("3", "c")] {
        scene.emit(key, payload).await;
    }
    let relay = start(scene.relay_to(broker).batch(BATCH).attempts_max(1));
    assert_eq!(scene.published("2", 2).await, ["a", "b"]);
    assert_eq!(scene.published("3", 1).await, ["c"]);
    let tried = scene.published("1", 3).await;
    assert!(tried.iter().all(|payload| payload == "not"), "{tried:?}");
    let waiting = async || outbox::list(scene.pool(), Some(EventState::New), 10).await.unwrap();
    until(async || waiting().await.len() == 2).await;
    assert!(waiting().await.iter().all(|row| row.attempts == 0));
    relay.stop().await;
}

/// On MySQL the search sees the events of open transactions. A batch of them was all that a relay
/// saw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_open_transactions_block_no_others_on_mysql() {
    let scene = Scene::<MySql>::new().await;
    let mut open = scene.pool().begin().await.unwrap();
    for key in ["1", "2", "3"] {
        outbox::emit(&mut open, &event(key, "open")).await.unwrap();
    }
    for (key, payload) in [("4", "a"), ("1", "behind"), ("5", "b")] {
        scene.emit(key, payload).await;
    }
    let relay = start(scene.relay().batch(BATCH).idle_max(Duration::from_millis(1)));
    assert_eq!(scene.published("4", 1).await, ["a"]);
    assert_eq!(scene.published("5", 1).await, ["b"]);
    scene.rounds().await;
    assert_eq!(scene.broker.of("1"), Vec::<String>::new());
    open.commit().await.unwrap();
    assert_eq!(scene.published("1", 2).await, ["open", "behind"]);
    relay.stop().await;
}

//! Real servers of RabbitMQ and NATS JetStream: events from the outbox to their effect, also while
//! the broker dies.
//!
//! The outbox does not depend on the broker, so one database is enough here.

use std::time::Duration;

use async_nats::jetstream::{self, Context};
use futures::future::join_all;
use handfast::outbox::{
    Broker, Consumer, Event, EventState, JetStream, PublishError, RabbitMq, Relay, Subscription,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use sqlx::Sqlite;

use crate::at::TestDatabase;
use crate::scene::{PATIENCE, Scene, TOPIC, event, start, until};
use crate::streams::effect;

/// A broker with names that no other test uses.
trait TestBroker: Broker + Clone + Sized + 'static {
    const KIND: ServerKind;
    const VARIABLE: &'static str;

    async fn connect(url: &str) -> Self;

    /// Joins a group. An event that is not acknowledged is delivered again after a moment at the
    /// latest.
    async fn join(&self, topic: &str, group: &str) -> impl Subscription + 'static;
}

impl TestBroker for RabbitMq {
    const KIND: ServerKind = ServerKind::RabbitMq;
    const VARIABLE: &'static str = "HANDFAST_TEST_RABBITMQ";

    async fn connect(url: &str) -> Self {
        Self::connect(url).await.unwrap().exchange(fresh())
    }

    async fn join(&self, topic: &str, group: &str) -> impl Subscription + 'static {
        self.subscribe(topic, group).await.unwrap()
    }
}

impl TestBroker for JetStream {
    const KIND: ServerKind = ServerKind::Nats;
    const VARIABLE: &'static str = "HANDFAST_TEST_NATS";

    async fn connect(url: &str) -> Self {
        Self::connect(url).await.unwrap().prefix(fresh())
    }

    async fn join(&self, topic: &str, group: &str) -> impl Subscription + 'static {
        self.subscribe(topic, group, Duration::from_millis(200)).await.unwrap()
    }
}

macro_rules! on_both_brokers {
    ($($name:ident),* $(,)?) => {
        mod rabbit_mq { $(#[tokio::test] async fn $name() { super::$name::<handfast::outbox::RabbitMq>().await })* }
        mod jet_stream { $(#[tokio::test] async fn $name() { super::$name::<handfast::outbox::JetStream>().await })* }
    };
}

on_both_brokers!(
    events_take_effect_in_order,
    an_event_is_delivered_as_emitted,
    unacknowledged_events_are_redelivered_before_later_ones,
    each_group_gets_every_event,
    a_restarted_broker_loses_no_event,
    events_too_long_for_the_broker_are_refused,
);

fn fresh() -> String {
    format!("test-{}-", uuid::Uuid::new_v4().simple())
}

fn url<B: TestBroker>() -> String {
    std::env::var(B::VARIABLE).unwrap_or_else(|_| {
        panic!("{} is not set: run the tests with `cargo xtask test`", B::VARIABLE)
    })
}

async fn broker<B: TestBroker>() -> B {
    <B as TestBroker>::connect(&url::<B>()).await
}

async fn events_take_effect_in_order<B: TestBroker>() {
    let scene = Scene::<Sqlite>::new().await;
    let broker = broker::<B>().await;
    let payloads: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let events = broker.join(TOPIC, "payments").await;
    let relay = start(Relay::new(scene.pool().clone(), broker));
    for payload in &payloads {
        scene.emit("1", payload).await;
    }
    assert_eq!(effects(&scene, events, payloads.len()).await, payloads);
    relay.stop().await;
}

async fn an_event_is_delivered_as_emitted<B: TestBroker>() {
    let broker = broker::<B>().await;
    let topic = "orders.v1 > *";
    let mut events = broker.join(topic, "pay ments.1").await;
    let sent = Event::new(topic, "ä \"key\"\r\nof 7")
        .header("type", "placed\r\n\"today\"")
        .payload([0, 255, 13, 10]);
    broker.publish(&sent).await.unwrap();
    let delivery = events.next().await.unwrap();
    assert_eq!(delivery.event, sent);
    events.acknowledge(&delivery).await.unwrap();
}

async fn unacknowledged_events_are_redelivered_before_later_ones<B: TestBroker>() {
    let broker = broker::<B>().await;
    let mut first = broker.join(TOPIC, "payments").await;
    let (a, b) = (event("1", "a"), event("1", "b"));
    broker.publish(&a).await.unwrap();
    broker.publish(&b).await.unwrap();
    assert_eq!(first.next().await.unwrap().event, a);
    drop(first);
    let mut second = broker.join(TOPIC, "payments").await;
    let mut acknowledged: Option<Event> = None;
    for expected in [a, b] {
        let mut delivery = second.next().await.unwrap();
        // A busy machine may acknowledge an event when it is on its way once more.
        while acknowledged.as_ref() == Some(&delivery.event) {
            second.acknowledge(&delivery).await.unwrap();
            delivery = second.next().await.unwrap();
        }
        assert_eq!(delivery.event, expected);
        second.acknowledge(&delivery).await.unwrap();
        acknowledged = Some(expected);
    }
}

async fn each_group_gets_every_event<B: TestBroker>() {
    let broker = broker::<B>().await;
    let mut payments = broker.join(TOPIC, "payments").await;
    let mut stock = broker.join(TOPIC, "stock").await;
    let sent = event("1", "a");
    broker.publish(&sent).await.unwrap();
    assert_eq!(payments.next().await.unwrap().event, sent);
    assert_eq!(stock.next().await.unwrap().event, sent);
}

async fn a_restarted_broker_loses_no_event<B: TestBroker>() {
    let scene = Scene::<Sqlite>::new().await;
    let mut server = server(B::KIND).await;
    let broker = <B as TestBroker>::connect(&server.url()).await;
    let events = broker.join(TOPIC, "payments").await;
    scene.emit("1", "before").await;
    let relay = start(scene.relay_to(broker));
    until(async || scene.states().await == [EventState::Published]).await;
    server.kill().unwrap();
    scene.emit("1", "meanwhile").await;
    scene.rounds().await;
    assert_eq!(scene.states().await, [EventState::Published, EventState::New]);
    let restart = move || server.restart().map(|()| server);
    let _server = tokio::task::spawn_blocking(restart).await.unwrap().unwrap();
    assert_eq!(effects(&scene, events, 2).await, ["before", "meanwhile"]);
    relay.stop().await;
}

async fn events_too_long_for_the_broker_are_refused<B: TestBroker>() {
    let broker = broker::<B>().await;
    // In bytes the topic is longer than either broker allows.
    let refused = broker.publish(&Event::new("ä".repeat(128), "1")).await.unwrap_err();
    assert!(matches!(refused, PublishError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn rabbit_mq_refuses_events_without_a_queue() {
    let broker = broker::<RabbitMq>().await;
    let sent = event("1", "a");
    let refused = broker.publish(&sent).await.unwrap_err();
    assert!(matches!(&refused, PublishError::Refused { reason } if reason.contains("NO_ROUTE")));
    let mut events = broker.join(TOPIC, "payments").await;
    broker.publish(&sent).await.unwrap();
    assert_eq!(events.next().await.unwrap().event, sent);
}

/// RabbitMQ does not say which publish a returned message belongs to, and lapin assigns it to the
/// publish that is confirmed next. On a shared channel an event without a queue was marked as
/// published, and an event in a queue was refused.
#[tokio::test]
async fn rabbit_mq_refuses_exactly_the_events_without_a_queue() {
    let broker = broker::<RabbitMq>().await;
    let _events = broker.join(TOPIC, "payments").await;
    for _ in 0..5 {
        let topics = (0..200).map(|n| if n % 2 == 0 { TOPIC } else { "unrouted" });
        let published = topics
            .map(async |topic| (topic, broker.publish(&Event::new(topic, "1").payload("a")).await));
        for (topic, result) in join_all(published).await {
            let refused = matches!(&result, Err(PublishError::Refused { reason })
                if reason.contains("NO_ROUTE"));
            let as_it_should = if topic == TOPIC { result.is_ok() } else { refused };
            assert!(as_it_should, "{topic}: {result:?}");
        }
    }
}

/// The server had lost its data, or the stream or the consumer had been deleted. NATS does not
/// answer a pull from a consumer that it does not have, and the subscription pulled for ever.
#[tokio::test]
async fn jet_stream_creates_a_lost_stream_again() {
    let events = events_after_a_loss(async |server, stream| {
        server.delete_stream(stream).await.unwrap();
    });
    assert_eq!(events.await, ["b"]);
}

/// As above, and the new consumer begins at the beginning.
#[tokio::test]
async fn jet_stream_creates_a_lost_consumer_again() {
    let events = events_after_a_loss(async |server, stream| {
        let stream = server.get_stream(stream).await.unwrap();
        stream.delete_consumer("payments").await.unwrap();
    });
    assert_eq!(events.await, ["a", "b"]);
}

/// Returns the payloads that a subscription delivers after the event `a` and a loss, up to the
/// event `b`.
async fn events_after_a_loss(lose: impl AsyncFnOnce(&Context, &str)) -> Vec<String> {
    let (url, prefix) = (url::<JetStream>(), fresh());
    let broker = JetStream::connect(&url).await.unwrap().prefix(&prefix);
    // So long that no event is delivered again because it is acknowledged late.
    let mut events = broker.subscribe(TOPIC, "payments", 10 * PATIENCE).await.unwrap();
    broker.publish(&event("1", "a")).await.unwrap();
    let delivery = events.next().await.unwrap();
    events.acknowledge(&delivery).await.unwrap();
    let server = jetstream::new(async_nats::connect(&url).await.unwrap());
    lose(&server, &format!("{prefix}{TOPIC}")).await;
    // As a relay, which creates the stream again when it publishes the next time.
    let sent = event("1", "b");
    until(async || broker.publish(&sent).await.is_ok()).await;
    let delivered = async {
        let mut payloads = Vec::new();
        while payloads.last().is_none_or(|last| last != "b") {
            // As a consumer, which calls again after an error.
            let Ok(delivery) = events.next().await else { continue };
            events.acknowledge(&delivery).await.unwrap();
            payloads.push(String::from_utf8(delivery.event.payload_bytes().to_vec()).unwrap());
        }
        payloads
    };
    tokio::time::timeout(PATIENCE, delivered).await.expect("events come after the loss")
}

#[tokio::test]
async fn jet_stream_keeps_an_event_once() {
    let broker = broker::<JetStream>().await;
    let (a, b) = (event("1", "a"), event("1", "b"));
    for sent in [&a, &a, &b] {
        broker.publish(sent).await.unwrap();
    }
    // So long that no event is delivered again because it is acknowledged late.
    let idle = Duration::from_secs(60);
    let mut events = broker.subscribe(TOPIC, "payments", idle).await.unwrap();
    for expected in [a, b] {
        let delivery = events.next().await.unwrap();
        assert_eq!(delivery.event, expected);
        events.acknowledge(&delivery).await.unwrap();
    }
}

async fn server(kind: ServerKind) -> DatabaseServer {
    let start = move || DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()));
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// Receives this number of events, and returns the order of their effects.
async fn effects(
    scene: &Scene<Sqlite>,
    events: impl Subscription + 'static,
    count: usize,
) -> Vec<String> {
    let table = "CREATE TABLE seen (n INT NOT NULL, payload VARCHAR(20) NOT NULL)";
    Sqlite::raw(scene.pool(), table).await.unwrap();
    let consumer = Consumer::new(scene.pool().clone(), "payments");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consuming = tokio::spawn(async move {
        consumer.run(events, effect::<Sqlite>, async { drop(stopped.await) }).await
    });
    let seen = async || {
        let rows = Sqlite::raw_rows(scene.pool(), "SELECT payload FROM seen ORDER BY n");
        let rows = rows.await.unwrap();
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect::<Vec<_>>()
    };
    until(async || seen().await.len() >= count).await;
    stop.send(()).unwrap();
    consuming.await.unwrap().unwrap();
    seen().await
}

//! Redis Streams on a real server: events from the outbox to their effect.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use handfast::outbox::{
    Broker, Consumer, OutboxError, PublishError, RedisStreams, Relay, Subscription,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tokio::net::{TcpListener, TcpStream};

use crate::at::on_every_database;
use crate::inbox::Effect;
use crate::scene::{PATIENCE, Scene, TOPIC, event, start, until};

on_every_database!(events_take_effect_in_order, unacknowledged_events_are_redelivered);

/// Connects to a broker with streams that no other test uses.
pub(crate) async fn connect(prefix: &str) -> RedisStreams {
    let url = std::env::var("HANDFAST_TEST_REDIS").unwrap_or_else(|_| {
        panic!("HANDFAST_TEST_REDIS is not set: run the tests with `cargo xtask test`")
    });
    RedisStreams::connect(&url).await.unwrap().prefix(prefix)
}

pub(crate) fn fresh_prefix() -> String {
    format!("test-{}:", uuid::Uuid::new_v4().simple())
}

const IDLE: Duration = Duration::from_millis(50);

async fn events_take_effect_in_order<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    DB::raw(scene.pool(), "CREATE TABLE seen (n INT NOT NULL, payload VARCHAR(20) NOT NULL)")
        .await
        .unwrap();
    let broker = connect(&fresh_prefix()).await;
    let events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
    let relay = start(Relay::new(scene.pool().clone(), broker));
    let consumer = Consumer::new(scene.pool().clone(), "payments");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consuming = tokio::spawn(async move {
        consumer.run(events, effect::<DB>, async { drop(stopped.await) }).await
    });
    let payloads: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for payload in &payloads {
        scene.emit("1", payload).await;
    }
    let seen = async || {
        let rows = DB::raw_rows(scene.pool(), "SELECT payload FROM seen ORDER BY n").await.unwrap();
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect::<Vec<_>>()
    };
    until(async || seen().await.len() >= 20).await;
    assert_eq!(seen().await, payloads);
    stop.send(()).unwrap();
    consuming.await.unwrap().unwrap();
    relay.stop().await;
}

async fn unacknowledged_events_are_redelivered<DB: Effect>() {
    let scene = Scene::<DB>::new().await;
    let broker = connect(&fresh_prefix()).await;
    let mut first = broker.subscribe(TOPIC, "payments", "first", IDLE).await.unwrap();
    let relay = start(Relay::new(scene.pool().clone(), broker.clone()));
    let sent = event("1", "a");
    let mut local = scene.pool().begin().await.unwrap();
    handfast::outbox::emit(&mut local, &sent).await.unwrap();
    local.commit().await.unwrap();
    assert_eq!(first.next().await.unwrap().event, sent);
    // To the same consumer, when it starts again.
    drop(first);
    let mut first = broker.subscribe(TOPIC, "payments", "first", IDLE).await.unwrap();
    assert_eq!(first.next().await.unwrap().event, sent);
    // To another consumer, when the first has been dead for long enough.
    drop(first);
    let mut second = broker.subscribe(TOPIC, "payments", "second", IDLE).await.unwrap();
    let delivery = second.next().await.unwrap();
    assert_eq!(delivery.event, sent);
    second.acknowledge(&delivery).await.unwrap();
    // Other groups get their own deliveries.
    let mut others = broker.subscribe(TOPIC, "stock", "first", IDLE).await.unwrap();
    assert_eq!(others.next().await.unwrap().event, sent);
    relay.stop().await;
}

/// A consumer that is dropped while it waits, in a `select!` for instance, leaves its read at the
/// server. The event that answered this read was delivered after the events behind it.
/// Connects to Redis. The client's own limit for an answer, half a second, is shorter than a busy
/// machine pauses.
async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let limit = Some(Duration::from_secs(60));
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(limit);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

#[tokio::test]
async fn an_event_of_a_dropped_read_precedes_later_ones() {
    // Only this test uses this database of the server, so a blocked client is its own.
    let url = format!("{}/9", std::env::var("HANDFAST_TEST_REDIS").unwrap());
    let server = connection(&url).await;
    let broker = RedisStreams::connect(&url).await.unwrap().prefix(fresh_prefix());
    let hour = Duration::from_secs(3_600);
    let mut events = broker.subscribe(TOPIC, "payments", "one", hour).await.unwrap();
    let is_waiting = async || {
        let mut list = redis::cmd("CLIENT");
        let clients = list.arg("LIST").query_async::<String>(&mut server.clone()).await.unwrap();
        clients.lines().any(|client| client.contains(" flags=b ") && client.contains(" db=9 "))
    };
    tokio::select! {
        delivery = events.next() => unreachable!("{delivery:?}"),
        () = until(is_waiting) => {}
    }
    let (a, b) = (event("1", "a"), event("1", "b"));
    for sent in [&a, &b] {
        broker.publish(sent).await.unwrap();
    }
    for expected in [a, b] {
        let delivery = events.next().await.unwrap();
        assert_eq!(delivery.event, expected);
        events.acknowledge(&delivery).await.unwrap();
    }
}

/// The server had lost its data, or the stream had been deleted. The group was gone, and every read
/// was refused until the process was restarted.
#[tokio::test]
async fn a_lost_group_is_created_again() {
    let prefix = fresh_prefix();
    let broker = connect(&prefix).await;
    let mut events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
    broker.publish(&event("1", "a")).await.unwrap();
    let delivery = events.next().await.unwrap();
    events.acknowledge(&delivery).await.unwrap();
    let mut server = connection(&std::env::var("HANDFAST_TEST_REDIS").unwrap()).await;
    let stream = format!("{prefix}{TOPIC}");
    redis::cmd("DEL").arg(&stream).exec_async(&mut server).await.unwrap();
    // Events that are published before the group is created again are not lost.
    let (b, c) = (event("1", "b"), event("1", "c"));
    for sent in [&b, &c] {
        broker.publish(sent).await.unwrap();
    }
    for expected in [b, c] {
        let delivery = events.next().await.unwrap();
        assert_eq!(delivery.event, expected);
        events.acknowledge(&delivery).await.unwrap();
    }
}

/// After a fail-over the former primary closes no connection and refuses every write. Relays and
/// consumers stayed with it until they were restarted.
#[tokio::test]
async fn a_primary_that_was_demoted_is_left() {
    let start = || {
        let place = ServerDirectory::new()?;
        let server = || DatabaseServer::start(ServerKind::Redis, &place, &|| Ok(()));
        anyhow::Ok([server()?, server()?])
    };
    let servers = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let [old, new] = servers.each_ref().map(DatabaseServer::address);
    let primary = Arc::new(Mutex::new(old));
    let url = format!("redis://{}", address_of(Arc::clone(&primary)).await);
    let broker = RedisStreams::connect(&url).await.unwrap();
    let mut events = broker.subscribe(TOPIC, "payments", "one", IDLE).await.unwrap();
    let (a, b) = (event("1", "a"), event("1", "b"));
    broker.publish(&a).await.unwrap();
    let delivery = events.next().await.unwrap();
    events.acknowledge(&delivery).await.unwrap();
    *primary.lock().unwrap() = new;
    let mut server = connection(&format!("redis://{old}")).await;
    let mut demote = redis::cmd("REPLICAOF");
    demote.arg(new.ip().to_string()).arg(new.port());
    demote.exec_async(&mut server).await.unwrap();
    let refused = broker.publish(&b).await.unwrap_err();
    assert!(matches!(refused, PublishError::Unavailable { .. }), "{refused}");
    broker.publish(&b).await.unwrap();
    let delivered = async {
        loop {
            // As a consumer, which calls again after an error.
            let Ok(delivery) = events.next().await else { continue };
            break delivery.event;
        }
    };
    let delivered = tokio::time::timeout(PATIENCE, delivered).await;
    assert_eq!(delivered.expect("the event is delivered by the new primary"), b);
}

/// Returns an address that leads to the server named at the time of connecting.
async fn address_of(server: Arc<Mutex<SocketAddr>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let address = *server.lock().unwrap();
            let mut server = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move {
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    address
}

/// Records the event, with its position.
pub(crate) fn effect<'l, DB: Effect>(
    local: &'l mut sqlx::Transaction<'_, DB>,
    event: &'l handfast::outbox::Event,
) -> futures::future::BoxFuture<'l, Result<(), OutboxError>> {
    async move {
        let payload = String::from_utf8_lossy(event.payload_bytes()).into_owned();
        let sql = format!("INSERT INTO seen SELECT COUNT(*), '{payload}' FROM seen");
        DB::write(local, &sql).await
    }
    .boxed()
}

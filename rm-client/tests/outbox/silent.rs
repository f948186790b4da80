//! A database that takes what it is sent and never answers: its host has vanished behind a proxy,
//! or in the middle of a statement. No connection breaks, so that nothing but a limit ends it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast::outbox::{Broker, Consumer, InProcess};
use sqlx::{ConnectOptions, MySql, Pool, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::inbox::Effect;
use crate::scene::{PATIENCE, Scene, TOPIC, event, start, until};
use crate::streams::effect;

macro_rules! on_every_server {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test] async fn $name() { super::$name::<super::Postgres>().await })* }
        mod mysql { $(#[tokio::test] async fn $name() { super::$name::<super::MySql>().await })* }
    };
}

on_every_server!(
    a_relay_stops_in_the_middle_of_a_silence,
    a_relay_goes_on_after_a_silence,
    an_effect_is_tried_again_after_a_silence,
);

/// A database that can be reached by a wire.
trait Wired: Effect {
    /// Keeps the wire readable.
    const NO_TLS: &'static str;
}

impl Wired for Postgres {
    const NO_TLS: &'static str = "disable";
}

impl Wired for MySql {
    const NO_TLS: &'static str = "disabled";
}

/// A wire that falls silent once, where these bytes pass.
#[derive(Debug)]
struct Wire {
    at: &'static [u8],
    is_silent: AtomicBool,
    has_been_silent: AtomicBool,
}

impl Wire {
    /// A wire to the server of a pool, and a pool onto the same database through it.
    async fn to<DB: Wired>(pool: &Pool<DB>, at: &'static [u8]) -> (Arc<Self>, Pool<DB>) {
        let mut url = pool.connect_options().to_url_lossy();
        let host = url.host_str().expect("the test servers are reached by TCP").to_owned();
        let server = (host, url.port().expect("the test servers choose their ports"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        url.query_pairs_mut().append_pair("ssl-mode", DB::NO_TLS);
        let (is_silent, has_been_silent) = (AtomicBool::new(false), AtomicBool::new(false));
        let wire = Arc::new(Self { at, is_silent, has_been_silent });
        let carried = Arc::clone(&wire);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server.clone()).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(Arc::clone(&carried).carry(from_client, to_server));
                tokio::spawn(Arc::clone(&carried).carry(from_server, to_client));
            }
        });
        (wire, Pool::connect(url.as_str()).await.unwrap())
    }

    async fn carry(self: Arc<Self>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let meets = bytes[..read].windows(self.at.len()).any(|window| window == self.at);
            if meets && !self.has_been_silent.swap(true, Ordering::SeqCst) {
                self.is_silent.store(true, Ordering::SeqCst);
            }
            let is_carried = !self.is_silent.load(Ordering::SeqCst);
            if is_carried && to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }

    /// Waits until somebody waits for an answer.
    async fn fallen_silent(&self) {
        until(async || self.is_silent.load(Ordering::SeqCst)).await;
    }

    fn answer_again(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
    }
}

/// What only a claim says.
const CLAIM: &[u8] = b"SKIP LOCKED";
const EFFECT: &[u8] = b"INSERT INTO seen";

async fn a_relay_stops_in_the_middle_of_a_silence<DB: Wired>() {
    let scene = Scene::<DB>::new().await;
    let (wire, pool) = Wire::to(scene.pool(), CLAIM).await;
    let relay = start(scene.relay_over(pool));
    scene.emit("1", "a").await;
    wire.fallen_silent().await;
    tokio::time::timeout(PATIENCE, relay.stop()).await.expect("a silence keeps no relay");
}

async fn a_relay_goes_on_after_a_silence<DB: Wired>() {
    let scene = Scene::<DB>::new().await;
    let (wire, pool) = Wire::to(scene.pool(), CLAIM).await;
    let relay = start(scene.relay_over(pool));
    scene.emit("1", "a").await;
    wire.fallen_silent().await;
    wire.answer_again();
    assert_eq!(scene.published("1", 1).await, ["a"]);
    relay.stop().await;
}

async fn an_effect_is_tried_again_after_a_silence<DB: Wired>() {
    let scene = Scene::<DB>::new().await;
    let table = "CREATE TABLE seen (n INT NOT NULL, payload VARCHAR(20) NOT NULL)";
    DB::raw(scene.pool(), table).await.unwrap();
    let (wire, pool) = Wire::to(scene.pool(), EFFECT).await;
    let broker = InProcess::new();
    let events = broker.subscribe(TOPIC);
    let consumer = Consumer::new(pool, "payments").attempt_max(Duration::from_secs(5));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consuming = tokio::spawn(async move {
        consumer.run(events, effect::<DB>, async { drop(stopped.await) }).await
    });
    let published = tokio::spawn(async move { broker.publish(&event("1", "a")).await });
    wire.fallen_silent().await;
    wire.answer_again();
    let acknowledged = tokio::time::timeout(PATIENCE, published).await;
    acknowledged.expect("a silence keeps no effect").unwrap().unwrap();
    assert_eq!(scene.stage.value("SELECT payload FROM seen").await.as_deref(), Some("a"));
    stop.send(()).unwrap();
    consuming.await.unwrap().unwrap();
}

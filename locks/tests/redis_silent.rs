//! Connections to Redis that fall silent and are never closed, as when a host vanishes or a
//! firewall forgets them: others take their places.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Backend, Outcome, Place, RedisLocks, RedlockLocks, Wake};
use handfast_test_services::Wire;
use tokio::sync::mpsc;

use stage::{LEASE, ask, fresh, hold, over, server};

/// After this long a test that waits has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wire to a server that falls silent where these bytes pass, and the URL of the server there.
fn wire(url: &str, at: &'static [u8]) -> (Arc<Wire>, String) {
    let (host, port) = url.trim_start_matches("redis://").rsplit_once(':').unwrap();
    let port = port.trim_end_matches('/').parse().unwrap();
    let wire = Wire::to(host.to_owned(), port, at, NonZeroUsize::MIN).unwrap();
    let url = format!("redis://{}", wire.address());
    (wire, url)
}

async fn all_are_silent(wires: &[Arc<Wire>]) {
    while !wires.iter().all(|wire| wire.is_silent()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The request that was under way comes through too, once it is repeated.
async fn a_silent_connection_is_replaced(
    wires: &[Arc<Wire>],
    backend: Arc<dyn Backend>,
    silencing: &str,
) {
    let locks = over(backend).start().unwrap();
    // It is well until then.
    assert_eq!(locks.lock(&fresh()).await.unwrap().release().await.unwrap(), Outcome::Released);
    let (under_way, name) = (locks.clone(), silencing.to_owned());
    let under_way = tokio::spawn(async move { under_way.lock(&name).await });
    all_are_silent(wires).await;
    wires.iter().for_each(|wire| wire.answer_newcomers());
    let other = tokio::time::timeout(PATIENCE, locks.lock(&fresh())).await;
    assert!(other.expect("another connection is made").unwrap().is_held());
    let guard = tokio::time::timeout(PATIENCE, under_way).await;
    let guard = guard.expect("it is asked for again").unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Outcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_to_a_single_redis_is_replaced() {
    let (wire, url) = wire(&server("HANDFAST_TEST_REDIS"), b"test/silence");
    let backend = Arc::new(RedisLocks::connect(&url).await.unwrap());
    a_silent_connection_is_replaced(&[wire], backend, "test/silence").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_to_a_majority_are_replaced() {
    let urls = server("HANDFAST_TEST_REDLOCK");
    let wires = urls.split(',').map(|url| wire(url, b"test/quorum"));
    let (wires, urls): (Vec<_>, Vec<_>) = wires.unzip();
    let backend = RedlockLocks::connect(urls, LEASE).await.unwrap();
    backend.settled().await.unwrap();
    a_silent_connection_is_replaced(&wires, Arc::new(backend), "test/quorum").await;
}

/// Who listens says nothing himself, and would listen to it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_falls_silent_ends() {
    let (wire, url) = wire(&server("HANDFAST_TEST_REDIS"), b"test/whisper");
    let backend = Arc::new(RedisLocks::connect(&url).await.unwrap());
    let (wakes, mut woken) = mpsc::unbounded_channel();
    let (listener, client) = (Arc::clone(&backend), hold("test/whisper").token.client);
    let listening = tokio::spawn(async move { listener.listen(client, &wakes).await });
    assert_eq!(woken.recv().await, Some(Wake::All));
    let silencing = tokio::spawn(async move {
        let unanswered = backend.ask(&ask(&hold("test/whisper"), Place::None)).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
    });
    all_are_silent(&[wire]).await;
    let ended = tokio::time::timeout(PATIENCE, listening).await;
    assert!(ended.expect("its silence is noticed").unwrap().is_err());
    silencing.await.unwrap();
}

/// The same, from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_without_an_answer_is_given_up() {
    let (_wire, url) = wire(&server("HANDFAST_TEST_REDIS"), b"handfast:lock-wake:");
    let backend = RedisLocks::connect(&url).await.unwrap();
    let (wakes, _woken) = mpsc::unbounded_channel();
    let listening = tokio::time::timeout(PATIENCE, backend.listen(7, &wakes)).await;
    assert!(listening.expect("its silence is noticed").is_err());
}

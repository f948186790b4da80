//! Connections to Redis that fall silent and are never closed, as when a host vanishes or a
//! firewall forgets them: other connections replace them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Backend, QueueMode, RedisLocks, RedlockLocks, ReleaseOutcome, WakeUp};
use handfast_test_services::{Wire, until};
use tokio::sync::mpsc;

use setup::{LEASE, acquire_request, fresh, lock_ref, over, server};

/// A test that waits for longer than this has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Makes a wire to a server that falls silent when these bytes pass, and the URL of the server
/// behind it.
fn wire(url: &str, at: &'static [u8]) -> (Arc<Wire>, String) {
    let (host, port) = url.trim_start_matches("redis://").rsplit_once(':').unwrap();
    let port = port.trim_end_matches('/').parse().unwrap();
    let wire = Wire::to(host.to_owned(), port, at, NonZeroUsize::MIN).unwrap();
    let url = format!("redis://{}", wire.address());
    (wire, url)
}

async fn all_are_silent(wires: &[Arc<Wire>]) {
    let all = async || wires.iter().all(|wire| wire.is_silent());
    until("all wires fall silent", all).await;
}

/// The request that was under way succeeds too, once it is repeated.
async fn a_silent_connection_is_replaced(
    wires: &[Arc<Wire>],
    backend: Arc<dyn Backend>,
    silencing: &str,
) {
    let locks = over(backend).start().unwrap();
    // The connection works until then.
    assert_eq!(
        locks.lock(&fresh()).await.unwrap().release().await.unwrap(),
        ReleaseOutcome::Released
    );
    let (under_way, name) = (locks.clone(), silencing.to_owned());
    let under_way = tokio::spawn(async move { under_way.lock(&name).await });
    all_are_silent(wires).await;
    wires.iter().for_each(|wire| wire.answer_newcomers());
    let other = tokio::time::timeout(WAIT_MAX, locks.lock(&fresh())).await;
    assert!(other.expect("another connection is made").unwrap().is_held());
    let guard = tokio::time::timeout(WAIT_MAX, under_way).await;
    let guard = guard.expect("the request is repeated").unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
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

/// A regression: a subscription sends nothing, so a silent one was listened to forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_falls_silent_ends() {
    let (wire, url) = wire(&server("HANDFAST_TEST_REDIS"), b"test/whisper");
    let backend = Arc::new(RedisLocks::connect(&url).await.unwrap());
    let (wake_ups, mut woken) = mpsc::unbounded_channel();
    let (listener, client) = (Arc::clone(&backend), lock_ref("test/whisper").id.client);
    let listening = tokio::spawn(async move { listener.listen(client, &wake_ups).await });
    assert_eq!(woken.recv().await, Some(WakeUp::All));
    let silencing = tokio::spawn(async move {
        let unanswered =
            backend.acquire(&acquire_request(&lock_ref("test/whisper"), QueueMode::NoWait)).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
    });
    all_are_silent(&[wire]).await;
    let ended = tokio::time::timeout(WAIT_MAX, listening).await;
    assert!(ended.expect("its silence is noticed").unwrap().is_err());
    silencing.await.unwrap();
}

/// The same for a subscription that was silent from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_without_an_answer_is_given_up() {
    let (_wire, url) = wire(&server("HANDFAST_TEST_REDIS"), b"handfast:lock-wake:");
    let backend = RedisLocks::connect(&url).await.unwrap();
    let (wake_ups, _woken) = mpsc::unbounded_channel();
    let listening = tokio::time::timeout(WAIT_MAX, backend.listen(7, &wake_ups)).await;
    assert!(listening.expect("its silence is noticed").is_err());
}

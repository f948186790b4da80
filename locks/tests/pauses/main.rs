//! Holders that are stopped for longer than their lease, at every place between their lock and
//! their write, by the thousand: with a claim no update is lost; with the token compared at the
//! write alone, some are.
//!
//! A holder is stopped by not being polled: it has an acquisition that is not renewed, and its next
//! step comes when the test says so. The next holder is a client like any other, which waits until
//! the lease has ended. Real processes that are stopped by a signal are in `tests/processes`.
//!
//! `HANDFAST_TEST_PAUSES` sets the number of pauses on each backend, and `cargo xtask pauses` runs
//! them by the ten thousand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod holder;
mod resource;
#[path = "../conformance/setup.rs"]
#[allow(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{AcquireResponse, Backend, FencingToken, LockName, Locks, QueueMode};

use holder::{AcquisitionId, Holder, Pause, Written};
use resource::{MySqlRow, PostgresRow, RedisValue, Resource, SqliteRow};
use setup::{Kind, TestBackend, acquire_request, fresh, lock_ref};

/// Pauses on each backend unless the environment asks for more.
const PAUSES: u32 = 45;
/// The number of locks at a time: each pause takes a lease.
const LOCKS: u32 = 15;
/// The lease of the stopped holder.
const LEASE: Duration = Duration::from_millis(100);

/// The results of the pauses.
#[derive(Debug, Default)]
struct Tally {
    pauses: AtomicU32,
    /// Stopped holders whose write was refused.
    refused: AtomicU32,
    lost: AtomicU32,
}

/// One lock and what it protects.
struct Ground<R> {
    backend: Arc<dyn Backend>,
    locks: Locks,
    name: String,
    resource: R,
}

impl<R: Resource> Ground<R> {
    async fn pause(&self, pause: Pause, id: AcquisitionId, tally: &Tally) {
        let start = self.resource.read().await;
        let (name, fencing_token) = self.take().await;
        let mut stopped = Holder::new(&self.resource, &name, fencing_token, id);
        stopped.stop_at(pause.stop).await;
        let guard = self.locks.lock(&self.name).await.unwrap();
        assert!(
            guard.fencing_token() > fencing_token,
            "{} after {fencing_token}",
            guard.fencing_token()
        );
        let next = Holder::new(&self.resource, guard.name(), guard.fencing_token(), id);
        let written = next.work_beside(&mut stopped, pause.resume).await;
        drop(stopped);
        let _outcome = guard.release().await.unwrap();
        let end = self.resource.read().await;
        tally.pauses.fetch_add(1, Ordering::Relaxed);
        tally.refused.fetch_add(u32::from(written == Written::ByOne), Ordering::Relaxed);
        tally.lost.fetch_add(u32::from(end != start + written.updates()), Ordering::Relaxed);
    }
}

impl<R: Resource> Ground<R> {
    /// Makes an acquisition that is not renewed. The holder before has released the lock. A
    /// repeated request finds the same acquisition.
    async fn take(&self) -> (LockName, FencingToken) {
        let mut request = acquire_request(&lock_ref(&self.name), QueueMode::NoWait);
        request.lease = LEASE;
        loop {
            match self.backend.acquire(&request).await {
                Ok(AcquireResponse::Granted { fencing_token, .. }) => {
                    return (request.name, fencing_token);
                }
                Ok(busy @ AcquireResponse::Busy { .. }) => panic!("{busy:?}"),
                Err(error) => assert!(!error.is_final(), "{error}"),
            }
        }
    }
}

/// Pauses of every kind in turn, on many locks at a time.
async fn pauses<R: Resource>(setup: &TestBackend, id: AcquisitionId, resources: Vec<R>) -> Tally {
    let pauses = std::env::var("HANDFAST_TEST_PAUSES").ok().map(|text| text.parse().unwrap());
    let pauses: u32 = pauses.unwrap_or(PAUSES);
    let (tally, begun) = (Tally::default(), AtomicU32::new(0));
    let locks = setup.locks();
    let work = resources.into_iter().map(|resource| {
        let (backend, locks) = (Arc::clone(&setup.backend), locks.clone());
        let ground = Ground { backend, locks, name: fresh(), resource };
        let (tally, begun) = (&tally, &begun);
        async move {
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if number >= pauses {
                    return;
                }
                ground.pause(Pause::numbered(number), id, tally).await;
            }
        }
    });
    join_all(work).await;
    tally
}

/// Runs both, each with resources of its own.
async fn no_update_is_lost<R: Resource>(kind: Kind, made: impl AsyncFn() -> Vec<R>) {
    let setup = TestBackend::new(kind).await;
    let claimed = pauses(&setup, AcquisitionId::Claimed, made().await).await;
    let compared = pauses(&setup, AcquisitionId::ComparedAtTheWrite, made().await).await;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{kind:?}: claimed {claimed:?}, compared {compared:?}").unwrap();
    assert_eq!(claimed.lost.into_inner(), 0, "{kind:?}");
    assert!(compared.lost.into_inner() > 0, "{kind:?}: the pauses prove nothing");
    assert!(claimed.refused.into_inner() > 0, "{kind:?}: no holder came too late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pause_loses_an_update_on_postgres() {
    no_update_is_lost(Kind::Postgres, async || PostgresRow::made(LOCKS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pause_loses_an_update_on_mysql() {
    no_update_is_lost(Kind::MySql, async || MySqlRow::made(LOCKS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pause_loses_an_update_on_sqlite() {
    no_update_is_lost(Kind::Sqlite, async || SqliteRow::made(LOCKS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pause_loses_an_update_on_redis() {
    no_update_is_lost(Kind::Redis, async || RedisValue::made(LOCKS).await).await;
}

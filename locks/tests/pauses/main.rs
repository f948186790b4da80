//! Holders who are stopped for longer than their lease, at every place between their lock and their
//! write, by the thousand: with a claim no update is lost; with the token compared at the write
//! alone, some are.
//!
//! A holder is stopped by not being polled: he has an acquisition that nobody renews, and his next
//! step comes when the test says so. What follows him is a client like any other, who waits until
//! the lease has ended. Real processes that are stopped by a signal are in `tests/processes`.
//!
//! `HANDFAST_TEST_PAUSES` says how many pauses there are on each backend, `cargo xtask pauses` runs
//! them by the ten thousand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod holder;
mod resource;
#[path = "../conformance/stage.rs"]
#[allow(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use handfast_locks::{Answer, Backend, Fence, LockName, Locks, Place};
use tokio::time::sleep;

use holder::{Holder, Pause, Token, Written};
use resource::{MySqlRow, PostgresRow, RedisValue, Resource, SqliteRow};
use stage::{Kind, Stage, ask, fresh, hold};

/// Pauses on each backend unless the environment asks for more.
const PAUSES: u32 = 45;
/// So many locks at a time: each pause takes a lease.
const LOCKS: u32 = 15;
/// Of the holder who is stopped.
const LEASE: Duration = Duration::from_millis(100);

/// What came of the pauses.
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
    async fn pause(&self, pause: Pause, token: Token, tally: &Tally) {
        let start = self.resource.read().await;
        let (name, fence) = self.take().await;
        let mut stopped = Holder::new(&self.resource, &name, fence, token);
        stopped.stop_at(pause.stop).await;
        let guard = self.locks.lock(&self.name).await.unwrap();
        assert!(guard.fence() > fence, "{} after {fence}", guard.fence());
        let next = Holder::new(&self.resource, guard.name(), guard.fence(), token);
        let written = next.work_beside(&mut stopped, pause.resume).await;
        drop(stopped);
        drop(guard);
        let end = self.resource.read().await;
        tally.pauses.fetch_add(1, Ordering::Relaxed);
        tally.refused.fetch_add(u32::from(written == Written::ByOne), Ordering::Relaxed);
        tally.lost.fetch_add(u32::from(end != start + written.updates()), Ordering::Relaxed);
    }
}

impl<R: Resource> Ground<R> {
    /// An acquisition that nobody renews. Asked again, it is the same one.
    async fn take(&self) -> (LockName, Fence) {
        let mut ask = ask(&hold(&self.name), Place::None);
        ask.lease = LEASE;
        loop {
            match self.backend.ask(&ask).await {
                Ok(Answer::Granted { fence, .. }) => return (ask.name, fence),
                // The holder before is letting go.
                Ok(Answer::Busy { .. }) => sleep(Duration::from_millis(5)).await,
                Err(error) => assert!(!error.is_final(), "{error}"),
            }
        }
    }
}

/// Pauses of every kind in turn, on many locks at a time.
async fn pauses<R: Resource>(stage: &Stage, token: Token, resources: Vec<R>) -> Tally {
    let pauses = std::env::var("HANDFAST_TEST_PAUSES").ok().map(|text| text.parse().unwrap());
    let pauses: u32 = pauses.unwrap_or(PAUSES);
    let (tally, begun) = (Tally::default(), AtomicU32::new(0));
    let locks = stage.locks();
    let work = resources.into_iter().map(|resource| {
        let (backend, locks) = (Arc::clone(&stage.backend), locks.clone());
        let ground = Ground { backend, locks, name: fresh(), resource };
        let (tally, begun) = (&tally, &begun);
        async move {
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if number >= pauses {
                    return;
                }
                ground.pause(Pause::numbered(number), token, tally).await;
            }
        }
    });
    join_all(work).await;
    tally
}

/// Both runs, with resources made anew for each.
async fn no_update_is_lost<R: Resource>(kind: Kind, made: impl AsyncFn() -> Vec<R>) {
    let stage = Stage::new(kind).await;
    let claimed = pauses(&stage, Token::Claimed, made().await).await;
    let compared = pauses(&stage, Token::ComparedAtTheWrite, made().await).await;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{kind:?}: claimed {claimed:?}, compared {compared:?}").unwrap();
    assert_eq!(claimed.lost.into_inner(), 0, "{kind:?}");
    assert!(compared.lost.into_inner() > 0, "{kind:?}: the pauses prove nothing");
    assert!(claimed.refused.into_inner() > 0, "{kind:?}: nobody came too late");
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

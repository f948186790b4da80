//! The work of a child.

use std::sync::Arc;
use std::time::Duration;

use handfast::Handfast;
use handfast_locks::fencing::claim;
use handfast_locks::{
    Backend, Guarantee, LockError, Locks, Moment, MySqlLocks, PostgresLocks, ReleaseOutcome,
    SqliteLocks, ZooKeeperLocks,
};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;

use crate::child::report;
use crate::history::Stay;
use crate::setup::{etcd_locks, redis_locks, redlock};

/// The parts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Increments the counter under the lock, again and again.
    Count,
    /// Takes the lock and holds it until it is lost; then tries to write.
    Hold,
}

/// The settings of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) part: Part,
    pub(crate) url: String,
    pub(crate) name: String,
    /// A SQLite database that the lock protects.
    pub(crate) resource: String,
    /// A file with a number that the lock protects.
    pub(crate) counter: String,
    pub(crate) lease_ms: u64,
    pub(crate) tasks: usize,
    pub(crate) rounds: usize,
}

pub(crate) async fn play(script: Script) {
    let lease = Duration::from_millis(script.lease_ms);
    let backend = connect(&script.url, lease).await;
    let locks = Locks::over(backend).guarantee(Guarantee::Efficiency).lease(lease).start().unwrap();
    match script.part {
        Part::Count => count(&locks, &script).await,
        Part::Hold => hold(&locks, &script).await,
    }
    // The child stays until the parent has read everything.
    std::future::pending::<()>().await;
}

async fn connect(url: &str, lease: Duration) -> Arc<dyn Backend> {
    if let Some(members) = url.strip_prefix("etcd:") {
        return Arc::new(etcd_locks(members).await);
    }
    if let Some(cluster) = url.strip_prefix("zookeeper:") {
        return Arc::new(ZooKeeperLocks::connect(cluster, lease).await.unwrap());
    }
    match url.split(':').next().unwrap() {
        "http" => Arc::new(Handfast::connect(url).await.unwrap().locks()),
        "postgres" => Arc::new(PostgresLocks::connect(url).await.unwrap()),
        "mysql" => Arc::new(MySqlLocks::connect(url).await.unwrap()),
        "sqlite" => Arc::new(SqliteLocks::connect(url).await.unwrap()),
        "redis" if url.contains(',') => Arc::new(redlock(url).await),
        "redis" => Arc::new(redis_locks(url).await),
        other => unreachable!("no backend is called {other}"),
    }
}

async fn count(locks: &Locks, script: &Script) {
    let tasks = (0..script.tasks).map(|_| async {
        for _ in 0..script.rounds {
            let guard = locks.lock(&script.name).await.unwrap();
            let (fencing_token, from) = (guard.fencing_token().number(), Moment::now());
            let number: u64 = std::fs::read_to_string(&script.counter).unwrap().parse().unwrap();
            tokio::task::yield_now().await;
            std::fs::write(&script.counter, (number + 1).to_string()).unwrap();
            let to = Moment::now();
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
            report(&Stay { fencing_token, from, to }.write());
        }
    });
    futures::future::join_all(tasks).await;
}

async fn hold(locks: &Locks, script: &Script) {
    let guard = locks.lock(&script.name).await.unwrap();
    report(&format!("held {}", guard.fencing_token()));
    guard.lost().await;
    assert!(!guard.is_held());
    report("lost");
    // A holder that does not listen for the loss is refused at the resource.
    let pool = SqlitePool::connect(&script.resource).await.unwrap();
    let mut local = pool.begin().await.unwrap();
    match claim(&mut local, guard.name(), guard.fencing_token()).await {
        Err(LockError::Stale { .. }) => report("refused"),
        other => report(&format!("{other:?}")),
    }
}

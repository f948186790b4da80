//! How long a client waits when the leader changes, killed or in order.
//!
//! One client of the library runs transactions of one branch, one after the other. Its longest wait
//! between two commits, from the moment of the change on, is what a caller sees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use handfast::{AtResource, Handfast};
use sqlx::Sqlite;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::cluster::SharedCluster;
use crate::at::{BenchDatabase, Fresh, Statement, branch};
use crate::goal::Goal;
use crate::load::Shape;
use crate::measure::RunDirectory;
use crate::recovery;
use crate::report::Row;
use crate::statistics::Spread;

/// The coordinators: two take turns, and the third makes room for a restart.
const NODES: usize = 3;
/// Commits under a leader before the next change.
const COMMITS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const COMMITS_WITHIN: Duration = Duration::from_secs(60);

/// A way in which the leader changes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Killed,
    Planned,
}

impl Change {
    const ALL: [Self; 2] = [Self::Killed, Self::Planned];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "leader killed",
            Self::Planned => "leader ended by SIGTERM",
        }
    }

    /// Returns the goal for the longest wait, in seconds.
    fn wanted(self) -> f64 {
        match self {
            Self::Killed => 2.0,
            Self::Planned => 0.2,
        }
    }
}

/// Measures both ways in which the leader changes.
pub(super) async fn measure<DB: BenchDatabase>(
    url: &str,
    globals: u64,
    changes: usize,
    place: &RunDirectory,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for change in Change::ALL {
        let mut cluster = SharedCluster::<DB>::start(url, place, NODES).await?;
        let leader = cluster.leader().await?;
        recovery::fill(leader, globals, |_| Shape::begin()).await.context("filling the store")?;
        let mut waits = Vec::new();
        let mut failed = 0;
        for _ in 0..changes {
            let (wait, errors) = wait_of(&mut cluster, change).await?;
            waits.push(wait.as_secs_f64());
            failed += errors;
        }
        cluster.end(url).await?;
        let name = format!("{}, {globals} unfinished globals, {}", DB::PRODUCT, change.name());
        rows.push(row(name, change, waits, failed));
    }
    Ok(rows)
}

fn row(name: String, change: Change, waits: Vec<f64>, failed: usize) -> Row {
    let runs = waits.len();
    let waits = Spread::of(waits);
    let what = "longest wait for a commit, seconds";
    let goal = Goal::at_most(what, change.wanted(), waits.median, "the median of all changes");
    let failed = Spread::of([failed as f64]);
    let figures = [(what.to_owned(), waits), ("transactions without effect".to_owned(), failed)];
    Row { name, runs, figures: BTreeMap::from(figures), goals: vec![goal], ..Row::default() }
}

/// Changes the leader once, and returns the client's longest wait, and how many transactions ended
/// without effect.
async fn wait_of<DB: BenchDatabase>(
    cluster: &mut SharedCluster<DB>,
    change: Change,
) -> Result<(Duration, usize)> {
    let leader = cluster.leading().await?;
    let client = Client::connect(cluster).await?;
    // The client commits under the old leader first, so that connecting is no part of the wait.
    client.until_commits(COMMITS).await?;
    let from = Instant::now();
    match change {
        Change::Killed => cluster.nodes[leader].kill()?,
        Change::Planned => cluster.nodes[leader].terminate()?,
    }
    let before = client.ends().commits.len();
    client.until_commits(before + 1).await?;
    cluster.nodes[leader].wait().await?;
    cluster.leading().await?;
    let before = client.ends().commits.len();
    // A wait is known only at its commit, so a second wait would be missed without further
    // commits.
    client.until_commits(before + COMMITS).await?;
    let measured = client.ends().longest_wait(from);
    client.end().await?;
    cluster.restart(leader).await?;
    Ok(measured)
}

/// The moments at which transactions ended.
#[derive(Debug, Default)]
struct Ends {
    commits: Vec<Instant>,
    failures: Vec<Instant>,
}

impl Ends {
    fn longest_wait(&self, from: Instant) -> (Duration, usize) {
        let mut last = from;
        let mut longest = Duration::ZERO;
        for &commit in self.commits.iter().filter(|commit| **commit > from) {
            longest = longest.max(commit - last);
            last = commit;
        }
        (longest, self.failures.len())
    }
}

/// A client that runs transactions until it is ended.
struct Client {
    handfast: Handfast,
    ends: Arc<Mutex<Ends>>,
    task: JoinHandle<()>,
    _database: Fresh<Sqlite>,
}

impl Client {
    async fn connect<DB: BenchDatabase>(cluster: &SharedCluster<DB>) -> Result<Self> {
        let mut endpoints = cluster.nodes.iter().map(|node| node.endpoint());
        let first = endpoints.next().context("there is no coordinator")?;
        let connect = endpoints.fold(Handfast::connect(first), |it, next| it.endpoint(next));
        let handfast = connect.application("bench").await?;
        let database = Sqlite::create("", cluster.directory.path(), 2).await?;
        database.fill().await?;
        handfast.migrate(&database.pool).await?;
        let resource = handfast.at(database.pool.clone()).await?;
        let ends = Arc::<Mutex<Ends>>::default();
        let task = tokio::spawn(work(handfast.clone(), resource, Arc::clone(&ends)));
        Ok(Self { handfast, ends, task, _database: database })
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        lock(&self.ends)
    }

    async fn until_commits(&self, count: usize) -> Result<()> {
        let reached = async {
            while self.ends().commits.len() < count {
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(COMMITS_WITHIN, reached).await.context("transactions stay away")
    }

    async fn end(self) -> Result<()> {
        self.task.abort();
        // Aborted: the error says so.
        let _ = self.task.await;
        self.handfast.close().await;
        Ok(())
    }
}

async fn work(handfast: Handfast, resource: AtResource<Sqlite>, ends: Arc<Mutex<Ends>>) {
    for item in 0.. {
        let done = transact(&handfast, &resource, item).await;
        let mut ends = lock(&ends);
        match done {
            Ok(()) => ends.commits.push(Instant::now()),
            Err(_) => ends.failures.push(Instant::now()),
        }
    }
}

async fn transact(handfast: &Handfast, resource: &AtResource<Sqlite>, item: i64) -> Result<()> {
    let global = handfast.transaction("bench").begin().await?;
    global.scope(branch(resource, Statement::Point, item)).await?;
    global.commit().await?;
    Ok(())
}

fn lock(ends: &Mutex<Ends>) -> MutexGuard<'_, Ends> {
    ends.lock().expect("no holder of this lock panics")
}

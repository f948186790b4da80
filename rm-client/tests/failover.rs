//! A client of several coordinators, of which the leader goes while transactions run.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod at;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use at::TestDatabase;
use at::bank::Bank;
use handfast::{AtResource, Handfast, TransactionError};
use handfast_test_services::{ClusterNode, ClusterStore, cluster_config, until};
use sqlx::{ConnectOptions, MySql, Pool, Postgres};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const WORKERS: u64 = 3;
/// Transactions that commit under each leader.
const COMMITS: u64 = 6;

/// Runs each case with coordinator and accounts on each kind of database.
macro_rules! on_each_shared_database {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<super::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<super::MySql>().await })* }
    };
}

on_each_shared_database!(
    transactions_go_on_when_leaders_are_killed,
    transactions_do_not_notice_planned_changes,
);

/// Three coordinators on one database, and a client that knows all of them.
struct Cluster<DB: TestDatabase> {
    nodes: Vec<ClusterNode>,
    handfast: Handfast,
    bank: Arc<Bank<DB>>,
    resource: AtResource<DB>,
    /// The coordinators' files.
    _folder: TempDir,
    _store: Pool<DB>,
}

/// The ends of transactions so far. Each inserts a row of its own.
#[derive(Debug, Default)]
struct Ends {
    committed: BTreeSet<u64>,
    rolled_back: BTreeSet<u64>,
}

impl<DB: TestDatabase> Cluster<DB> {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (store, _) = DB::create().await;
        let shared = ClusterStore::Sql(store.connect_options().to_url_lossy().to_string());
        let mut nodes = Vec::new();
        for name in ["one", "two", "three"] {
            nodes.push(ClusterNode::start(cluster_config(&shared, folder.path(), name)).await);
        }
        let [one, two, three] = [0, 1, 2].map(|node: usize| nodes[node].endpoint());
        let connect = Handfast::connect(one).endpoint(two).endpoint(three);
        let handfast = connect.back_off(Duration::from_millis(20), Duration::from_millis(200));
        let handfast = handfast.lazy().unwrap();
        let bank = Arc::new(Bank::new(&handfast).await);
        let resource = handfast.at(bank.pool.clone()).await.unwrap();
        Self { nodes, handfast, bank, resource, _folder: folder, _store: store }
    }

    /// Returns the node that leads.
    async fn leader(&self) -> usize {
        let mut found = None;
        until("a node leads", async || {
            for (place, node) in self.nodes.iter().enumerate() {
                if node.leads().await {
                    found = Some(place);
                }
            }
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Runs transactions until `stop`, and counts those that commit.
    fn work(&self, stop: &Arc<AtomicBool>, commits: &Arc<AtomicU64>) -> Vec<JoinHandle<Ends>> {
        let worker = |worker| {
            let (handfast, resource) = (self.handfast.clone(), self.resource.clone());
            let (stop, commits) = (Arc::clone(stop), Arc::clone(commits));
            tokio::spawn(async move {
                let mut ends = Ends::default();
                for number in 0_u64.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = 1_000 * worker + number;
                    match transfer(&handfast, &resource, worker, id).await {
                        Ok(()) => {
                            commits.fetch_add(1, Ordering::SeqCst);
                            ends.committed.insert(id);
                        }
                        Err(error) => drop(ends.rolled_back.insert(rolled_back(&error, id))),
                    }
                }
                ends
            })
        };
        (1..=WORKERS).map(worker).collect()
    }

    /// Checks that exactly the committed transactions have left their rows.
    async fn assert_exact(&self, ends: &Ends) {
        for row in self.bank.accounts().await {
            let id: u64 = row[0].as_deref().unwrap().parse().unwrap();
            assert!(id <= WORKERS || ends.committed.contains(&id), "{id} is not committed");
        }
        for id in &ends.committed {
            assert!(self.bank.has(i64::try_from(*id).unwrap()).await, "{id} is committed");
        }
        assert_eq!(self.bank.sum().await, 3_000);
        until("no undo log is left", async || self.bank.undo_rows().await.0 == 0).await;
    }
}

/// Takes a cent from an account into a row of its own, in two branches.
async fn transfer<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    account: u64,
    id: u64,
) -> Result<(), TransactionError<sqlx::Error>> {
    let take = format!("UPDATE account SET cents = cents - 1 WHERE id = {account}");
    let put = format!("INSERT INTO account (id, cents) VALUES ({id}, 1)");
    let work = async move |_tx| {
        DB::run_alone(resource, &take).await?;
        DB::run_alone(resource, &put).await.map(drop)
    };
    handfast.transaction("transfer").timeout(Duration::from_secs(120)).run(work).await
}

/// Checks that a failed transaction is known to have had no effect: it was rolled back, or had no
/// branch when its coordinator was killed.
fn rolled_back(error: &TransactionError<sqlx::Error>, id: u64) -> u64 {
    let has_no_effect =
        matches!(error, TransactionError::RolledBack { .. } | TransactionError::Forgotten { .. });
    assert!(has_no_effect, "{id}: {error:?}");
    id
}

/// Lets transactions run over changes of the leader, and returns how they ended.
async fn run_over<DB: TestDatabase>(
    cluster: &mut Cluster<DB>,
    change: impl AsyncFn(&mut ClusterNode),
) -> Ends {
    let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let workers = cluster.work(&stop, &commits);
    for leaders in 1..=3 {
        let wanted = leaders * COMMITS * WORKERS;
        until("transactions commit", async || commits.load(Ordering::SeqCst) >= wanted).await;
        if leaders < 3 {
            let leader = cluster.leader().await;
            change(&mut cluster.nodes[leader]).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let mut all = Ends::default();
    for worker in workers {
        let mut ends = worker.await.unwrap();
        all.committed.append(&mut ends.committed);
        all.rolled_back.append(&mut ends.rolled_back);
    }
    all
}

async fn transactions_go_on_when_leaders_are_killed<DB: TestDatabase>() {
    let mut cluster = Cluster::<DB>::start().await;
    let ends = run_over(&mut cluster, ClusterNode::kill).await;
    cluster.assert_exact(&ends).await;
}

async fn transactions_do_not_notice_planned_changes<DB: TestDatabase>() {
    let mut cluster = Cluster::<DB>::start().await;
    let ends = run_over(&mut cluster, ClusterNode::stop).await;
    cluster.assert_exact(&ends).await;
    assert_eq!(ends.rolled_back, BTreeSet::new());
}

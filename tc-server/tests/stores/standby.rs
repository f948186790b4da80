//! A database that fails over to its standby: PostgreSQL's streaming replication.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::Epoch;
use handfast_server::store::{SqlSettings, SqlStore, Store};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind, until};
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::gate::{Gate, LIMIT};
use crate::sql_under_test::{Kind, Postgres, Sql};
use crate::store_under_test::{LONG, SharedStore, named, names, node, put};

/// How long it is seen that a store waits for a primary.
const SEEN_WAITING: Duration = Duration::from_millis(1_500);

/// A primary, and its standby behind a gate that replication passes.
struct ReplicatedDatabase {
    shared: Sql<Postgres>,
    primary: DatabaseServer,
    standby: DatabaseServer,
    replication: Gate,
}

impl ReplicatedDatabase {
    async fn start() -> Self {
        let place = ServerDirectory::new().unwrap();
        let start = || DatabaseServer::start(ServerKind::Postgres, &place, &|| Ok(())).unwrap();
        let primary = block_in_place(start);
        let shared = Sql::<Postgres>::on(&primary.url()).await;
        let address = primary.address();
        let replication = Gate::to((address.ip().to_string(), address.port())).await;
        let copy = || DatabaseServer::standby_of(replication.address(), &place).unwrap();
        let standby = block_in_place(copy);
        let replicated = Self { shared, primary, standby, replication };
        replicated.until_it_streams("async").await;
        replicated
    }

    async fn until_it_streams(&self, state: &str) {
        let count =
            format!("SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = '{state}'");
        until("the standby streams", async || self.shared.number(&count).await == 1).await;
    }

    /// Lets each commit wait for the standby.
    async fn replicate_synchronously(&self) {
        self.shared.execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.shared.execute("SELECT pg_reload_conf()").await;
        self.until_it_streams("sync").await;
    }

    /// Returns the URL of the database in the standby.
    fn standby_url(&self) -> String {
        let address = self.standby.address();
        self.shared.url_at(&address.ip().to_string(), address.port())
    }

    /// Kills the primary, and leads the processes to the standby, which does not write yet.
    fn lose_primary(&mut self, gates: &[&Gate]) {
        block_in_place(|| self.primary.kill().unwrap());
        gates.iter().for_each(|gate| gate.lead_to(self.standby.address()));
    }

    async fn promote(&self) {
        Postgres::execute(&self.standby_url(), "SELECT pg_promote()".to_owned()).await;
    }
}

/// A leader in the middle of its epoch, and a process that is to lead, meet a standby that is not
/// promoted yet. A process that starts then is refused, as with any URL that names a standby.
/// Regression: so was one that was to lead again, which had lost its lease with the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_has_everything() {
    let mut database = ReplicatedDatabase::start().await;
    database.replicate_synchronously().await;
    let (process, other) =
        (database.shared.process(LONG).await, database.shared.process(LONG).await);
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(1, "before")).await.unwrap();
    database.lose_primary(&[&process.gate, &other.gate]);
    let store = Arc::clone(&process.store);
    let mut commit = tokio::spawn(async move { store.commit(epoch, put(2, "meanwhile")).await });
    let store = Arc::clone(&other.store);
    let mut leading = tokio::spawn(async move { store.lead(Epoch(0)).await });
    assert!(timeout(SEEN_WAITING, &mut commit).await.is_err(), "a standby stores nothing");
    assert!(timeout(SEEN_WAITING, &mut leading).await.is_err(), "a standby is waited for");
    let refused = SqlStore::open(SqlSettings::new(database.standby_url(), node(9))).await;
    assert!(refused.unwrap_err().to_string().contains("it is a standby"));
    database.promote().await;

    timeout(LIMIT, commit).await.unwrap().unwrap().unwrap();
    process.store.confirm(epoch).await.unwrap();
    process.store.commit(epoch, put(3, "after")).await.unwrap();
    process.store.resign(epoch).await;
    let (_, records) = timeout(LIMIT, leading).await.unwrap().unwrap().unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (2, "meanwhile"), (3, "after")]));
}

/// Regression: a follower took a standby that had yet to apply what its primary had acknowledged
/// for a store that went back, and ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_late_is_waited_for() {
    let mut database = ReplicatedDatabase::start().await;
    database.replicate_synchronously().await;
    let (leader, follower) =
        (database.shared.process(LONG).await, database.shared.process(LONG).await);
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    let store = Arc::clone(&follower.store);
    let mut leading = tokio::spawn(async move { store.lead(Epoch(0)).await });
    // The standby goes on to write what comes, which is all that the primary waits for.
    let url = database.standby_url();
    Postgres::execute(&url, "SELECT pg_wal_replay_pause()".to_owned()).await;
    leader.store.commit(epoch, put(1, "late")).await.unwrap();
    assert!(timeout(SEEN_WAITING, &mut leading).await.is_err(), "another process leads");
    database.lose_primary(&[&leader.gate, &follower.gate]);
    assert!(timeout(SEEN_WAITING, &mut leading).await.is_err(), "a standby is waited for");
    Postgres::execute(&url, "SELECT pg_wal_replay_resume()".to_owned()).await;
    database.promote().await;
    leader.store.resign(epoch).await;
    let (_, records) = timeout(LIMIT, leading).await.unwrap().unwrap().unwrap();
    assert_eq!(names(&records), named(&[(1, "late")]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_that_was_behind_is_noticed() {
    let mut database = ReplicatedDatabase::start().await;
    let process = database.shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(1, "replicated")).await.unwrap();
    let (_, last) = database.shared.batches().await;
    let url = database.standby_url();
    let newest = "SELECT MAX(number) FROM tc_journal";
    until("the standby has it", async || {
        u64::try_from(Postgres::number(&url, newest.to_owned()).await).unwrap() == last
    })
    .await;
    database.replication.stop();
    process.store.commit(epoch, put(2, "acknowledged")).await.unwrap();
    database.lose_primary(&[&process.gate]);
    database.promote().await;

    let error = process.store.commit(epoch, put(3, "next")).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-WENT-BACK", "{error}");
    let error = process.store.lead(Epoch(0)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-WENT-BACK", "{error}");
    drop(process);
    Postgres::execute(&url, "UPDATE tc_lease SET until = now()".to_owned()).await;
    let accepting = SqlStore::open(SqlSettings::new(url, node(9))).await.unwrap();
    let leading = accepting.lead(Epoch(0));
    let (_, records) = timeout(LIMIT, leading).await.unwrap().unwrap();
    assert_eq!(names(&records), named(&[(1, "replicated")]));
}

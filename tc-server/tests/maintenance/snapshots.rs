//! Snapshots of stores that go on storing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handfast_core::{Change, Epoch, GlobalRecord, GlobalState, Labels, Record, Timestamp, Xid};
use handfast_server::store::{
    CoordinatorNode, EmbeddedStore, EtcdOptions, EtcdStore, EtcdStoreSettings, MemoryStore,
    RecordSource, SqlSettings, SqlStore, Store,
};
use handfast_test_services::ClusterStore;
use tempfile::TempDir;

use crate::shared::{Etcd, MariaDb, Postgres, Shared};

/// More than are read ahead of a reader that waits.
const RECORDS: u64 = 6_000;
const A_BATCH: u64 = 500;
/// Small enough for the journal to be carried over all the time.
const SEGMENT_BYTES: u64 = 256 << 10;

/// A store that is written and read at the same time.
trait OpenStore: Store + RecordSource {}

impl<S: Store + RecordSource> OpenStore for S {}

fn node() -> CoordinatorNode {
    CoordinatorNode {
        id: "one".to_owned(),
        version: "0.1.0".to_owned(),
        grpc: "10.0.0.1:7091".to_owned(),
        admin: "10.0.0.1:7092".to_owned(),
        seata: None,
    }
}

async fn open<S: Shared>() -> Arc<dyn OpenStore> {
    let lease = Duration::from_secs(3600);
    match S::create().await {
        ClusterStore::Sql(url) => {
            let mut settings = SqlSettings::new(url, node());
            // Each batch is followed by a compaction.
            (settings.lease, settings.tail_bytes, settings.compact_bytes) = (lease, 0, 1);
            settings.allow_unsafe = true;
            Arc::new(SqlStore::open(settings).await.unwrap())
        }
        ClusterStore::Etcd { endpoint, namespace } => {
            let etcd = EtcdOptions::new([endpoint]);
            let checkpoint_bytes = EtcdStoreSettings::CHECKPOINT_BYTES;
            let node = node();
            let settings = EtcdStoreSettings { etcd, namespace, node, lease, checkpoint_bytes };
            Arc::new(EtcdStore::open(settings).unwrap())
        }
    }
}

fn directory(directory: &Path) -> Arc<dyn OpenStore> {
    Arc::new(EmbeddedStore::open_with(directory, SEGMENT_BYTES).unwrap())
}

fn global(number: u64, name: &str) -> Record {
    Record::Global(GlobalRecord {
        xid: Xid(1 << 40 | number),
        address: "127.0.0.1:7091".into(),
        application: "order-service".into(),
        name: name.into(),
        begun_at: Timestamp(1),
        deadline: Timestamp(2),
        state: GlobalState::Active,
        paused: false,
        rollback_only: false,
        events: [].into(),
        labels: Labels::NONE,
        key: None,
        finished_branches: [].into(),
        trace: None,
    })
}

/// Commits a change of each number, in batches.
async fn commit_all(store: &dyn OpenStore, epoch: Epoch, change: impl Fn(u64) -> Change) {
    for from in (0..RECORDS).step_by(A_BATCH.try_into().unwrap()) {
        let batch = (from..from + A_BATCH).map(&change).collect();
        store.commit(epoch, batch).await.unwrap();
    }
}

/// A third of the records is changed, another one is deleted, and as many are added, before more
/// than the first pages are read.
async fn a_snapshot_shows_one_moment(store: Arc<dyn OpenStore>) {
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    commit_all(&*store, epoch, |number| Change::Put(global(number, "first"))).await;
    // Something that only the journal has.
    store.commit(epoch, vec![Change::Put(global(0, "latest"))]).await.unwrap();
    store.commit(epoch, vec![Change::Delete(global(1, "").key())]).await.unwrap();
    let before = store.snapshot().await.unwrap();
    assert_eq!(before.origin.epoch, epoch);
    let later = |number| match number % 3 {
        0 => Change::Put(global(number, "second")),
        1 => Change::Delete(global(number, "").key()),
        _ => Change::Put(global(RECORDS + number, "added")),
    };
    commit_all(&*store, epoch, later).await;
    let after = store.snapshot().await.unwrap();
    assert!(after.origin.number > before.origin.number);
    let expected = (0..RECORDS).filter(|number| *number != 1).map(|number| match number {
        0 => global(0, "latest"),
        _ => global(number, "first"),
    });
    assert!(before.records().await.unwrap() == expected.collect::<Vec<_>>());
    let found = after.records().await.unwrap();
    let kept = (0..RECORDS).filter(|number| number % 3 != 1).map(|number| match number % 3 {
        0 => global(number, "second"),
        _ => global(number, "first"),
    });
    let added = (0..RECORDS).filter(|number| number % 3 == 2);
    let added = added.map(|number| global(RECORDS + number, "added"));
    assert!(found == kept.chain(added).collect::<Vec<_>>(), "{} records", found.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_memory_shows_one_moment() {
    a_snapshot_shows_one_moment(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_a_directory_shows_one_moment() {
    let folder = TempDir::new().unwrap();
    a_snapshot_shows_one_moment(directory(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_postgres_shows_one_moment() {
    a_snapshot_shows_one_moment(open::<Postgres>().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_mariadb_shows_one_moment() {
    a_snapshot_shows_one_moment(open::<MariaDb>().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_etcd_shows_one_moment() {
    a_snapshot_shows_one_moment(open::<Etcd>().await).await;
}

/// A client that goes away in the midst of a backup leaves the directory free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_dropped_keeps_nothing() {
    let folder = TempDir::new().unwrap();
    let store = directory(folder.path());
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    commit_all(&*store, epoch, |number| Change::Put(global(number, "first"))).await;
    let mut snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.next().await.unwrap().is_some());
    drop(snapshot);
    tokio::task::spawn_blocking(move || drop(store)).await.unwrap();
    let again = directory(folder.path());
    assert_eq!(again.lead(Epoch(0)).await.unwrap().1.len() as u64, RECORDS);
}

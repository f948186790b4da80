//! `handfast check`: whole stores, in use and not, and stores that are not whole.

use std::fs;
use std::path::Path;

use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, Epoch, FencingToken, Mode, Record, Timestamp, Xid,
};
use handfast_server::store::{EmbeddedStore, Store};
use tempfile::TempDir;

use crate::places::{StoreLocation, done, refused};
use crate::shared::{Etcd, MariaDb, Postgres, Shared};
use crate::workload::Workload;

/// Returns the number behind a word at the beginning of a line.
fn counted(said: &str, word: &str) -> u64 {
    let line =
        said.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{said}"));
    line.trim().parse().unwrap()
}

fn assert_counts(said: &str) {
    for (word, count) in [
        ("globals ", 2),
        ("branches ", 2),
        ("sagas ", 1),
        ("named locks ", 1),
        ("undecided ", 2),
        ("committing ", 1),
        ("row locks ", 1),
    ] {
        assert_eq!(counted(said, word), count, "{word}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_counted_and_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::directory(folder.path(), "data");
    let server = place.start().await;
    let work = Workload::begin(server.grpc_address).await;
    refused(&["check", "--config", place.file()], 4, "HF-TC-STORE-IN-USE").await;
    server.shutdown().await.unwrap();
    let (said, before) = (done(&["check", "--config", place.file()]).await, place.bytes().await);
    assert_counts(&said);
    let again = done(&["check", "--config", place.file()]).await;
    assert_eq!((said, before), (again, place.bytes().await));
    let json = done(&["check", "--json", "--config", place.file()]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["records"]["globals"], &json["state"]["row_locks"]), (&2.into(), &1.into()));
    assert!(json["epoch"].is_u64() && json["store"].is_string(), "{json}");
    let server = place.start().await;
    work.check(server.grpc_address).await;
    server.shutdown().await.unwrap();
}

async fn a_shared_store_is_checked_while_it_is_used<S: Shared>() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::shared::<S>(folder.path(), "one").await;
    refused(&["check", "--config", place.file()], 8, "HF-TC-STORE-UNUSABLE").await;
    let server = place.start().await;
    let work = Workload::begin(server.grpc_address).await;
    let said = done(&["check", "--config", place.file()]).await;
    assert_counts(&said);
    work.check(server.grpc_address).await;
    let before = counted(&said, "epoch ");
    server.shutdown().await.unwrap();
    let after = done(&["check", "--config", place.file()]).await;
    assert_eq!(counted(&after, "epoch "), before, "no lead was taken");
    assert!(counted(&after, "last batch ") > counted(&said, "last batch "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_postgres_is_checked_while_it_is_used() {
    a_shared_store_is_checked_while_it_is_used::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_mariadb_is_checked_while_it_is_used() {
    a_shared_store_is_checked_while_it_is_used::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_etcd_is_checked_while_it_is_used() {
    a_shared_store_is_checked_while_it_is_used::<Etcd>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_without_a_store_stays_without_one() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::directory(folder.path(), "data");
    refused(&["check", "--config", place.file()], 3, "HF-TC-STORE-MISSING").await;
    assert!(!place.config.data_dir.exists());
    refused(&["check", "--store", "memory"], 4, "HF-TC-STORE-UNUSABLE").await;
}

/// Stores a record that no coordinator has written.
async fn store(directory: &Path, record: Record) {
    let store = EmbeddedStore::open(directory).unwrap();
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(epoch, vec![Change::Put(record)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_contradict_each_other_are_found() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::directory(folder.path(), "data");
    let orphan = BranchRecord {
        xid: Xid(1 << 40 | 1),
        id: BranchId(7),
        sequence: 0,
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        rows: Vec::new(),
        token: FencingToken(1),
        registered_at: Timestamp(1),
        application_data: Box::default(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    };
    store(&place.config.data_dir, Record::Branch(orphan)).await;
    let arguments = ["check", "--config", place.file()];
    let said = refused(&arguments, 8, "HF-TC-RECORDS-CONTRADICT").await;
    assert!(said.contains("branch 7"), "{said}");
}

/// Wherever a byte of the records' file is changed, the check finds that or what it read is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_directory_is_found() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::directory(folder.path(), "data");
    let server = place.start().await;
    Workload::begin(server.grpc_address).await;
    server.shutdown().await.unwrap();
    done(&["check", "--config", place.file()]).await;
    let file = place.config.data_dir.join("journal-0");
    fs::write(&file, b"").unwrap();
    refused(&["check", "--config", place.file()], 8, "HF-TC-JOURNAL-DAMAGED").await;
}

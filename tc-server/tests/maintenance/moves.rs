//! `handfast migrate-store`.

use tempfile::TempDir;

use crate::places::{StoreLocation, done, refused};
use crate::shared::{Etcd, MariaDb, Postgres};
use crate::workload::Workload;

async fn migrate(from: &StoreLocation, to: &StoreLocation) -> String {
    done(&["migrate-store", "--from", from.file(), "--to", to.file()]).await
}

async fn refused_move(from: &StoreLocation, to: &StoreLocation, exit: i32, code: &str) -> String {
    refused(&["migrate-store", "--from", from.file(), "--to", to.file()], exit, code).await
}

/// From a directory through every kind of store and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_back_as_they_were() {
    let folder = TempDir::new().unwrap();
    let places = [
        StoreLocation::directory(folder.path(), "first"),
        StoreLocation::shared::<Postgres>(folder.path(), "postgres").await,
        StoreLocation::shared::<MariaDb>(folder.path(), "mariadb").await,
        StoreLocation::shared::<Etcd>(folder.path(), "etcd").await,
        StoreLocation::directory(folder.path(), "last"),
    ];
    let server = places[0].start().await;
    let work = Workload::begin(server.grpc_address).await;
    server.shutdown().await.unwrap();
    let records = places[0].bytes().await;
    let mut epoch = places[0].stored().await.origin.epoch;
    for pair in places.windows(2) {
        let [from, to] = pair else { unreachable!("a window of two") };
        let said = migrate(from, to).await;
        assert!(said.starts_with("moved from "), "{said}");
        assert_eq!(to.bytes().await, records);
        let reached = to.stored().await.origin.epoch;
        assert!(reached > epoch, "{reached:?} after {epoch:?}");
        epoch = reached;
        assert_eq!(from.refused_start().await, "HF-TC-STORE-MOVED");
        let said = refused(&["check", "--config", from.file()], 4, "HF-TC-STORE-MOVED").await;
        let place = handfast_server::maintenance::place_of(&to.config);
        assert!(said.contains(&place), "{said} does not name {place}");
    }
    let server = places[4].start().await;
    work.check(server.grpc_address).await;
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_not_moved_and_not_filled() {
    let folder = TempDir::new().unwrap();
    let directory = StoreLocation::directory(folder.path(), "directory");
    let database = StoreLocation::shared::<Postgres>(folder.path(), "database").await;
    let etcd = StoreLocation::shared::<Etcd>(folder.path(), "etcd").await;
    let running = [directory.start().await, database.start().await, etcd.start().await];
    let empty = StoreLocation::directory(folder.path(), "empty");
    for place in [&directory, &database, &etcd] {
        refused_move(place, &empty, 4, "HF-TC-STORE-IN-USE").await;
    }
    let source = StoreLocation::directory(folder.path(), "source");
    source.start().await.shutdown().await.unwrap();
    for place in [&directory, &database, &etcd] {
        refused_move(&source, place, 4, "HF-TC-STORE-IN-USE").await;
    }
    for server in running {
        server.shutdown().await.unwrap();
    }
    // Nothing is closed.
    source.start().await.shutdown().await.unwrap();
    database.start().await.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_records_is_not_filled() {
    let folder = TempDir::new().unwrap();
    let from = StoreLocation::directory(folder.path(), "from");
    let to = StoreLocation::shared::<MariaDb>(folder.path(), "to").await;
    let mut works = Vec::new();
    for place in [&from, &to] {
        let server = place.start().await;
        works.push(Workload::begin(server.grpc_address).await);
        server.shutdown().await.unwrap();
    }
    refused_move(&from, &to, 4, "HF-TC-STORE-NOT-EMPTY").await;
    for (place, work) in [&from, &to].into_iter().zip(&works) {
        let server = place.start().await;
        work.check(server.grpc_address).await;
        server.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_without_records_is_not_moved() {
    let folder = TempDir::new().unwrap();
    let [from, to] = ["from", "to"].map(|name| StoreLocation::directory(folder.path(), name));
    refused_move(&from, &to, 3, "HF-TC-STORE-MISSING").await;
    assert!(!from.config.data_dir.exists() && !to.config.data_dir.exists());
    from.start().await.shutdown().await.unwrap();
    refused_move(&from, &from, 4, "HF-TC-STORE-NOT-EMPTY").await;
}

/// A data directory needs no configuration file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_named_by_themselves() {
    let folder = TempDir::new().unwrap();
    let [from, to] = ["from", "to"].map(|name| StoreLocation::directory(folder.path(), name));
    let server = from.start().await;
    let work = Workload::begin(server.grpc_address).await;
    server.shutdown().await.unwrap();
    let [source, target] = [&from, &to].map(|place| place.config.data_dir.to_str().unwrap());
    done(&["migrate-store", "--from", source, "--to", target]).await;
    let server = to.start().await;
    work.check(server.grpc_address).await;
    server.shutdown().await.unwrap();
}

/// A move that is killed leaves no two stores to go on from, and is completed by another run.
#[cfg(feature = "crash-points")]
mod killed {
    use super::*;
    use crate::places::{command, run};
    use crate::shared::Shared;

    async fn kill_at(point: &str, from: &StoreLocation, to: &StoreLocation) {
        let mut killed = command(&["migrate-store", "--from", from.file(), "--to", to.file()]);
        killed.env("TC_CRASH_POINT", point);
        let ended = run(killed).await;
        assert_eq!(ended.status.code(), None, "it was to be killed at {point}");
    }

    async fn a_killed_move_is_run_again(point: &str, from: &StoreLocation, to: &StoreLocation) {
        let server = from.start().await;
        let work = Workload::begin(server.grpc_address).await;
        server.shutdown().await.unwrap();
        let records = from.bytes().await;
        kill_at(point, from, to).await;
        assert_eq!(to.refused_start().await, "HF-TC-STORE-INCOMPLETE");
        let is_closed = point == "after-close";
        if is_closed {
            assert_eq!(from.refused_start().await, "HF-TC-STORE-MOVED");
        } else {
            assert_eq!(from.bytes().await, records);
        }
        migrate(from, to).await;
        assert_eq!(to.bytes().await, records);
        assert_eq!(from.refused_start().await, "HF-TC-STORE-MOVED");
        // The move is over: a third run must not take the target's place.
        refused_move(from, to, 4, "HF-TC-STORE-MOVED").await;
        let server = to.start().await;
        work.check(server.grpc_address).await;
        server.shutdown().await.unwrap();
    }

    async fn into_a_shared_store<S: Shared>(point: &str) {
        let folder = TempDir::new().unwrap();
        let from = StoreLocation::directory(folder.path(), "from");
        let to = StoreLocation::shared::<S>(folder.path(), "to").await;
        a_killed_move_is_run_again(point, &from, &to).await;
    }

    async fn out_of_a_shared_store<S: Shared>(point: &str) {
        let folder = TempDir::new().unwrap();
        let from = StoreLocation::shared::<S>(folder.path(), "from").await;
        let to = StoreLocation::directory(folder.path(), "to");
        a_killed_move_is_run_again(point, &from, &to).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn amid_the_copy() {
        into_a_shared_store::<Postgres>("mid-copy").await;
        out_of_a_shared_store::<Etcd>("mid-copy").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn between_copy_and_closing() {
        into_a_shared_store::<Etcd>("after-copy").await;
        out_of_a_shared_store::<MariaDb>("after-copy").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn between_closing_and_opening() {
        into_a_shared_store::<MariaDb>("after-close").await;
        out_of_a_shared_store::<Postgres>("after-close").await;
    }
}

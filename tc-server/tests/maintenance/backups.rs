//! `handfast backup` and `handfast restore`.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_core::{GlobalState, Record};
use handfast_proto::v1::GlobalStatus;
use handfast_server::security::{NewToken, Role};
use handfast_server::serve::RunningServer;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::places::{StoreLocation, command, done, refused, run, text};
use crate::shared::{Etcd, MariaDb, Postgres, Shared};
use crate::workload::{Client, Workload, number};

/// Clients that work while a backup is made.
const CLIENTS: u64 = 4;
/// The globals that each has ended before a backup is made.
const ENDED_BEFORE: usize = 20;

fn server_of(server: &RunningServer) -> String {
    format!("http://{}", server.admin_address)
}

async fn back_up(server: &RunningServer, file: &Path) -> String {
    done(&["backup", "--to", file.to_str().unwrap(), "--server", &server_of(server)]).await
}

async fn restore(file: &Path, place: &StoreLocation) -> String {
    done(&["restore", "--from", file.to_str().unwrap(), "--config", place.file()]).await
}

/// Commits globals until it is asked to stop. Publishes their numbers when they are acknowledged.
async fn work(
    address: SocketAddr,
    client: u64,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<watch::Sender<BTreeSet<u64>>>,
) {
    let mut connection = Client::connect(address).await;
    for global in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let xid = connection.begin().await.unwrap();
        connection.register(&xid, 1 + client + CLIENTS * global).await.unwrap();
        assert_eq!(connection.commit(&xid).await.unwrap(), GlobalStatus::Committing);
        acknowledged.send_modify(|all| {
            all.insert(number(&xid));
        });
    }
}

/// Everything that was acknowledged before the backup is in it, whatever went on meanwhile; and the
/// restored coordinator gives out no number again.
async fn a_backup_under_load_has_what_was_acknowledged(
    from: &StoreLocation,
    to: &StoreLocation,
    folder: &Path,
) {
    let server = from.start().await;
    let address = server.grpc_address;
    let workload = Workload::begin(address).await;
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let acknowledged: &Arc<watch::Sender<BTreeSet<u64>>> = &acknowledged;
        clients.spawn(work(address, 10 + client, Arc::clone(&stop), Arc::clone(acknowledged)));
    }
    let mut seen = acknowledged.subscribe();
    seen.wait_for(|all| all.len() >= ENDED_BEFORE * 4).await.unwrap();
    let before = acknowledged.borrow().clone();
    let file = folder.join("backup");
    back_up(&server, &file).await;
    seen.wait_for(|all| all.len() > before.len() + ENDED_BEFORE).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    server.shutdown().await.unwrap();
    let said = restore(&file, to).await;
    assert!(said.contains("is lost"), "{said}");
    let stored = to.stored().await;
    let decided: BTreeSet<u64> = stored.records.iter().filter_map(committing).collect();
    let missing: Vec<_> = before.difference(&decided).collect();
    assert!(missing.is_empty(), "acknowledged and not in the backup: {missing:?}");
    let last = acknowledged.borrow().last().copied().unwrap();
    let restored = to.start().await;
    workload.check(restored.grpc_address).await;
    let xid = Client::connect(restored.grpc_address).await.begin().await.unwrap();
    assert!(number(&xid) >> 40 > (last >> 40) + 60_000, "{xid} after {last}");
    restored.shutdown().await.unwrap();
}

fn committing(record: &Record) -> Option<u64> {
    match record {
        Record::Global(global) if global.state == GlobalState::Committing => Some(global.xid.0),
        Record::Global(_)
        | Record::Branch(_)
        | Record::Saga(_)
        | Record::Lease(_)
        | Record::Closure(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_directory_under_load_is_whole() {
    let folder = TempDir::new().unwrap();
    let from = StoreLocation::directory(folder.path(), "from");
    let to = StoreLocation::shared::<Postgres>(folder.path(), "to").await;
    a_backup_under_load_has_what_was_acknowledged(&from, &to, folder.path()).await;
}

async fn a_backup_of_a_shared_store_under_load_is_whole<S: Shared>() {
    let folder = TempDir::new().unwrap();
    let from = StoreLocation::shared::<S>(folder.path(), "from").await;
    let to = StoreLocation::directory(folder.path(), "to");
    a_backup_under_load_has_what_was_acknowledged(&from, &to, folder.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_postgres_under_load_is_whole() {
    a_backup_of_a_shared_store_under_load_is_whole::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_mariadb_under_load_is_whole() {
    a_backup_of_a_shared_store_under_load_is_whole::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_etcd_under_load_is_whole() {
    a_backup_of_a_shared_store_under_load_is_whole::<Etcd>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_makes_a_backup_too() {
    let folder = TempDir::new().unwrap();
    let place = StoreLocation::shared::<Postgres>(folder.path(), "one").await;
    let leader = place.start().await;
    let work = Workload::begin(leader.grpc_address).await;
    let mut config = place.config.clone();
    config.cluster.node = Some("two".to_owned());
    config.data_dir = folder.path().join("two");
    let follower = handfast_server::serve::Server::launch(config).await.unwrap();
    let file = folder.path().join("backup");
    back_up(&follower, &file).await;
    follower.shutdown().await.unwrap();
    leader.shutdown().await.unwrap();
    let to = StoreLocation::directory(folder.path(), "to");
    restore(&file, &to).await;
    let restored = to.start().await;
    work.check(restored.grpc_address).await;
    restored.shutdown().await.unwrap();
}

/// A backup with some work in it, and the file's bytes.
async fn backup_of_some_work(folder: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let place = StoreLocation::directory(folder, "from");
    let server = place.start().await;
    Workload::begin(server.grpc_address).await;
    let file = folder.join("backup");
    back_up(&server, &file).await;
    server.shutdown().await.unwrap();
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_backup_is_refused_and_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    let (file, bytes) = backup_of_some_work(folder.path()).await;
    let to = StoreLocation::directory(folder.path(), "to");
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    let damages = [changed, bytes[..bytes.len() - 1].to_vec(), b"something else".to_vec()];
    let arguments = ["restore", "--from", file.to_str().unwrap(), "--config", to.file()];
    for damage in damages {
        fs::write(&file, damage).unwrap();
        refused(&arguments, 8, "HF-TC-BACKUP-DAMAGED").await;
        assert!(!to.config.data_dir.exists());
    }
    fs::write(&file, bytes).unwrap();
    done(&arguments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_or_not_empty_is_not_restored_into() {
    let folder = TempDir::new().unwrap();
    let (file, _) = backup_of_some_work(folder.path()).await;
    let file = file.to_str().unwrap();
    let directory = StoreLocation::directory(folder.path(), "from");
    let database = StoreLocation::shared::<Postgres>(folder.path(), "database").await;
    for place in [&directory, &database] {
        let arguments = ["restore", "--from", file, "--config", place.file()];
        let server = place.start().await;
        refused(&arguments, 4, "HF-TC-STORE-IN-USE").await;
        let mut client = Client::connect(server.grpc_address).await;
        let xid = client.begin().await.unwrap();
        client.register(&xid, 99).await.unwrap();
        server.shutdown().await.unwrap();
        let before = place.bytes().await;
        refused(&arguments, 4, "HF-TC-STORE-NOT-EMPTY").await;
        assert_eq!(place.bytes().await, before);
    }
}

/// An epoch that only an operator knows of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_store_goes_on_above_a_given_epoch() {
    let folder = TempDir::new().unwrap();
    let (file, _) = backup_of_some_work(folder.path()).await;
    let to = StoreLocation::directory(folder.path(), "to");
    let arguments = ["restore", "--from", file.to_str().unwrap(), "--config", to.file()];
    done(&[&arguments[..], &["--epoch-above", "5000000"]].concat()).await;
    assert!(to.stored().await.origin.epoch.0 > 5_000_000);
    let other = StoreLocation::directory(folder.path(), "other");
    let arguments = ["restore", "--from", file.to_str().unwrap(), "--config", other.file()];
    let beyond = [&arguments[..], &["--epoch-above", "16777215"]].concat();
    refused(&beyond, 8, "HF-TC-RECORDS-CONTRADICT").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_needs_an_operator_and_a_file_of_its_own() {
    let folder = TempDir::new().unwrap();
    let drawn = [Role::Viewer, Role::Operator].map(|role| NewToken::draw("alice", role).unwrap());
    let lines = drawn.each_ref().map(|token| token.line.clone()).join("\n");
    let mut place = StoreLocation::directory(folder.path(), "data");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, lines.replacen("alice", "bob", 1)).unwrap();
    place.config.security.tokens = Some(tokens);
    let server = place.start().await;
    let file = folder.path().join("backup");
    let address = server_of(&server);
    let arguments = ["backup", "--to", file.to_str().unwrap(), "--server", &address];
    let [viewer, operator] = drawn.map(|token| token.token);
    for (token, exit, code) in
        [(&viewer, 6, "HF-ADM-FORBIDDEN"), (&operator, 0, ""), (&operator, 1, "HF-CLI-FILE")]
    {
        let mut backup = command(&arguments);
        backup.env("HANDFAST_TOKEN", token.as_str());
        let output = run(backup).await;
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{errors}");
        assert!(errors.contains(code), "{errors}");
    }
    server.shutdown().await.unwrap();
    let audit = fs::read_to_string(place.config.data_dir.join("audit.jsonl")).unwrap();
    assert!(audit.contains(r#""action":"backup""#), "{audit}");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600, "it holds data of applications");
}

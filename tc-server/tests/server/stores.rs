//! Stores: acknowledged batches are found again, even after `kill -9`; one process at a time may
//! use a directory; a failed write is an error with a code.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, Epoch, FencingToken, GlobalRecord, GlobalState,
    Labels, LockMode, Mode, Record, RowLock, Timestamp, Xid,
};
use handfast_server::store::codec::{encode, encode_key};
use handfast_server::store::{EmbeddedStore, MemoryStore, Store, StoreError};
use redb::ReadableTable;

/// The variable that names the child process's directory.
const CHILD_DIRECTORY: &str = "HANDFAST_TEST_CHILD_DIRECTORY";
/// The size of journal segments that are full after a few batches.
pub(crate) const SMALL: u64 = 16 << 10;

/// Returns a global with this many branches.
pub(crate) fn records(number: u64, branches: u64) -> Vec<Record> {
    let xid = Xid(1 << 40 | number);
    let global = Record::Global(GlobalRecord {
        xid,
        address: "127.0.0.1:7091".into(),
        application: "order-service".into(),
        name: "place-order".into(),
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
    });
    let branch = |id| {
        Record::Branch(BranchRecord {
            xid,
            id: BranchId(id),
            sequence: 0,
            resource: "sqlite:orders".into(),
            mode: Mode::At,
            rows: vec![RowLock {
                table: "orders".into(),
                key: format!("{number}:{id}").into_bytes().into(),
                mode: LockMode::Exclusive,
            }],
            token: FencingToken(number),
            registered_at: Timestamp(1),
            application_data: vec![7; 50].into(),
            state: BranchState::Registered,
            attempts: 0,
            last_failure: None,
            registered_by: Some("process".into()),
            phase_one_at: None,
            events: [].into(),
            trace: None,
        })
    };
    std::iter::once(global).chain((1..=branches).map(branch)).collect()
}

pub(crate) fn puts(records: &[Record]) -> Vec<Change> {
    records.iter().cloned().map(Change::Put).collect()
}

pub(crate) fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(Record::key);
    records
}

async fn check_newest_leader_writes_and_finds_all(store: &dyn Store) {
    let (first, none) = store.lead(Epoch(0)).await.unwrap();
    assert!(none.is_empty());
    let (kept, deleted) = (records(1, 2), records(2, 1));
    store.commit(first, puts(&kept)).await.unwrap();
    store.commit(first, puts(&deleted)).await.unwrap();
    let deletes = deleted.iter().map(|record| Change::Delete(record.key())).collect();
    store.commit(first, deletes).await.unwrap();

    let (second, found) = store.lead(Epoch(0)).await.unwrap();
    assert!(second > first);
    assert_eq!(sorted(found), sorted(kept.clone()));
    let (third, _) = store.lead(Epoch(second.0 + 5)).await.unwrap();
    assert_eq!(third.0, second.0 + 5, "no earlier than the clock says");
    let late = store.commit(first, puts(&records(3, 1))).await;
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    assert_eq!(sorted(store.lead(Epoch(0)).await.unwrap().1), sorted(kept));
}

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    check_newest_leader_writes_and_finds_all(&MemoryStore::new()).await;
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    check_newest_leader_writes_and_finds_all(&store).await;
}

#[tokio::test]
async fn a_reopened_store_has_a_greater_epoch_and_the_same_records() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = Epoch(0);
    let mut expected = Vec::new();
    for number in 1..=3 {
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let (epoch, found) = store.lead(Epoch(0)).await.unwrap();
        assert!(epoch > last);
        assert_eq!(sorted(found), sorted(expected.clone()));
        store.commit(epoch, puts(&records(number, 1))).await.unwrap();
        expected.extend(records(number, 1));
        last = epoch;
    }
}

/// The records equal those of the memory store, through many segments of the journal, with batches
/// larger than a segment, and with a changed size of segments.
#[tokio::test]
async fn the_journal_and_the_records_are_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let model = MemoryStore::new();
    let (in_memory, _) = model.lead(Epoch(0)).await.unwrap();
    for (start, segment_bytes) in [SMALL, SMALL, 2 * SMALL, SMALL].into_iter().enumerate() {
        let store = EmbeddedStore::open_with(directory.path(), segment_bytes).unwrap();
        let (epoch, found) = store.lead(Epoch(0)).await.unwrap();
        assert_eq!(sorted(found), sorted(model.records()));
        for batch in 0..100 {
            let number = 100 * start as u64 + batch;
            let branches = if batch == 50 { 200 } else { 3 };
            let mut changes = puts(&records(number, branches));
            if let Some(earlier) = number.checked_sub(7) {
                let gone = records(earlier, 2);
                changes.extend(gone.iter().map(|record| Change::Delete(record.key())));
            }
            model.commit(in_memory, changes.clone()).await.unwrap();
            store.commit(epoch, changes).await.unwrap();
        }
    }
}

/// Acknowledged batches that cannot be read any more are not silently forgotten.
#[tokio::test]
async fn a_damaged_journal_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    for number in 1..=3 {
        store.commit(epoch, puts(&records(number, 1))).await.unwrap();
    }
    drop(store);
    let segment = directory.path().join("journal-0");
    let sound = std::fs::read(&segment).unwrap();
    // Behind the witness of the file.
    let place = (8 << 10) + 100;
    let mut damaged = sound.clone();
    damaged[place] ^= 1;
    std::fs::write(&segment, &damaged).unwrap();
    let error = EmbeddedStore::open(directory.path()).unwrap_err();
    assert_eq!(error.code(), "HF-TC-JOURNAL-DAMAGED");
    assert!(error.to_string().contains("batch 2 cannot be read"), "{error}");
    std::fs::remove_file(&segment).unwrap();
    let error = EmbeddedStore::open(directory.path()).unwrap_err();
    assert_eq!(error.code(), "HF-TC-JOURNAL-DAMAGED");
    assert!(error.to_string().contains("journal-0 is missing"), "{error}");
    std::fs::write(&segment, &sound).unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    assert_eq!(store.lead(Epoch(0)).await.unwrap().1.len(), 6);
}

/// Records from before there was a journal are found, and a journal is created.
#[tokio::test]
async fn a_directory_without_a_journal_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    let old = records(1, 2);
    {
        let database = fjall::Database::builder(directory.path().join("records")).open().unwrap();
        let keyspace = database.keyspace("records", fjall::KeyspaceCreateOptions::default).unwrap();
        for record in &old {
            keyspace.insert(encode_key(record.key()), encode(record)).unwrap();
        }
        keyspace.insert("epoch", 7_u64.to_be_bytes()).unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let store = EmbeddedStore::open_with(directory.path(), SMALL).unwrap();
    let (epoch, found) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!((epoch, sorted(found)), (Epoch(8), sorted(old)));
    store.commit(epoch, puts(&records(2, 0))).await.unwrap();
    drop(store);
    let store = EmbeddedStore::open_with(directory.path(), SMALL).unwrap();
    assert_eq!(store.lead(Epoch(0)).await.unwrap().1.len(), 4);
}

#[test]
fn a_directory_in_use_is_refused_with_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let error = EmbeddedStore::open(directory.path()).unwrap_err();
    assert_eq!(error.code(), "HF-TC-DATA-DIR-LOCKED");
    let expected = format!(
        "the data directory {} is in use by process {}",
        directory.path().display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(store);
    EmbeddedStore::open(directory.path()).unwrap();
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = EmbeddedStore::open(&file).unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-OPEN");
}

#[tokio::test]
async fn a_record_of_a_later_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(epoch, puts(&records(1, 0))).await.unwrap();
    drop(store);
    // A start carries the journal over into the records.
    drop(EmbeddedStore::open(directory.path()).unwrap());
    rewrite(&directory.path().join("records"));
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let error = store.lead(Epoch(0)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-RECORD-UNREADABLE");
}

/// Gives every record the version byte of a later version.
fn rewrite(path: &Path) {
    let database = redb::Database::open(path.join("records.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let table = redb::TableDefinition::<&[u8], &[u8]>::new("records");
        let mut records = transaction.open_table(table).unwrap();
        let pairs = records.iter().unwrap().map(Result::unwrap);
        let stored: Vec<_> =
            pairs.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).collect();
        for (key, value) in stored {
            let later = [&[2], &value[1..]].concat();
            records.insert(&key[..], &later[..]).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// Every batch acknowledged before the kill is found, and no batch is found in part.
#[tokio::test]
async fn a_killed_process_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for kill_after in [1, 40, 300] {
        let mut child =
            spawn_child(Command::new(std::env::current_exe().unwrap()), directory.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut numbers = lines.map_while(Result::ok).filter_map(|line| number(&line));
        let first = numbers.next().unwrap();
        assert!(first > acknowledged, "a number is not written twice");
        acknowledged = numbers.by_ref().take(kill_after).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Acknowledgements printed before the kill count too.
        acknowledged = numbers.last().unwrap_or(acknowledged);
        check_recovered(directory.path(), acknowledged).await;
    }
}

async fn check_recovered(directory: &Path, acknowledged: u64) {
    let store = EmbeddedStore::open_with(directory, SMALL).unwrap();
    let found = sorted(store.lead(Epoch(0)).await.unwrap().1);
    let batches = found.iter().filter(|record| matches!(record, Record::Global(_))).count() as u64;
    assert!(batches >= acknowledged, "{batches} of {acknowledged}");
    let expected = (1..=batches).flat_map(|number| records(number, 5)).collect();
    assert_eq!(found, sorted(expected));
}

/// A disk that becomes full during a run gives an error with a code, and nothing is acknowledged
/// after it. A limit on the size of files simulates the full disk.
#[tokio::test]
async fn a_failed_write_stops_the_store() {
    let directory = tempfile::tempdir().unwrap();
    // The engine preallocates more than the limit when it creates its files.
    drop(EmbeddedStore::open_with(directory.path(), SMALL).unwrap());
    let mut limited = Command::new("sh");
    let run = "trap '' XFSZ; ulimit -f 1000; exec \"$@\"";
    limited.args(["-c", run, "sh"]).arg(std::env::current_exe().unwrap());
    let child = spawn_child(limited, directory.path());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().filter(|line| line.contains("HF-TC-")).collect();
    assert_eq!(said, ["code HF-TC-STORE-WRITE", "code HF-TC-STORE-WRITE"], "{text}");
    let acknowledged = text.lines().filter_map(number).next_back().unwrap_or(0);
    check_recovered(directory.path(), acknowledged).await;
}

pub(crate) fn spawn_child(mut command: Command, directory: &Path) -> Child {
    command.args(["--exact", "stores::child_writes_until_it_is_killed", "--nocapture"]);
    command.env(CHILD_DIRECTORY, directory).stdout(Stdio::piped()).spawn().unwrap()
}

fn number(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ")?.parse().ok()
}

/// Not a test of its own: the code of the child process.
#[tokio::test]
async fn child_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let written = write_forever(Path::new(&directory)).await;
    println!("\ncode {}", written.unwrap_err().code());
}

async fn write_forever(directory: &Path) -> Result<(), StoreError> {
    let store = EmbeddedStore::open_with(directory, SMALL)?;
    let (epoch, found) = store.lead(Epoch(0)).await?;
    let first = found.iter().filter(|record| matches!(record, Record::Global(_))).count() as u64;
    for number in first + 1.. {
        if let Err(error) = store.commit(epoch, puts(&records(number, 5))).await {
            println!("\ncode {}", error.code());
            return store.commit(epoch, puts(&records(number + 1, 5))).await;
        }
        println!("\nacknowledged {number}");
    }
    Ok(())
}

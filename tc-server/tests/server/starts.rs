//! Starts of the embedded store from the state that an earlier process has left: an interrupted
//! first start, parts of a directory without the others, a disk that has failed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use handfast_core::Epoch;
use handfast_server::store::codec::{encode, encode_key};
use handfast_server::store::{EmbeddedStore, Store};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::stores::{SMALL, puts, records, spawn_child};

/// Creates the files that the old engine creates before its file `version`, which comes last.
fn create_in_part(directory: &Path) {
    let records = directory.join("records");
    fs::create_dir_all(records.join("keyspaces")).unwrap();
    File::create(records.join("lock")).unwrap();
    File::create(records.join("0.jnl")).unwrap().set_len(64 << 20).unwrap();
}

async fn commit_one(directory: &Path) {
    let store = EmbeddedStore::open_with(directory, SMALL).unwrap();
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(epoch, puts(&records(1, 2))).await.unwrap();
}

async fn count(directory: &Path) -> usize {
    let store = EmbeddedStore::open_with(directory, SMALL).unwrap();
    store.lead(Epoch(0)).await.unwrap().1.len()
}

fn refusal(directory: &Path) -> String {
    let error = EmbeddedStore::open_with(directory, SMALL).unwrap_err();
    format!("{}: {error}", error.code())
}

/// Regression: after a kill, a power cut or a full disk in the first start, none succeeded.
#[tokio::test]
async fn an_interrupted_first_start_is_repeated() {
    for version in [None, Some(""), Some("FJL")] {
        let directory = tempfile::tempdir().unwrap();
        create_in_part(directory.path());
        if let Some(version) = version {
            fs::write(directory.path().join("records/version"), version).unwrap();
        }
        commit_one(directory.path()).await;
        assert_eq!(count(directory.path()).await, 3, "{version:?}");
    }
}

#[tokio::test]
async fn leftovers_of_a_first_start_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    create_in_part(directory.path());
    fs::rename(directory.path().join("records"), directory.path().join("records.making")).unwrap();
    commit_one(directory.path()).await;
    assert_eq!(count(directory.path()).await, 3);
    assert!(!directory.path().join("records.making").exists());
}

/// Recreated records would let the journal be overwritten.
#[tokio::test]
async fn records_are_not_recreated_beside_a_journal_in_use() {
    for in_part in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        commit_one(directory.path()).await;
        let (kept, records) = (directory.path().join("kept"), directory.path().join("records"));
        fs::rename(&records, &kept).unwrap();
        if in_part {
            create_in_part(directory.path());
        }
        let refusal = refusal(directory.path());
        assert!(refusal.starts_with("HF-TC-JOURNAL-DAMAGED"), "{refusal}");
        assert!(refusal.contains("journal-0 is there, and records is missing"), "{refusal}");
        if in_part {
            fs::remove_dir_all(&records).unwrap();
        }
        fs::rename(&kept, &records).unwrap();
        assert_eq!(count(directory.path()).await, 3);
    }
}

/// The procedure of docs/operate.md for a journal that is lost.
#[tokio::test]
async fn a_removed_journal_leaves_the_records_in_use() {
    let directory = tempfile::tempdir().unwrap();
    commit_one(directory.path()).await;
    assert_eq!(count(directory.path()).await, 3);
    let mut left = vec!["journal-0", "journal-1", "records/tail"];
    while let Some(name) = left.pop() {
        fs::remove_file(directory.path().join(name)).unwrap();
        if !left.is_empty() {
            let refusal = refusal(directory.path());
            assert!(refusal.contains(&format!("{name} is missing")), "{refusal}");
        }
    }
    for _ in 0..2 {
        assert_eq!(count(directory.path()).await, 3);
    }
}

/// The records are the first part of a directory: one without them has lost them.
#[tokio::test]
async fn a_directory_without_its_records_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    commit_one(directory.path()).await;
    fs::remove_dir_all(directory.path().join("records")).unwrap();
    for name in ["journal-0", "journal-1"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    let refusal = refusal(directory.path());
    assert!(refusal.starts_with("HF-TC-JOURNAL-DAMAGED"), "{refusal}");
    assert!(refusal.contains("records.sound is there, and records is missing"), "{refusal}");
}

#[tokio::test]
async fn records_without_their_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    commit_one(directory.path()).await;
    let file = directory.path().join("records/records.redb");
    let kept = fs::read(&file).unwrap();
    for damaged in [None, Some(Vec::new()), Some(vec![7; 10_000]), Some(kept[..9000].to_vec())] {
        match damaged {
            Some(damaged) => fs::write(&file, damaged).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let refusal = refusal(directory.path());
        assert!(refusal.starts_with("HF-TC-JOURNAL-DAMAGED"), "{refusal}");
    }
    fs::write(&file, kept).unwrap();
    assert_eq!(count(directory.path()).await, 3);
}

/// Regression: the journal was lost. After a failed sync the operating system returns bytes that
/// may not be on the disk; the file of the records was trusted, and the journal overwritten.
#[tokio::test]
async fn records_are_rewritten_after_a_failed_write() {
    let directory = tempfile::tempdir().unwrap();
    let records = directory.path().join("records/records.redb");
    let file = || fs::metadata(&records).unwrap().ino();
    let open = || drop(EmbeddedStore::open_with(directory.path(), SMALL).unwrap());
    open();
    let made = file();
    open();
    assert_eq!(file(), made, "nothing has failed");
    let mut limited = Command::new("sh");
    let run = "trap '' XFSZ; ulimit -f 1000; exec \"$@\"";
    limited.args(["-c", run, "sh"]).arg(std::env::current_exe().unwrap());
    spawn_child(limited, directory.path()).wait_with_output().unwrap();
    assert_eq!(file(), made);
    open();
    let rewritten = file();
    assert_ne!(rewritten, made);
    open();
    assert_eq!(file(), rewritten, "once is enough");
}

/// Acknowledged batches of earlier versions are found, also of the first, whose frames all began
/// alike. Afterwards journal and records have the current form.
#[tokio::test]
async fn a_journal_of_an_earlier_version_is_carried_over() {
    let seed = 77_u64;
    let magic = xxh3_64_with_seed(b"magic", seed).to_le_bytes();
    for (format, magic) in [(&[][..], &b"hfJ1"[..]), (&[2], &magic[..4])] {
        check_carry_over_from_an_earlier_version(seed, format, magic).await;
    }
}

async fn check_carry_over_from_an_earlier_version(seed: u64, format: &[u8], magic: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let applied = 4_u64;
    {
        let database = fjall::Database::builder(directory.path().join("records")).open().unwrap();
        let keyspace = database.keyspace("records", fjall::KeyspaceCreateOptions::default).unwrap();
        let mark = [&applied.to_be_bytes()[..], &seed.to_be_bytes(), format].concat();
        keyspace.insert("journal", mark).unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let mut covered = (applied + 1).to_le_bytes().to_vec();
    for record in records(1, 2) {
        let (key, value) = (encode_key(record.key()), encode(&record));
        covered.push(u8::try_from(key.len()).unwrap());
        covered.extend_from_slice(&key);
        covered.extend_from_slice(&(u32::try_from(value.len()).unwrap() + 1).to_le_bytes());
        covered.extend_from_slice(&value);
    }
    let length = u32::try_from(covered.len() - 8).unwrap().to_le_bytes();
    let checksum = xxh3_64_with_seed(&covered, seed).to_le_bytes();
    let mut segment = [magic, &length, &checksum, &covered].concat();
    segment.resize(usize::try_from(SMALL).unwrap(), 0);
    let second = directory.path().join("journal-1");
    fs::write(directory.path().join("journal-0"), segment).unwrap();
    // One without the other is refused.
    let refusal = refusal(directory.path());
    assert!(refusal.starts_with("HF-TC-JOURNAL-DAMAGED"), "{refusal}");
    fs::write(second, vec![0; usize::try_from(SMALL).unwrap()]).unwrap();
    for number in 2..=4 {
        let store = EmbeddedStore::open_with(directory.path(), SMALL).unwrap();
        let (epoch, found) = store.lead(Epoch(0)).await.unwrap();
        assert_eq!(found.len(), 3 * (number - 1));
        store.commit(epoch, puts(&records(number as u64, 2))).await.unwrap();
    }
    assert!(!directory.path().join("records/version").exists(), "nothing of it is left");
}

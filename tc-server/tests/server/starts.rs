//! Starts of the embedded store from what an earlier process has left: a first start that was cut
//! off, parts of a directory without the others, a disk that has failed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use handfast_core::Epoch;
use handfast_server::store::codec::{encode, encode_key};
use handfast_server::store::{EmbeddedStore, Store};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::stores::{SMALL, puts, records, spawn_child};

/// What the engine makes before its file `version`, which says that all is there.
fn make_in_part(directory: &Path) {
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

/// A kill, a power cut or a full disk in the first start made every later one fail.
#[tokio::test]
async fn a_first_start_that_was_cut_off_is_begun_again() {
    for version in [None, Some(""), Some("FJL")] {
        let directory = tempfile::tempdir().unwrap();
        make_in_part(directory.path());
        if let Some(version) = version {
            fs::write(directory.path().join("records/version"), version).unwrap();
        }
        commit_one(directory.path()).await;
        assert_eq!(count(directory.path()).await, 3, "{version:?}");
    }
}

#[tokio::test]
async fn what_is_left_of_a_first_start_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    make_in_part(directory.path());
    fs::rename(directory.path().join("records"), directory.path().join("records.making")).unwrap();
    commit_one(directory.path()).await;
    assert_eq!(count(directory.path()).await, 3);
    assert!(!directory.path().join("records.making").exists());
}

/// Records that were made anew would have had the journal written over.
#[tokio::test]
async fn records_are_not_made_anew_beside_a_journal_that_is_in_use() {
    for in_part in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        commit_one(directory.path()).await;
        let (kept, records) = (directory.path().join("kept"), directory.path().join("records"));
        fs::rename(&records, &kept).unwrap();
        if in_part {
            make_in_part(directory.path());
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

/// As docs/operate.md says it, where the journal is lost for good.
#[tokio::test]
async fn an_operator_who_removes_the_journal_goes_on_from_the_records() {
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

/// The records are the first that a directory gets: what lacks them has lost them.
#[tokio::test]
async fn a_directory_that_has_lost_its_records_is_refused() {
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

/// After a sync that failed, the machine gives back what it may not have on its disk: the file
/// of the records was believed, and the journal written over.
#[tokio::test]
async fn after_a_failed_write_the_records_are_written_anew() {
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

/// As earlier programs left it, the first of which began all frames alike: what was acknowledged is
/// there, and from then on the journal and the records are those of today.
#[tokio::test]
async fn a_journal_of_an_earlier_program_is_carried_over() {
    let seed = 77_u64;
    let magic = xxh3_64_with_seed(b"magic", seed).to_le_bytes();
    for (format, magic) in [(&[][..], &b"hfJ1"[..]), (&[2], &magic[..4])] {
        carry_over_from_an_earlier_program(seed, format, magic).await;
    }
}

async fn carry_over_from_an_earlier_program(seed: u64, format: &[u8], magic: &[u8]) {
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
    // One without the other was refused, and is.
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

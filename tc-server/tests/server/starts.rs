//! Starts of the embedded store from what an earlier process has left: a first start that was cut
//! off, parts of a directory without the others, a disk that has failed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use handfast_core::Epoch;
use handfast_server::store::{EmbeddedStore, Store};

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
        assert!(
            refusal.contains("journal-0 holds batches, and records knows of none"),
            "{refusal}"
        );
        if in_part {
            fs::remove_dir_all(&records).unwrap();
        }
        fs::rename(&kept, &records).unwrap();
        assert_eq!(count(directory.path()).await, 3);
    }
}

/// As docs/operate.md says it, for whoever has lost the records.
#[tokio::test]
async fn an_emptied_journal_without_records_is_a_new_start() {
    let directory = tempfile::tempdir().unwrap();
    commit_one(directory.path()).await;
    fs::remove_dir_all(directory.path().join("records")).unwrap();
    for name in ["journal-0", "journal-1"] {
        File::create(directory.path().join(name)).unwrap();
    }
    assert_eq!(count(directory.path()).await, 0);
}

/// What holds something is not thrown away, whatever it lacks.
#[tokio::test]
async fn records_without_their_version_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    commit_one(directory.path()).await;
    let version = directory.path().join("records/version");
    let kept = fs::read(&version).unwrap();
    fs::remove_file(&version).unwrap();
    let refusal = refusal(directory.path());
    assert!(refusal.starts_with("HF-TC-STORE-OPEN"), "{refusal}");
    fs::write(&version, kept).unwrap();
    assert_eq!(count(directory.path()).await, 3);
}

/// After a sync that failed, the machine gives back what it may not have on its disk: the log of
/// the records was believed, and the journal written over.
#[tokio::test]
async fn after_a_failed_write_the_log_of_the_records_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("records/0.jnl");
    let file = || fs::metadata(&log).unwrap().ino();
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

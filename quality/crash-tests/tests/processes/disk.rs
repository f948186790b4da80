//! The coordinator's disk fills up under work, is as good as full at a start, and has room again.

use std::time::Duration;

use handfast_crash_tests::stage::{RunningSystem, Settings};
use handfast_crash_tests::tmpfs::SmallDisk;

use crate::stages::{FILES, assert_sound, not_run, settings};

/// More than the store's first files take, and little enough to be filled at once.
const DISK_BYTES: u64 = 256 << 20;
const EXIT_STORE_FAILED: i32 = 8;
/// The number of times that the coordinator meets the end of the disk.
const ENDS: usize = 3;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_coordinator_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES).unwrap() else {
        return not_run("this process may not mount a tmpfs to fill");
    };
    let data_dir = Some(disk.path().join("data"));
    let mut stage =
        RunningSystem::start(Settings { data_dir, ..settings(FILES, 41) }).await.unwrap();
    for _ in 0..ENDS {
        disk.fill().unwrap();
        // The journal has its room already. What cannot be carried over from it ends the
        // coordinator, which says why: under work where a segment is full, or at the start.
        let ended = stage.coordinators[0].running().unwrap().exited(ENDS_WITHIN).await.unwrap();
        assert_eq!(ended.code(), Some(EXIT_STORE_FAILED));
        // The engine cuts a write that did not fit off at the start, which may make room for some
        // others, or for none.
        stage.coordinators[0].spawn(None).await.unwrap();
    }
    disk.free().unwrap();
    stage.coordinators[0].restart(None).await.unwrap();
    stage.until_progress().await.unwrap();
    assert_sound(stage).await;
}

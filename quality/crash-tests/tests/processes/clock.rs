//! The machine's clock is set, while the coordinator runs and over its restarts, by as much as a
//! dead battery or a resumed machine does it: nothing that was begun or promised knows of it.

use std::net::Ipv4Addr;
use std::time::Duration;

use handfast::{AtResource, Global, Handfast};
use handfast_crash_tests::coordinator::Coordinator;
use handfast_crash_tests::fault::CLOCK_STEPS_S;
use handfast_crash_tests::program::Program;
use handfast_crash_tests::saga;
use handfast_server::admin::model::Status;
use sqlx::{Sqlite, SqlitePool};
use tempfile::TempDir;

/// Longer than the test takes, and shorter than the steps but for the least.
const TIMEOUT: Duration = Duration::from_secs(600);

struct Scene {
    _folder: TempDir,
    coordinator: Coordinator,
    handfast: Handfast,
    resource: AtResource<Sqlite>,
    pool: SqlitePool,
    entries: i64,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::new(env!("CARGO_BIN_EXE_handfast-crash-tests"));
        let (records, log) = (folder.path().join("records"), folder.path().join("coordinator.log"));
        let listen = Ipv4Addr::LOCALHOST.into();
        let coordinator = Coordinator::start(&program, &records, &log, listen).await.unwrap();
        let handfast = saga::connect(&[coordinator.endpoint()]).await.unwrap();
        let pool = saga::create(&handfast, &folder.path().join("shop.db")).await.unwrap();
        sqlx::query("CREATE TABLE entry (id INTEGER PRIMARY KEY)").execute(&pool).await.unwrap();
        let resource = handfast.at(pool.clone()).await.unwrap();
        Self { _folder: folder, coordinator, handfast, resource, pool, entries: 0 }
    }

    /// A global with a branch, undecided.
    async fn begin(&mut self) -> Global {
        self.entries += 1;
        let (resource, entry) = (self.resource.clone(), self.entries);
        let global = self.handfast.transaction("entry").timeout(TIMEOUT).begin().await.unwrap();
        let work = async move {
            let mut local = resource.begin().await.unwrap();
            let insert = sqlx::query("INSERT INTO entry VALUES (?)").bind(entry);
            insert.execute(&mut local).await.unwrap();
            local.commit().await.unwrap();
        };
        global.scope(work).await;
        global
    }
}

/// Before deadlines had their grace, the first step ahead rolled everything back that was
/// undecided; before a start restarted the retention, it forgot everything that was finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_changes_no_outcome() {
    let mut scene = Scene::new().await;
    let mut committed = Vec::new();
    for step_s in CLOCK_STEPS_S {
        let over_the_restart = scene.begin().await;
        scene.coordinator.set_clock(step_s).unwrap();
        // A running process has looked at the clock when it started, and never again.
        let beside_the_step = scene.begin().await;
        committed.push(beside_the_step.xid().to_string());
        beside_the_step.commit().await.unwrap();
        scene.coordinator.restart(None).await.unwrap();
        committed.push(over_the_restart.xid().to_string());
        over_the_restart.commit().await.unwrap();
    }
    scene.coordinator.restart(None).await.unwrap();
    for xid in committed {
        let status = scene.coordinator.transaction(&xid).await.unwrap().transaction.status;
        assert!(matches!(status, Status::Committing | Status::Committed), "{xid}: {status:?}");
    }
    let count = "SELECT COUNT(*) FROM entry";
    let entries: i64 = sqlx::query_scalar(count).fetch_one(&scene.pool).await.unwrap();
    assert_eq!(entries, scene.entries);
}

//! Deaths of caller, service and coordinator during sagas of five steps, on the way forward and
//! back.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast::Handfast;
use handfast_crash_tests::coordinator::Coordinator;
use handfast_crash_tests::fault::COORDINATOR_POINTS;
use handfast_crash_tests::program::Program;
use handfast_crash_tests::saga::{self, PATIENCE, Role, SagaEnding, Script};
use handfast_test_services::ChildProcess;
use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio::process::ChildStdout;

/// The process that dies while a service is at a point. A service that lives is held there, and
/// goes on when the others are back: what it does then comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Caller,
    Coordinator,
    Service,
    All,
}

impl Victim {
    const ALL: [Self; 4] = [Self::Caller, Self::Coordinator, Self::Service, Self::All];

    fn is(self, victim: Self) -> bool {
        self == victim || self == Self::All
    }
}

/// A coordinator as a process, and the database of the services.
struct Scene {
    program: Program,
    folder: TempDir,
    coordinator: Coordinator,
    handfast: Handfast,
    pool: SqlitePool,
}

/// A process of a saga. Dropping it kills it.
struct Player {
    process: ChildProcess,
    /// Kept open: the process ends when its output is closed.
    _told: ChildStdout,
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
        Self { program, folder, coordinator, handfast, pool }
    }

    fn play(&self, role: Role, at_point: Option<(&str, &str)>) -> Player {
        let script = Script { endpoints: vec![self.coordinator.endpoint()], role };
        let log = self.folder.path().join("players.log");
        let mut command = self.program.part("saga", &log).unwrap();
        command.arg(serde_json::to_string(&script).unwrap());
        command.envs(at_point);
        let (process, told) = ChildProcess::start(command).unwrap();
        Player { process, _told: told }
    }

    fn service(&self, at_point: Option<(&str, &str)>) -> Player {
        let database: PathBuf = self.folder.path().join("shop.db");
        self.play(Role::Service(database), at_point)
    }

    /// Runs one saga. When its service reaches the point, the victim dies and is replaced.
    async fn end_without(&mut self, victim: Victim, course: SagaEnding, point: &str) {
        let key = format!("{course:?} without {victim:?} {point}");
        let service_dies = victim.is(Victim::Service);
        let at = if service_dies { "HANDFAST_CRASH_POINT" } else { "HANDFAST_STOP_POINT" };
        let mut service = self.service(Some((at, point)));
        let mut caller = self.play(Role::Caller(key.clone(), course), None);
        if service_dies {
            assert!(service.process.crashed(PATIENCE).await.unwrap(), "{key}");
        } else {
            service.process.stopped(PATIENCE).await.unwrap();
        }
        if victim.is(Victim::Caller) {
            caller.process.kill().await.unwrap();
        }
        if victim.is(Victim::Coordinator) {
            self.coordinator.restart(None).await.unwrap();
        }
        if service_dies {
            service = self.service(None);
        } else {
            service.process.go_on().unwrap();
        }
        self.assert_ends(&key, course).await;
        // Only the next service may take part in the next saga: its passes are counted.
        service.process.kill().await.unwrap();
        caller.process.kill().await.unwrap();
    }

    /// Started again under its key, the saga is found, and ends as it must.
    async fn assert_ends(&self, key: &str, course: SagaEnding) {
        let saga = self.handfast.start_saga(key, course.saga()).await.unwrap();
        let report = saga.ended(PATIENCE).await.unwrap();
        let effects = saga::effects(&self.pool, key).await.unwrap();
        assert_eq!((report.status(), &*effects), (course.status(), &*expected(course)), "{key}");
    }
}

fn expected(course: SagaEnding) -> Vec<String> {
    course.effects().iter().map(|&effect| effect.to_owned()).collect()
}

async fn assert_ends_despite_deaths(course: SagaEnding) {
    let mut scene = Scene::new().await;
    for victim in Victim::ALL {
        for &(point, passes) in course.service_points() {
            for pass in 1..=passes {
                scene.end_without(victim, course, &format!("{point}:{pass}")).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saga_completes_after_a_death_at_any_point() {
    assert_ends_despite_deaths(SagaEnding::Forward).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saga_is_compensated_after_a_death_at_any_point() {
    assert_ends_despite_deaths(SagaEnding::Back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_saga_completes_after_a_death_at_any_point() {
    assert_ends_despite_deaths(SagaEnding::ForwardWithChild).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_done_child_is_compensated_after_a_death_at_any_point() {
    assert_ends_despite_deaths(SagaEnding::BackWithChild).await;
}

/// Each of the passes meets another decision of a saga.
fn passes(point: &str) -> u32 {
    match point {
        // It leads once in its life.
        "after-lead" => 1,
        // Segments of the journal are filled by many sagas.
        "after-seal" | "mid-checkpoint" | "after-checkpoint" => 2,
        _ => 6,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_dies_at_any_point_ends_its_sagas() {
    let mut scene = Scene::new().await;
    let _service = scene.service(None);
    let stop = Arc::new(AtomicBool::new(false));
    let (handfast, pool) = (scene.handfast.clone(), scene.pool.clone());
    let sagas = tokio::spawn(saga::run_sagas(handfast, pool, Arc::clone(&stop)));
    for point in COORDINATOR_POINTS {
        for pass in 1..=passes(point) {
            let coordinator = &mut scene.coordinator;
            coordinator.restart(Some(&format!("{point}:{pass}"))).await.unwrap();
            let crashed = coordinator.running().unwrap().crashed(PATIENCE).await.unwrap();
            assert!(crashed && !sagas.is_finished(), "no process came to {point}:{pass}");
        }
    }
    scene.coordinator.restart(None).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(sagas.await.unwrap().unwrap() > 0);
}

//! Sagas beside the other work: a service that takes part in them, and a caller in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use handfast::Handfast;
use handfast_test_services::ChildProcess;
use tempfile::TempDir;
use tokio::process::ChildStdout;
use tokio::task::JoinHandle;

use crate::program::Program;
use crate::saga::{self, Role, Script};

/// Running sagas. Dropping it kills the service.
#[derive(Debug)]
pub struct SagaRun {
    handfast: Handfast,
    stop: Arc<AtomicBool>,
    sagas: JoinHandle<Result<usize>>,
    service: ChildProcess,
    /// Kept open: the process ends when its output is closed.
    _reports: ChildStdout,
    /// Holds the service's database.
    _folder: TempDir,
}

impl SagaRun {
    /// Starts the service, and one saga after the other.
    ///
    /// # Errors
    /// When no coordinator answers, or the service does not start.
    pub async fn start(program: &Program, endpoints: Vec<String>) -> Result<Self> {
        let folder = TempDir::with_prefix("handfast-sagas-")?;
        let database = folder.path().join("shop.db");
        let handfast = saga::connect(&endpoints).await?;
        let pool = saga::create(&handfast, &database).await?;
        let script = Script { endpoints, role: Role::Service(database) };
        let mut command = program.part("saga", &folder.path().join("service.log"))?;
        command.arg(serde_json::to_string(&script)?);
        let (service, reports) = ChildProcess::start(command)?;
        let stop = Arc::new(AtomicBool::new(false));
        let sagas = tokio::spawn(saga::run_sagas(handfast.clone(), pool, Arc::clone(&stop)));
        Ok(Self { handfast, stop, sagas, service, _reports: reports, _folder: folder })
    }

    /// Lets the last saga come to its end, and returns the number of sagas.
    ///
    /// # Errors
    /// When a saga did not end correctly.
    pub async fn finish(mut self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let sagas = self.sagas.await?.context("running sagas")?;
        self.handfast.close().await;
        self.service.kill().await?;
        Ok(sagas)
    }
}

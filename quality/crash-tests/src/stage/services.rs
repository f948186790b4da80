//! A service of a stage: its wires stay, its process is replaced when it dies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast_test_services::ChildProcess;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Record, Settings};
use crate::database::DatabaseLocation;
use crate::event::ServiceEvent;
use crate::fault::AFTER_A_BROKEN_COMMIT;
use crate::service::Script;
use crate::wire::Wire;
use crate::work::DATABASES;

/// The time within which a service must finish its last operations.
const FINISHED_WITHIN: Duration = Duration::from_secs(180);

const BREAK_EVERY: Duration = Duration::from_millis(300);

/// One service: its wires and the process that runs now.
#[derive(Debug)]
pub(super) struct ServiceSlot {
    /// `None` if there are several coordinators.
    pub(super) coordinator: Option<Wire>,
    /// `None` for a database that is a file.
    pub(super) databases: [Option<Wire>; DATABASES],
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: ChildProcess,
    /// Whether it has reported that it is finished.
    finished: watch::Receiver<bool>,
    /// Ends when the process does.
    listening: JoinHandle<Result<()>>,
}

impl ServiceSlot {
    pub(super) fn new(coordinator: Option<Wire>, databases: [Option<Wire>; DATABASES]) -> Self {
        Self { coordinator, databases, running: None }
    }

    /// Returns the address at which the service reaches a database that is a server.
    pub(super) fn address(&self, database: usize) -> Option<SocketAddr> {
        self.databases[database].as_ref().map(Wire::address)
    }

    /// Returns the script of the process.
    pub(super) fn script(
        &self,
        settings: &Settings,
        process: u64,
        endpoints: Vec<String>,
        databases: [DatabaseLocation; DATABASES],
    ) -> Result<String> {
        let script = Script {
            process,
            endpoints,
            databases,
            limits: settings.limits,
            workers: settings.workers,
            workload: settings.workload,
            seed: settings.seed,
        };
        Ok(serde_json::to_string(&script)?)
    }

    /// Kills the process that is there and puts another in its place.
    pub(super) async fn restart(&mut self, command: Command, record: Arc<Record>) -> Result<()> {
        self.kill().await?;
        let (process, stdout) = ChildProcess::start(command)?;
        let (sender, finished) = watch::channel(false);
        let listening = tokio::spawn(listen(stdout, record, sender));
        self.running = Some(Running { process, finished, listening });
        Ok(())
    }

    /// Kills the process and reads what it reported before.
    pub(super) async fn kill(&mut self) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        // What the process reported before its death is still in the pipe, and may be the only
        // trace of a commit.
        running.process.kill().await?;
        running.listening.await?
    }

    pub(super) fn running(&mut self) -> Result<&mut ChildProcess> {
        let running = self.running.as_mut().context("the service is down")?;
        Ok(&mut running.process)
    }

    /// Waits for the process to die at a point, and breaks its wires where the point needs that.
    /// Returns `false` if it did not die in time.
    pub(super) async fn crashed_at(&mut self, point: &str, within: Duration) -> Result<bool> {
        let running = self.running.as_mut().context("the service is down")?;
        let died = running.process.crashed(within);
        if point != AFTER_A_BROKEN_COMMIT {
            return died.await;
        }
        let breaking = async {
            let mut every = tokio::time::interval(BREAK_EVERY);
            loop {
                every.tick().await;
                for wire in self.databases.iter().flatten() {
                    wire.break_all();
                }
            }
        };
        tokio::select! {
            died = died => died,
            () = breaking => unreachable!("it goes on forever"),
        }
    }

    /// Asks for no more operations and waits until the last one has ended.
    pub(super) async fn finish(&mut self) -> Result<()> {
        let running = self.running.as_mut().context("the service is down")?;
        running.process.write_line("finish").await?;
        let finished = running.finished.wait_for(|finished| *finished);
        let in_time = tokio::time::timeout(FINISHED_WITHIN, finished).await;
        ensure!(in_time.is_ok_and(|told| told.is_ok()), "a service does not come to an end");
        Ok(())
    }
}

/// Records every report of the process.
async fn listen(
    stdout: ChildStdout,
    record: Arc<Record>,
    finished: watch::Sender<bool>,
) -> Result<()> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        // The last line of a process that was killed while it reported is cut off.
        let Ok(event) = serde_json::from_str::<ServiceEvent>(&line) else { continue };
        match event {
            ServiceEvent::Finished => drop(finished.send_replace(true)),
            event @ (ServiceEvent::Ready
            | ServiceEvent::Began { .. }
            | ServiceEvent::Begun { .. }
            | ServiceEvent::Ended { .. }) => {
                record.note(event);
            }
        }
    }
    Ok(())
}

//! `handfast serve` as a process: the command line of the binary, on records and ports that stay
//! through restarts. The records are in a data directory, unless further settings name a store that
//! several coordinators share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use handfast_server::admin::model::{ServerStatus, TransactionDetail};
use handfast_test_services::{AdminClient, ChildProcess, Signal, free_address};
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep};

use crate::network::NetworkHost;
use crate::program::Program;

const LOG_LINES_SHOWN: usize = 20;
const READY_WITHIN: Duration = Duration::from_secs(90);
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
/// The admin API has no request that waits for readiness.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls are retried soon, and a silent process is soon skipped: a run lasts minutes, not hours.
/// The journal's segments have the smallest size allowed, so that they are often reused.
const SETTINGS: &[&str] = &[
    "journal_segment_bytes=16384",
    "dispatch.retry_delay_ms_min=10",
    "dispatch.retry_delay_ms_max=300",
    "dispatch.answer_timeout_ms=1000",
    "limits.retention_ms=86400000",
    "limits.history_max=10000000",
];

/// Where a coordinator runs and listens.
#[derive(Clone, Debug)]
pub struct CoordinatorPlace {
    grpc: SocketAddr,
    admin: SocketAddr,
    /// The words before its command, for another host.
    prefix: Vec<String>,
}

impl CoordinatorPlace {
    /// Returns free ports of this host, the native API's at this address.
    ///
    /// # Errors
    /// Returns the system's error if there is no free port.
    pub fn here(listen: IpAddr) -> Result<Self> {
        let [grpc, admin] = [free_address(listen)?, free_address(Ipv4Addr::LOCALHOST.into())?];
        Ok(Self { grpc, admin, prefix: Vec::new() })
    }

    /// Returns the place on a host of a network.
    #[must_use]
    pub fn on(host: &NetworkHost) -> Self {
        let [grpc, admin] = host.coordinator();
        Self { grpc, admin, prefix: host.prefix().to_vec() }
    }
}

/// The coordinator of a run: it can be killed and started again on its ports and records.
#[derive(Debug)]
pub struct Coordinator {
    program: Program,
    data_dir: PathBuf,
    log: PathBuf,
    place: CoordinatorPlace,
    client: AdminClient,
    /// Settings beyond those that every coordinator has, each `key=value`.
    settings: Vec<String>,
    process: Option<(ChildProcess, ChildStdout)>,
}

impl Coordinator {
    /// Starts a coordinator with the native API on this address, and waits until it leads.
    ///
    /// # Errors
    /// Returns the end of its log if it does not.
    pub async fn start(
        program: &Program,
        data_dir: &Path,
        log: &Path,
        listen: IpAddr,
    ) -> Result<Self> {
        let place = CoordinatorPlace::here(listen)?;
        let mut coordinator = Self::new(program, data_dir, log, place, Vec::new())?;
        coordinator.restart(None).await?;
        Ok(coordinator)
    }

    /// Makes a coordinator that is not started, with further settings, each `key=value`.
    ///
    /// # Errors
    /// Returns an error if there is no TLS to make a client of its admin API with.
    pub fn new(
        program: &Program,
        data_dir: &Path,
        log: &Path,
        place: CoordinatorPlace,
        settings: Vec<String>,
    ) -> Result<Self> {
        Ok(Self {
            program: program.clone(),
            data_dir: data_dir.to_owned(),
            log: log.to_owned(),
            client: AdminClient::new(place.admin)?,
            place,
            settings,
            process: None,
        })
    }

    /// Returns the address of the native API.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.place.grpc
    }

    /// Returns the endpoint for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.place.grpc)
    }

    /// Returns a client of its admin API.
    #[must_use]
    pub fn admin(&self) -> &AdminClient {
        &self.client
    }

    /// Starts the coordinator again on its ports and records, to die at a crash point if one is
    /// given. When this returns, it leads, or follows a leader, or has died at the point.
    ///
    /// # Errors
    /// Returns the end of its log if it does neither.
    pub async fn restart(&mut self, crash_point: Option<&str>) -> Result<()> {
        self.spawn(crash_point).await?;
        self.wait_ready(crash_point.is_some()).await
    }

    /// Starts the coordinator again without waiting until it leads.
    ///
    /// # Errors
    /// Returns the system's error if it cannot be started.
    pub async fn spawn(&mut self, crash_point: Option<&str>) -> Result<()> {
        self.kill().await?;
        let CoordinatorPlace { grpc, admin, prefix } = &self.place;
        let mut command = self.program.part_after(prefix, "serve", &self.log)?;
        command.arg("--data-dir").arg(&self.data_dir);
        command.arg("--grpc-listen").arg(grpc.to_string());
        command.arg("--admin-listen").arg(admin.to_string());
        if !grpc.ip().is_loopback() {
            // The other host is a network namespace of this machine.
            command.arg("--insecure-allow-plaintext-and-anonymous-on-non-loopback");
        }
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["--set", setting]);
        }
        command.env("TC_CLOCK_FILE", self.clock_file());
        if let Some(point) = crash_point {
            command.env("TC_CRASH_POINT", point);
        }
        self.process = Some(ChildProcess::start(command)?);
        Ok(())
    }

    /// Sets the coordinator's wall clock to so many seconds ahead of the true time.
    ///
    /// # Errors
    /// Returns an error if the file that stands for the clock cannot be written.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        // By a rename, which is atomic: the coordinator may be reading the file.
        let file = self.clock_file();
        let next = file.with_extension("next");
        std::fs::write(&next, (ahead_s * 1_000).to_string())?;
        Ok(std::fs::rename(next, file)?)
    }

    fn clock_file(&self) -> PathBuf {
        self.log.with_extension("clock")
    }

    /// Returns the end of the log, whose file is removed with the test's directory.
    fn last_lines(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    async fn wait_ready(&mut self, may_crash: bool) -> Result<()> {
        let started = Instant::now();
        while !self.client.is_ready().await {
            match self.running()?.ended()? {
                Some(_) if may_crash => return Ok(()),
                Some(status) => {
                    bail!("the coordinator ended with {status}:\n{}", self.last_lines())
                }
                None => {}
            }
            if started.elapsed() > READY_WITHIN {
                bail!("the coordinator is not ready:\n{}", self.last_lines());
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Kills the coordinator, if it runs.
    ///
    /// # Errors
    /// Returns an error if it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some((mut process, _)) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Stops the coordinator as planned, by SIGTERM.
    ///
    /// # Errors
    /// Returns the end of its log if it does not end, or not well.
    pub async fn stop(&mut self) -> Result<()> {
        let running = self.running()?;
        running.signal(Signal::SIGTERM)?;
        let status = running.exited(STOPPED_WITHIN).await?;
        ensure!(status.success(), "the coordinator ended with {status}:\n{}", self.last_lines());
        self.process = None;
        Ok(())
    }

    /// Returns the process.
    ///
    /// # Errors
    /// Returns an error if it has been killed.
    pub fn running(&mut self) -> Result<&mut ChildProcess> {
        let process = self.process.as_mut().context("the coordinator is down")?;
        Ok(&mut process.0)
    }

    /// Returns one global with its branches.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer, or does not know the global.
    pub async fn transaction(&self, xid: &str) -> Result<TransactionDetail> {
        self.client.transaction(xid).await
    }

    /// Returns the counts of the coordinator.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer.
    pub async fn status(&self) -> Result<ServerStatus> {
        self.client.status().await
    }
}

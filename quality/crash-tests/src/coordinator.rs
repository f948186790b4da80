//! `handfast serve` as a process: the command line of the binary, on a data directory and ports
//! that stay through restarts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use handfast_server::admin::model::{ServerStatus, TransactionDetail};
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep};

use crate::process::{Process, Program};

const LOG_LINES_SHOWN: usize = 20;
const READY_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Retries soon, and gives a silent process up soon: a run has minutes, not hours. The journal goes
/// round and round in segments as small as they may be.
const SETTINGS: &[&str] = &[
    "journal_segment_bytes=16384",
    "dispatch.retry_delay_ms_min=10",
    "dispatch.retry_delay_ms_max=300",
    "dispatch.answer_timeout_ms=1000",
    "limits.retention_ms=86400000",
    "limits.history_max=10000000",
];

/// The coordinator of a run.
#[derive(Debug)]
pub struct Coordinator {
    program: Program,
    data_dir: PathBuf,
    log: PathBuf,
    grpc: SocketAddr,
    admin: SocketAddr,
    process: Option<(Process, ChildStdout)>,
    http: reqwest::Client,
}

impl Coordinator {
    /// Starts it, with the native API on this address, and waits until it leads.
    ///
    /// # Errors
    /// When it does not.
    pub async fn start(
        program: &Program,
        data_dir: &Path,
        log: &Path,
        listen: IpAddr,
    ) -> Result<Self> {
        // Fails only if another run of this process has installed it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(READY_WITHIN).build()?;
        let mut coordinator = Self {
            program: program.clone(),
            data_dir: data_dir.to_owned(),
            log: log.to_owned(),
            grpc: free_address(listen)?,
            admin: free_address(Ipv4Addr::LOCALHOST.into())?,
            process: None,
            http,
        };
        coordinator.restart(None).await?;
        Ok(coordinator)
    }

    /// Where the native API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.grpc
    }

    /// Where the native API listens, as a client wants it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Starts it on its ports and records, to die at a crash point if one is given. Ready, or dead
    /// by then, when this returns.
    ///
    /// # Errors
    /// When it is neither.
    pub async fn restart(&mut self, crash_point: Option<&str>) -> Result<()> {
        self.spawn(crash_point).await?;
        self.wait_ready(crash_point.is_some()).await
    }

    /// Starts it without waiting for it.
    ///
    /// # Errors
    /// When there is no such program.
    pub async fn spawn(&mut self, crash_point: Option<&str>) -> Result<()> {
        self.kill().await?;
        let mut command = self.program.part("serve", &self.log)?;
        command.arg("--data-dir").arg(&self.data_dir);
        command.arg("--grpc-listen").arg(self.grpc.to_string());
        command.arg("--admin-listen").arg(self.admin.to_string());
        if !self.grpc.ip().is_loopback() {
            // The other host is a namespace of this machine.
            command.arg("--insecure-allow-plaintext-and-anonymous-on-non-loopback");
        }
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.env("TC_CLOCK_FILE", self.clock_file());
        if let Some(point) = crash_point {
            command.env("TC_CRASH_POINT", point);
        }
        self.process = Some(Process::start(command)?);
        Ok(())
    }

    /// Sets the wall clock of its machine, by so many seconds from the true time.
    ///
    /// # Errors
    /// When the file cannot be written that stands for it.
    pub fn set_clock(&self, ahead_s: i64) -> Result<()> {
        // In one step: the coordinator may be reading it.
        let file = self.clock_file();
        let next = file.with_extension("next");
        std::fs::write(&next, (ahead_s * 1_000).to_string())?;
        Ok(std::fs::rename(next, file)?)
    }

    fn clock_file(&self) -> PathBuf {
        self.log.with_extension("clock")
    }

    /// The end of its log, which goes with the test's directory.
    fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    async fn wait_ready(&mut self, may_crash: bool) -> Result<()> {
        let url = format!("http://{}/readyz", self.admin);
        let started = Instant::now();
        while !self.http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            match self.running()?.ended()? {
                Some(_) if may_crash => return Ok(()),
                Some(status) => {
                    bail!("the coordinator ended with {status}:\n{}", self.last_words())
                }
                None => {}
            }
            if started.elapsed() > READY_WITHIN {
                bail!("the coordinator is not ready:\n{}", self.last_words());
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Kills it, if it runs.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some((mut process, _)) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// The process.
    ///
    /// # Errors
    /// When it has been killed.
    pub fn running(&mut self) -> Result<&mut Process> {
        let process = self.process.as_mut().context("the coordinator is down")?;
        Ok(&mut process.0)
    }

    /// What it knows of a global.
    ///
    /// # Errors
    /// When it does not answer, or knows nothing.
    pub async fn transaction(&self, xid: &str) -> Result<TransactionDetail> {
        let url = format!("http://{}/api/v1/transactions/{xid}", self.admin);
        let answer = self.http.get(&url).send().await?.error_for_status()?;
        Ok(serde_json::from_str(&answer.text().await?)?)
    }

    /// How it stands.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<ServerStatus> {
        let url = format!("http://{}/api/v1/status", self.admin);
        let answer = self.http.get(&url).send().await?.error_for_status()?;
        Ok(serde_json::from_str(&answer.text().await?)?)
    }
}

/// A free port, kept through restarts: clients find the coordinator where it was.
fn free_address(of: IpAddr) -> Result<SocketAddr> {
    Ok(TcpListener::bind((of, 0))?.local_addr()?)
}

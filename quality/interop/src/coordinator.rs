//! A coordinator: `handfast serve` on a directory and ports that stay through restarts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use handfast_test_services::{CoordinatorProcess, free_address, without_configuration};

/// Calls of phase two are retried soon.
const SETTINGS: &[&str] = &[
    "seata.enabled=true",
    "dispatch.retry_delay_ms_min=50",
    "dispatch.retry_delay_ms_max=500",
    "dispatch.answer_timeout_ms=5000",
    // The default, once a day, would let the scenarios that wait for it time out.
    "seata.undo_log_delay_ms=1000",
    "seata.undo_log_period_ms=1000",
];

/// A coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    program: PathBuf,
    data_dir: PathBuf,
    log: PathBuf,
    /// Settings beyond those of every coordinator.
    settings: Vec<String>,
    seata: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    advertised: SocketAddr,
    process: Mutex<Option<CoordinatorProcess>>,
}

impl Coordinator {
    /// Starts a coordinator of its own and waits until it leads.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        Self::start_with(program, folder, "coordinator", None, Vec::new())
    }

    /// Starts a coordinator with these settings and waits until it is ready. Its files have this
    /// name. It advertises its own address unless there is another.
    pub(crate) fn start_with(
        program: &Path,
        folder: &Path,
        name: &str,
        advertised: Option<SocketAddr>,
        settings: Vec<String>,
    ) -> Result<Self> {
        // Chosen before the first start: clients are configured with it.
        let seata = free_address(Ipv4Addr::LOCALHOST.into())?;
        let coordinator = Self {
            program: program.to_owned(),
            data_dir: folder.join(name),
            log: folder.join(format!("{name}.log")),
            settings,
            seata,
            grpc: free_address(Ipv4Addr::LOCALHOST.into())?,
            admin: free_address(Ipv4Addr::LOCALHOST.into())?,
            advertised: advertised.unwrap_or(seata),
            process: Mutex::new(None),
        };
        coordinator.restart()?;
        Ok(coordinator)
    }

    /// Returns the address for clients of Seata.
    pub(crate) fn address(&self) -> SocketAddr {
        self.seata
    }

    /// Returns the address of the registry, for clients that have no list of coordinators.
    pub(crate) fn registry(&self) -> SocketAddr {
        self.admin
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill(&self) -> Result<()> {
        self.process().take().context("the coordinator is down")?.kill()
    }

    /// Starts the coordinator on its ports and records, and waits until it is ready.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        without_configuration(&mut command);
        command.arg("serve").arg("--data-dir").arg(&self.data_dir);
        command.arg("--advertised-address").arg(self.advertised.to_string());
        command.arg("--set").arg(format!("seata.listen={}", self.seata));
        let more = self.settings.iter().map(String::as_str);
        for setting in SETTINGS.iter().copied().chain(more) {
            command.args(["--set", setting]);
        }
        let addresses = [self.grpc, self.admin];
        let mut process = CoordinatorProcess::start(command, addresses, Some(&self.log))?;
        process.wait_until_ready()?;
        *self.process() = Some(process);
        Ok(())
    }

    /// Returns a global as the admin API shows it, head and body of the response.
    pub(crate) fn transaction(&self, xid: &str) -> Result<String> {
        self.get(&format!("/api/v1/transactions/{xid}"))
    }

    /// Returns whether this coordinator leads those that share its store.
    pub(crate) fn leads(&self) -> Result<bool> {
        if self.process().is_none() {
            return Ok(false);
        }
        Ok(self.get("/readyz?leader")?.starts_with("HTTP/1.1 200"))
    }

    /// Returns what the admin API answers, head and body.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let process = self.process();
        process.as_ref().context("the coordinator is down")?.get(path)
    }

    fn process(&self) -> MutexGuard<'_, Option<CoordinatorProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

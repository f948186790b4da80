//! The coordinator of a stage: `handfast serve` on a directory and ports that stay through
//! restarts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use handfast_test_services::{CoordinatorProcess, free_address};

use crate::process::without_configuration;

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

/// The coordinator of a stage.
#[derive(Debug)]
pub(crate) struct Coordinator {
    program: PathBuf,
    data_dir: PathBuf,
    log: PathBuf,
    seata: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    process: Mutex<Option<CoordinatorProcess>>,
}

impl Coordinator {
    /// Starts a coordinator and waits until it leads.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let coordinator = Self {
            program: program.to_owned(),
            data_dir: folder.join("coordinator"),
            log: folder.join("coordinator.log"),
            // Chosen before the first start: clients are configured with them.
            seata: free_address(Ipv4Addr::LOCALHOST.into())?,
            grpc: free_address(Ipv4Addr::LOCALHOST.into())?,
            admin: free_address(Ipv4Addr::LOCALHOST.into())?,
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

    /// Starts the coordinator on its ports and records, and waits until it leads.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        without_configuration(&mut command);
        command.arg("serve").arg("--data-dir").arg(&self.data_dir);
        command.arg("--advertised-address").arg(self.seata.to_string());
        command.arg("--set").arg(format!("seata.listen={}", self.seata));
        for setting in SETTINGS {
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
        let process = self.process();
        let process = process.as_ref().context("the coordinator is down")?;
        process.get(&format!("/api/v1/transactions/{xid}"))
    }

    fn process(&self) -> MutexGuard<'_, Option<CoordinatorProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A coordinator: `handfast serve` on a directory and ports that stay through restarts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use handfast_test_services::{CoordinatorProcess, free_address, without_configuration};

use crate::program::sibling;

/// Calls of phase two are retried soon.
const SETTINGS: [&str; 2] = ["dispatch.retry_delay_ms_min=50", "dispatch.retry_delay_ms_max=500"];

/// A coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    folder: PathBuf,
    grpc: SocketAddr,
    admin: SocketAddr,
    process: Option<CoordinatorProcess>,
}

impl Coordinator {
    /// Starts a coordinator with the configuration `handfast.toml` of a folder, in which it also
    /// keeps its records and its log.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut coordinator = Self {
            folder: folder.to_owned(),
            grpc: free_address(Ipv4Addr::LOCALHOST.into())?,
            admin: free_address(Ipv4Addr::LOCALHOST.into())?,
            process: None,
        };
        coordinator.restart()?;
        Ok(coordinator)
    }

    /// Returns the address of the native API.
    pub(crate) fn address(&self) -> SocketAddr {
        self.grpc
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.take().context("the coordinator is down")?.kill()
    }

    /// Starts it on its ports and records, and waits until it leads.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let mut command = Command::new(sibling("handfast")?);
        without_configuration(&mut command);
        command.arg("serve").arg("--config").arg(self.folder.join("handfast.toml"));
        command.arg("--data-dir").arg(self.folder.join("coordinator"));
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        let log = self.folder.join("coordinator.log");
        let mut process = CoordinatorProcess::start(command, [self.grpc, self.admin], Some(&log))?;
        process.wait_until_ready()?;
        self.process = Some(process);
        Ok(())
    }
}

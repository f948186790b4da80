//! `handfast serve` on a directory and ports that stay through restarts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::Process;
use crate::wait::until;

/// Phase two is tried again soon.
const SETTINGS: &[&str] = &[
    "seata.enabled=true",
    "dispatch.retry_delay_ms_min=50",
    "dispatch.retry_delay_ms_max=500",
    "dispatch.answer_timeout_ms=5000",
    // Once a day is not soon enough for anybody who waits for it.
    "seata.undo_log_delay_ms=1000",
    "seata.undo_log_period_ms=1000",
];

/// How long one question of the admin API may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// The coordinator of a stage.
#[derive(Debug)]
pub(crate) struct Coordinator {
    program: PathBuf,
    data_dir: PathBuf,
    log: PathBuf,
    seata: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    process: Mutex<Option<Process>>,
}

impl Coordinator {
    /// Starts it, and waits until it leads.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let coordinator = Self {
            program: program.to_owned(),
            data_dir: folder.join("coordinator"),
            log: folder.join("coordinator.log"),
            seata: free_address()?,
            grpc: free_address()?,
            admin: free_address()?,
            process: Mutex::new(None),
        };
        coordinator.restart()?;
        Ok(coordinator)
    }

    /// Where clients of Seata find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.seata
    }

    /// Whom those ask that have no list.
    pub(crate) fn registry(&self) -> SocketAddr {
        self.admin
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&self) -> Result<()> {
        self.process().take().context("the coordinator is down")?.kill()
    }

    /// Starts it on its records, and waits until it leads.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--data-dir").arg(&self.data_dir);
        command.arg("--grpc-listen").arg(self.grpc.to_string());
        command.arg("--admin-listen").arg(self.admin.to_string());
        command.arg("--advertised-address").arg(self.seata.to_string());
        command.arg("--set").arg(format!("seata.listen={}", self.seata));
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        let (process, _pipes) = Process::start(command, &self.log)?;
        *self.process() = Some(process);
        until("the coordinator is ready", || {
            let mut running = self.process();
            let process = running.as_mut().context("the coordinator is down")?;
            ensure!(!process.has_ended()?, "the coordinator ended, see {}", self.log.display());
            Ok(self.is_ready())
        })
    }

    /// A global as operators see it.
    pub(crate) fn transaction(&self, xid: &str) -> Result<String> {
        self.ask(&format!("/api/v1/transactions/{xid}"))
    }

    /// Not ready is also who does not answer yet.
    fn is_ready(&self) -> bool {
        self.ask("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    fn ask(&self, path: &str) -> Result<String> {
        let mut io = TcpStream::connect(self.admin)?;
        io.set_read_timeout(Some(ANSWERED_WITHIN))?;
        write!(io, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin)?;
        let mut answer = String::new();
        io.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A free port, kept through restarts: clients find the coordinator where it was.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

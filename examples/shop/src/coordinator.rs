//! The coordinator that the run uses: in this process, as a child that can be killed, or elsewhere.
//!
//! It does not use the harness of the tests: the examples show what an application needs, and must
//! not depend on test code.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use handfast_server::config::{AdminConfig, Config, GrpcConfig};
use handfast_server::serve::{RunningServer, Server};
use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::cli::{ChildOptions, Options};

const READY_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A coordinator and where it answers.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// URL of the native API.
    pub(crate) url: String,
    /// URL of the admin API.
    pub(crate) admin: String,
    location: Location,
}

#[derive(Debug)]
enum Location {
    Here(Box<RunningServer>),
    Child(Box<ChildCoordinator>),
    Elsewhere,
}

/// A coordinator in a process of its own, always on the same ports and data directory.
#[derive(Debug)]
pub(crate) struct ChildCoordinator {
    process: Child,
    data_dir: PathBuf,
    grpc: SocketAddr,
    admin: SocketAddr,
}

/// The counts of the coordinator that the proof needs.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct CoordinatorCounts {
    active: u64,
    committing: u64,
    rolling_back: u64,
    needs_operator: u64,
    /// The number of locked rows.
    pub(crate) locks: u64,
}

impl CoordinatorCounts {
    /// Returns the number of globals that have not ended.
    pub(crate) fn unfinished(&self) -> u64 {
        self.active + self.committing + self.rolling_back + self.needs_operator
    }
}

impl Coordinator {
    /// Starts the coordinator that the options ask for; `data_dir` is for one of our own.
    pub(crate) async fn start(options: &Options, data_dir: &Path) -> Result<Self> {
        if let Some(url) = &options.coordinator {
            let (url, admin) = (url.clone(), options.admin.clone());
            return Ok(Self { url, admin, location: Location::Elsewhere });
        }
        if options.crash_coordinator > 0 {
            let child = ChildCoordinator::start(data_dir).await?;
            let (url, admin) = (url_of(child.grpc), url_of(child.admin));
            return Ok(Self { url, admin, location: Location::Child(Box::new(child)) });
        }
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(config(data_dir, any_port, any_port)).await?;
        let (url, admin) = (url_of(server.grpc_address), url_of(server.admin_address));
        Ok(Self { url, admin, location: Location::Here(Box::new(server)) })
    }

    /// Takes the child out, for the task that kills it.
    pub(crate) fn take_child(&mut self) -> Option<ChildCoordinator> {
        match std::mem::replace(&mut self.location, Location::Elsewhere) {
            Location::Child(child) => Some(*child),
            other @ (Location::Here(_) | Location::Elsewhere) => {
                self.location = other;
                None
            }
        }
    }

    /// Asks the admin API for the counts.
    pub(crate) async fn counts(&self, http: &reqwest::Client) -> Result<CoordinatorCounts> {
        let url = format!("{}/api/v1/status", self.admin);
        let asked = http.get(&url).send().await.and_then(reqwest::Response::error_for_status);
        asked.with_context(|| url.clone())?.json().await.context(url)
    }

    /// Stops what was started here.
    pub(crate) async fn stop(self) -> Result<()> {
        match self.location {
            Location::Here(server) => {
                server.shutdown().await?;
            }
            Location::Child(mut child) => child.kill().await?,
            Location::Elsewhere => {}
        }
        Ok(())
    }
}

impl ChildCoordinator {
    async fn start(data_dir: &Path) -> Result<Self> {
        let (grpc, admin) = (free_address()?, free_address()?);
        let process = spawn(data_dir, grpc, admin)?;
        let mut child = Self { process, data_dir: data_dir.to_owned(), grpc, admin };
        child.wait_ready().await?;
        Ok(child)
    }

    /// Kills the process without warning and starts another on what it left.
    pub(crate) async fn crash_and_restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.process = spawn(&self.data_dir, self.grpc, self.admin)?;
        self.wait_ready().await
    }

    /// Kills the process by SIGKILL: it flushes nothing and sends nothing.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.process.kill().await.context("killing the coordinator")
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let (http, url) = (reqwest::Client::new(), format!("{}/readyz", url_of(self.admin)));
        let started = Instant::now();
        while !http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            if let Some(status) = self.process.try_wait()? {
                bail!("the coordinator ended with {status}");
            }
            if started.elapsed() > READY_WITHIN {
                bail!("the coordinator is not ready after {READY_WITHIN:?}");
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}

/// Runs the hidden sub-command: a coordinator until the parent ends.
pub(crate) async fn serve_as_child(options: ChildOptions) -> Result<ExitCode> {
    let server = Server::start(config(&options.data_dir, options.grpc, options.admin)).await?;
    // The parent holds the other end of standard input and never writes: the end of file is the end
    // of the parent, by an exit or a kill.
    let parent_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    parent_gone.await??;
    server.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

fn spawn(data_dir: &Path, grpc: SocketAddr, admin: SocketAddr) -> Result<Child> {
    let own = std::env::current_exe().context("finding the own executable")?;
    let mut command = Command::new(own);
    command.arg("coordinator").arg("--data-dir").arg(data_dir);
    command.arg("--grpc").arg(grpc.to_string()).arg("--admin").arg(admin.to_string());
    command.stdin(Stdio::piped()).kill_on_drop(true);
    command.spawn().context("starting the coordinator")
}

fn config(data_dir: &Path, grpc: SocketAddr, admin: SocketAddr) -> Config {
    Config {
        data_dir: data_dir.to_owned(),
        grpc: GrpcConfig { listen: grpc, ..GrpcConfig::default() },
        admin: AdminConfig { listen: admin, ..AdminConfig::default() },
        ..Config::default()
    }
}

/// Returns an address with a free port. It is kept through restarts, so that clients find the
/// coordinator again.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}

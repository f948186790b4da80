//! A coordinator in a process of its own: this program again.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use handfast_server::config::{AdminConfig, Config, GrpcConfig, StoreKind};
use handfast_server::serve::Server;
use tokio::process::{Child, Command};

use super::{CoordinatorDatabase, url_of};
use crate::cli::ChildOptions;
use crate::telemetry;

/// A coordinator that is always on the same ports and records.
#[derive(Debug)]
pub(super) struct ChildCoordinator {
    /// The words of the command line before the sub-command.
    words: &'static [&'static str],
    options: ChildOptions,
    /// None after it was killed.
    process: Option<Child>,
}

impl ChildCoordinator {
    /// Starts the process, on free ports.
    pub(super) fn start(
        words: &'static [&'static str],
        data_dir: &Path,
        shared: Option<&CoordinatorDatabase>,
    ) -> Result<Self> {
        let mut options = ChildOptions::alone(data_dir, free_address()?, free_address()?);
        options.database = shared.map(|shared| shared.url.clone());
        options.password_file = shared.and_then(|shared| shared.password_file.clone());
        let mut child = Self { words, options, process: None };
        child.spawn()?;
        Ok(child)
    }

    /// Starts the process again on what it left.
    pub(super) fn spawn(&mut self) -> Result<()> {
        let own = std::env::current_exe().context("finding the own executable")?;
        let mut command = Command::new(own);
        command.args(self.words).arg("coordinator").args(self.options.arguments());
        command.stdin(Stdio::piped()).kill_on_drop(true);
        self.process = Some(command.spawn().context("starting the coordinator")?);
        Ok(())
    }

    /// Kills the process by SIGKILL, if it runs: it flushes nothing and sends nothing.
    pub(super) async fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().await.context("killing the coordinator")?;
        }
        Ok(())
    }

    /// Fails if the process has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if let Some(status) = process.try_wait()? {
            bail!("the coordinator ended with {status}");
        }
        Ok(())
    }

    /// Returns the URL of the native API.
    pub(super) fn url(&self) -> String {
        url_of(self.options.grpc)
    }

    /// Returns the URL of the admin API.
    pub(super) fn admin(&self) -> String {
        url_of(self.options.admin)
    }
}

/// Runs the hidden sub-command: a coordinator until the parent ends.
pub(crate) async fn serve_as_child(options: &ChildOptions) -> Result<()> {
    let config = config(options);
    // One of several coordinators is up while it follows, however long that takes.
    let server = if config.store.is_shared() {
        Server::launch(config).await?
    } else {
        Server::start(config).await?
    };
    // The parent holds the other end of standard input and never writes: the end of file is the end
    // of the parent, by an exit or a kill.
    let parent_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    parent_gone.await??;
    server.shutdown().await?;
    Ok(())
}

/// Returns the configuration of a coordinator.
pub(super) fn config(options: &ChildOptions) -> Config {
    let mut config = Config {
        data_dir: options.data_dir.clone(),
        grpc: GrpcConfig { listen: options.grpc, ..GrpcConfig::default() },
        admin: AdminConfig { listen: options.admin, ..AdminConfig::default() },
        telemetry: telemetry::of_a_coordinator(),
        ..Config::default()
    };
    if let Some(url) = &options.database {
        config.store = StoreKind::Sql;
        config.sql.url = Some(url.clone());
        config.sql.password_file.clone_from(&options.password_file);
    }
    config
}

/// Returns an address with a free port. It is kept through restarts, so that clients find the
/// coordinator again.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

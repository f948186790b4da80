//! Seata's Java client on a coordinator, with a database of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use handfast_interop::seata_server::Flush;
use handfast_interop::{JavaRelease, JavaSettings, seata_server};
use tempfile::TempDir;

use super::database::{BenchDatabase, Fresh};
use super::jdbc::JdbcAddress;
use super::setup::DATABASE_PROGRAMS;
use crate::child::Server;
use crate::java::{FLAGS, JavaClients};
use crate::measure::RunDirectory;
use crate::usage::Process;

/// The coordinator of a Seata client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeataCoordinator {
    /// The coordinator that is measured, on its port for Seata's clients.
    Handfast,
    /// Seata's own, in file mode with its defaults: decisions are not synced before the reply.
    SeataServer,
}

/// A program with the client in it.
#[derive(Clone, Debug)]
pub(crate) struct JavaProgram {
    /// The class that is run.
    pub(crate) class: &'static str,
    /// The arguments after the address of the database.
    pub(crate) arguments: Vec<String>,
}

/// One that runs, with a client.
#[derive(Debug)]
pub(crate) struct SeataSetup<DB: BenchDatabase> {
    // Dropped in this order: the client, its coordinator, then their files.
    pub(super) java: JavaClients,
    pub(super) server: Server,
    pub(super) database: Fresh<DB>,
    coordinator: SeataCoordinator,
    _directory: TempDir,
}

/// The number of connections that look at the rows.
const CONNECTIONS: u32 = 1;

impl SeataCoordinator {
    pub(crate) const ALL: [Self; 2] = [Self::Handfast, Self::SeataServer];

    /// Fetches and builds the programs that it needs.
    pub(crate) fn build(self) -> Result<()> {
        match self {
            Self::Handfast => JavaRelease::NEWEST.build(&[]),
            Self::SeataServer => seata_server::build(),
        }
    }

    async fn start(self, folder: &Path) -> Result<Server> {
        match self {
            Self::Handfast => Server::seata_coordinator(&folder.join("coordinator"), &[]).await,
            Self::SeataServer => Server::seata_server(folder, Flush::Later).await,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Handfast => "Handfast".to_owned(),
            Self::SeataServer => {
                format!("Seata Server {}, {}", seata_server::VERSION, Flush::Later.name())
            }
        }
    }
}

impl JavaProgram {
    /// Returns the command that runs it on a database, with the client's settings in a folder if it
    /// is to be a client of a coordinator.
    pub(super) fn command(
        &self,
        database: &JdbcAddress,
        coordinator: Option<SocketAddr>,
        folder: &Path,
    ) -> Result<Command> {
        let settings = folder.join("java");
        if let Some(coordinator) = coordinator {
            JavaSettings::at(&coordinator.to_string()).write(&settings)?;
        }
        let mut java = JavaRelease::NEWEST.command(&FLAGS, &settings, self.class)?;
        java.args(database.arguments()).args(&self.arguments);
        Ok(java)
    }
}

impl<DB: BenchDatabase> SeataSetup<DB> {
    /// Starts the coordinator and a program with the client on a fresh database with rows.
    pub(crate) async fn open(
        coordinator: SeataCoordinator,
        url: &str,
        place: &RunDirectory,
        program: &JavaProgram,
    ) -> Result<Self> {
        let dialect =
            DB::SEATA.with_context(|| format!("Seata's Java client cannot use {}", DB::PRODUCT))?;
        let directory = place.directory()?;
        let folder = directory.path();
        let database = DB::create(url, folder, CONNECTIONS).await.context("a Seata database")?;
        database.fill().await?;
        for statement in dialect.undo_log {
            DB::execute(&database.pool, (*statement).to_owned()).await?;
        }
        let server = coordinator.start(folder).await?;
        let address = JdbcAddress::new(dialect.jdbc, url, &database.name)?;
        let command = program.command(&address, Some(server.address()), folder)?;
        let java = JavaClients::start(command, folder.join("java.log")).await?;
        Ok(Self { java, server, database, coordinator, _directory: directory })
    }

    /// Returns the client's and the coordinator's name. A client that meets a global lock asks 30
    /// times with pauses of 10 ms, with the rows locked in the database.
    pub(super) fn name(&self) -> String {
        let version = JavaRelease::NEWEST.version();
        format!("Seata {version} in Java, 30 lock retries, on {}", self.coordinator.name())
    }

    /// Returns the processes that work for the client.
    pub(super) fn servers(&self) -> Result<Vec<Process>> {
        let mut servers = Process::named(&DATABASE_PROGRAMS)?;
        servers.push(self.server.process()?);
        Ok(servers)
    }

    /// Ends everything.
    pub(crate) async fn close(self, url: &str) -> Result<()> {
        let Self { java, server, database, .. } = self;
        drop((java, server));
        database.remove(url).await
    }
}

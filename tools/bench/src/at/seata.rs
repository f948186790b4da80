//! Seata's Java client on a coordinator, with a database of its own.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use handfast_interop::{JavaRelease, seata_server};
use tempfile::TempDir;

use super::database::{BenchDatabase, Fresh};
use super::java::{JavaClients, JdbcAddress};
use crate::child::{Server, free_address};
use crate::measure::RunDirectory;

/// The coordinator of a Seata client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SeataCoordinator {
    /// The coordinator that is measured, on its port for Seata's clients.
    Handfast,
    /// Seata's own, in file mode with its defaults: decisions are not synced before the reply.
    SeataServer,
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
            Self::SeataServer => start_seata_server(folder).await,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Handfast => "Handfast".to_owned(),
            Self::SeataServer => format!("Seata Server {}, not synced", seata_server::VERSION),
        }
    }
}

impl<DB: BenchDatabase> SeataSetup<DB> {
    /// Starts the coordinator and a client on a fresh database with rows to contend for.
    pub(crate) async fn open(
        coordinator: SeataCoordinator,
        url: &str,
        place: &RunDirectory,
        rows: i64,
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
        let java = JavaClients::start(server.address(), &address, rows, folder).await?;
        Ok(Self { java, server, database, coordinator, _directory: directory })
    }

    /// Returns the client's and the coordinator's name. A client that meets a global lock asks 30
    /// times with pauses of 10 ms, with the rows locked in the database.
    pub(super) fn name(&self) -> String {
        let version = JavaRelease::NEWEST.version();
        format!("Seata {version} in Java, 30 lock retries, on {}", self.coordinator.name())
    }

    /// Ends everything.
    pub(crate) async fn close(self, url: &str) -> Result<()> {
        let Self { java, server, database, .. } = self;
        drop((java, server));
        database.remove(url).await
    }
}

/// Starts Seata Server in file mode, with its files in a folder. It is another program, and
/// survives if this one is killed.
async fn start_seata_server(folder: &Path) -> Result<Server> {
    let (address, console) = (free_address()?, free_address()?);
    let mut java = seata_server::command(folder, address, console)?;
    let log = File::create(folder.join("seata-server.log")).context("making a log")?;
    java.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Server::start(java, address).await.context("Seata Server")
}

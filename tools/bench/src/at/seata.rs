//! Seata's Java client on a coordinator, with a database of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use handfast_interop::{JavaRelease, built, maven_package};
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
/// The newest release of Seata Server in Maven's repository.
const SERVER_VERSION: &str = "2.0.0";

impl SeataCoordinator {
    pub(crate) const ALL: [Self; 2] = [Self::Handfast, Self::SeataServer];

    /// Fetches and builds the programs that it needs.
    pub(crate) fn build(self) -> Result<()> {
        match self {
            Self::Handfast => JavaRelease::NEWEST.build(&[]),
            Self::SeataServer => {
                let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("seata-server");
                let version = format!("-Dseata.version={SERVER_VERSION}");
                maven_package(&project, &[version], &built_server()?)
            }
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
            Self::SeataServer => format!("Seata Server {SERVER_VERSION}, not synced"),
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
    let mut java = Command::new("java");
    java.args(["-Xmx1g", "-Dseata.config.type=file", "-Dseata.registry.type=file"]);
    java.args(SERVER_NEEDS.iter().map(|setting| format!("-D{setting}")));
    let log_levels = ["root", "io.seata", "com.alipay"];
    java.args(log_levels.map(|name| format!("-Dlogging.level.{name}=warn")));
    java.arg(format!("-Duser.home={}", folder.display()));
    java.arg(format!("-Dseata.store.file.dir={}", folder.join("store").display()));
    java.args([
        format!("-Dserver.address={}", console.ip()),
        format!("-Dserver.port={}", console.port()),
    ]);
    java.arg("-cp").arg(built_server()?.join("libraries/*"));
    java.args(["io.seata.server.ServerApplication", "-m", "file"]);
    java.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    let log = File::create(folder.join("seata-server.log")).context("making a log")?;
    java.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Server::start(java, address).await.context("Seata Server")
}

fn built_server() -> Result<PathBuf> {
    built(&format!("seata-server-{SERVER_VERSION}"))
}

/// Settings without which the server does not start.
const SERVER_NEEDS: [&str; 4] = [
    "seata.security.secretKey=abcdefghijklmnopqrstuvwxyzabcdefghijkl",
    "seata.security.tokenValidityInMilliseconds=1800000",
    "console.user.username=seata",
    "console.user.password=seata",
];

//! The setup: two databases, a coordinator, an echo in its place, and the library between them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast::{At, AtResource, Global, Handfast};
use rand::RngExt;
use rand::rngs::SmallRng;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::WorkMethod;
use super::database::{BenchDatabase, Fresh, ITEMS, Statement};
use crate::child::Server;
use crate::measure::RunDirectory;
use crate::sample::Sample;
use crate::usage::Process;
use crate::workers::{OperationEnd, work};

/// Programs whose processor time counts as the server's.
pub(crate) const DATABASE_PROGRAMS: [&str; 3] = ["mariadbd", "mysqld", "postgres"];
/// The number of branches of one global, where a branch alone is measured.
const BRANCHES_PER_GLOBAL: u32 = 100;
/// The number of connections for phase two, in the background.
const SPARE_CONNECTIONS: usize = 4;

/// The servers and connections that one database product is measured with.
#[derive(Debug)]
pub(crate) struct AtSetup<DB: BenchDatabase> {
    pub(crate) first: Fresh<DB>,
    pub(crate) second: Fresh<DB>,
    pub(crate) coordinator: Server,
    pub(crate) handfast: Handfast,
    pub(crate) first_resource: AtResource<DB>,
    pub(crate) second_resource: AtResource<DB>,
    unlocked_resource: AtResource<DB>,
    echo: Server,
    echo_client: Handfast,
    echo_resource: AtResource<DB>,
    prepared: AtomicU64,
    _directory: TempDir,
}

impl<DB: BenchDatabase> AtSetup<DB> {
    /// Starts and connects everything.
    pub(crate) async fn open(
        url: &str,
        place: &RunDirectory,
        clients: usize,
        kept: usize,
    ) -> Result<Self> {
        let directory = place.directory()?;
        let folder: PathBuf = directory.path().to_owned();
        let connections = u32::try_from(clients + SPARE_CONNECTIONS)?;
        let first = DB::create(url, &folder, connections).await.context("the first database")?;
        let second = DB::create(url, &folder, connections).await.context("the second database")?;
        let coordinator = Server::coordinator(&folder.join("coordinator"), &[]).await?;
        let echo = Server::echo(&[]).await?;
        let handfast = Handfast::connect(coordinator.endpoint()).application("bench").await?;
        let echo_client = Handfast::connect(echo.endpoint()).application("bench").await?;
        for database in [&first, &second] {
            database.fill().await?;
            handfast.migrate(&database.pool).await?;
        }
        let kept = |at: At<DB>| at.keep_connections(kept);
        let unlocked = handfast.at(first.pool.clone()).unlocked_parent("item");
        Ok(Self {
            unlocked_resource: kept(unlocked).await?,
            first_resource: kept(handfast.at(first.pool.clone())).await?,
            second_resource: kept(handfast.at(second.pool.clone())).await?,
            echo_resource: kept(echo_client.at(first.pool.clone())).await?,
            first,
            second,
            coordinator,
            handfast,
            echo,
            echo_client,
            prepared: AtomicU64::new(0),
            _directory: directory,
        })
    }

    /// Ends everything.
    pub(crate) async fn close(self, url: &str) -> Result<()> {
        self.handfast.close().await;
        self.echo_client.close().await;
        self.first.remove(url).await?;
        self.second.remove(url).await
    }

    /// Returns the processes that work for the clients.
    pub(crate) fn servers(&self) -> Result<Vec<Process>> {
        let mut servers = Process::named(&DATABASE_PROGRAMS)?;
        servers.extend([self.coordinator.process()?, self.echo.process()?]);
        Ok(servers)
    }

    /// Measures one way to do the work.
    pub(crate) async fn measure(
        &self,
        what: WorkMethod,
        statement: Statement,
        clients: usize,
        times: (Duration, Duration),
    ) -> Result<(Sample, f64)> {
        let (running, servers) = (Running::new(clients), self.servers()?);
        let measured = work(clients, times, &servers, async |client, random| {
            let own = OwnItems::of(client, clients)?;
            let (item, other) = (own.item(random), own.item(random));
            match what {
                WorkMethod::Local => local(&self.first, statement, item).await?,
                WorkMethod::Branch => {
                    let mut running = running.globals[client].lock().await;
                    let work = branch(&self.echo_resource, statement, item);
                    self.branch(&mut running, work).await?;
                }
                WorkMethod::BranchAlone => {
                    let mut running = running.globals[client].lock().await;
                    let work = alone(&self.echo_resource, statement, item);
                    self.branch(&mut running, work).await?;
                }
                WorkMethod::Global => {
                    self.global(&self.first_resource, statement, item).await?;
                }
                WorkMethod::GlobalLast => {
                    self.global(&self.first_resource.last(), statement, item).await?;
                }
                WorkMethod::GlobalLastAlone => {
                    let global = self.handfast.transaction("bench").begin().await?;
                    let last = self.first_resource.last();
                    global.scope(alone(&last, statement, item)).await?;
                    global.commit().await?;
                }
                WorkMethod::Checked => {
                    let mut local = self.first_resource.checked().begin().await?;
                    DB::update_branch(&mut local, statement, item).await?;
                    local.commit().await?;
                }
                WorkMethod::GlobalUnlocked => {
                    self.global(&self.unlocked_resource, statement, item).await?;
                }
                WorkMethod::Prepared => self.prepared(statement, item).await?,
                WorkMethod::LocalTwo => {
                    local(&self.first, statement, item).await?;
                    local(&self.second, statement, other).await?;
                }
                WorkMethod::GlobalTwo => {
                    self.global_two(&self.second_resource, statement, [item, other]).await?;
                }
                WorkMethod::GlobalTwoLast => {
                    let second = self.second_resource.last();
                    self.global_two(&second, statement, [item, other]).await?;
                }
                WorkMethod::GlobalTwoLastAlone => {
                    let global = self.handfast.transaction("bench").begin().await?;
                    global.scope(alone(&self.first_resource, statement, item)).await?;
                    let last = self.second_resource.last();
                    global.scope(alone(&last, statement, other)).await?;
                    global.commit().await?;
                }
            }
            Ok(OperationEnd::Well)
        });
        let measured = measured.await?;
        running.end().await?;
        Ok(measured)
    }

    /// Runs a whole global of one branch.
    async fn global(
        &self,
        resource: &AtResource<DB>,
        statement: Statement,
        item: i64,
    ) -> Result<()> {
        let global = self.handfast.transaction("bench").begin().await?;
        global.scope(branch(resource, statement, item)).await?;
        global.commit().await?;
        Ok(())
    }

    /// Runs a whole global of a branch in each of two databases.
    async fn global_two(
        &self,
        second: &AtResource<DB>,
        statement: Statement,
        [item, other]: [i64; 2],
    ) -> Result<()> {
        let global = self.handfast.transaction("bench").begin().await?;
        global.scope(branch(&self.first_resource, statement, item)).await?;
        global.scope(branch(second, statement, other)).await?;
        global.commit().await?;
        Ok(())
    }

    /// Runs a branch in the client's current global. Many branches share a global, so that the
    /// coordinator's part of it does not count.
    async fn branch(
        &self,
        running: &mut Option<(Global, u32)>,
        work: impl Future<Output = Result<(), sqlx::Error>>,
    ) -> Result<()> {
        let (global, branches) = match running.take() {
            Some((global, branches)) if branches < BRANCHES_PER_GLOBAL => (global, branches),
            full => {
                if let Some((global, _)) = full {
                    global.commit().await?;
                }
                (self.echo_client.transaction("bench").begin().await?, 0)
            }
        };
        global.scope(work).await?;
        *running = Some((global, branches + 1));
        Ok(())
    }

    async fn prepared(&self, statement: Statement, item: i64) -> Result<()> {
        let name = self.prepared.fetch_add(1, Ordering::Relaxed);
        let name = u64::from(std::process::id()) << 40 | name;
        let updated = DB::update_prepared(&self.first.pool, statement, item, name);
        Ok(updated.context("the database has no two-phase commit of its own")?.await?)
    }
}

/// The current global of each client.
struct Running {
    globals: Vec<Mutex<Option<(Global, u32)>>>,
}

impl Running {
    fn new(clients: usize) -> Self {
        Self { globals: (0..clients).map(|_| Mutex::default()).collect() }
    }

    async fn end(self) -> Result<()> {
        for running in self.globals {
            if let Some((global, _)) = running.into_inner() {
                global.commit().await?;
            }
        }
        Ok(())
    }
}

/// The items of one client. No two clients change the same one: a branch on SQLite that holds the
/// database waits for no row, and `contention` and `hot` measure what is not apart.
#[derive(Clone, Copy, Debug)]
struct OwnItems {
    client: i64,
    clients: i64,
}

impl OwnItems {
    fn of(client: usize, clients: usize) -> Result<Self> {
        let (client, clients) = (i64::try_from(client)?, i64::try_from(clients)?);
        ensure!(clients <= ITEMS, "there are {ITEMS} items: at most so many clients");
        Ok(Self { client, clients })
    }

    fn item(self, random: &mut SmallRng) -> i64 {
        random.random_range(0..ITEMS / self.clients) * self.clients + self.client
    }
}

/// Runs BEGIN, the statement, COMMIT.
pub(crate) async fn local<DB: BenchDatabase>(
    database: &Fresh<DB>,
    statement: Statement,
    item: i64,
) -> Result<(), sqlx::Error> {
    let mut local = DB::begin_local(&database.pool).await?;
    DB::update(&mut local, statement, item).await?;
    local.commit().await
}

/// Runs the same as a branch of the ambient global.
pub(crate) async fn branch<DB: BenchDatabase>(
    resource: &AtResource<DB>,
    statement: Statement,
    item: i64,
) -> Result<(), sqlx::Error> {
    let mut local = resource.begin().await?;
    DB::update_branch(&mut local, statement, item).await?;
    local.commit().await
}

/// Runs the statement as a branch of its own.
async fn alone<DB: BenchDatabase>(
    resource: &AtResource<DB>,
    statement: Statement,
    item: i64,
) -> Result<(), sqlx::Error> {
    match statement {
        Statement::Point => DB::update_alone(resource, item).await,
        Statement::General | Statement::Child => branch(resource, statement, item).await,
    }
}

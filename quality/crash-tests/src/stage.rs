//! Coordinators, databases, services and the wires between them, and the faults done to them.

mod coordinators;
mod record;
mod services;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast::Handfast;
use handfast_test_services::{DatabaseServer, ServerDirectory as Servers, ServerKind};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::coordinator::Coordinator;
use crate::database::{DatabaseLocation, JUDGE_PATIENCE, Pool};
use crate::fault::{Fault, WireEnd};
use crate::namespace::Host;
use crate::network::Network;
use crate::program::Program;
use crate::service::{self, TimeLimits};
use crate::shared_store::{SharedKind, SharedStore};
use crate::wire::{Wire, WireState};
use crate::work::{DATABASES, Product, Workload};

pub use record::{Done, Record};
use services::ServiceSlot;

/// The time within which a crash point must be reached.
const CRASH_WITHIN: Duration = Duration::from_secs(30);
/// The time within which work must go on after a fault.
const PROGRESS_WITHIN: Duration = Duration::from_secs(180);

/// The parts of a stage and their work.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that runs the coordinator and the services.
    pub program: Program,
    /// The databases.
    pub products: [Product; DATABASES],
    /// The number of service processes.
    pub services: usize,
    /// The number of operations that each runs at a time.
    pub workers: u64,
    /// The kind of operations.
    pub workload: Workload,
    /// Chooses operations.
    pub seed: u64,
    /// How long the services wait.
    pub limits: TimeLimits,
    /// The folder of the coordinator's records; a temporary directory unless given.
    pub data_dir: Option<PathBuf>,
    /// The host that the services are on, if it is not this one. They then reach the coordinator
    /// over its link, and not over a wire.
    pub host: Option<Arc<Host>>,
    /// Several coordinators on a store that they share, in place of one on its directory. Services
    /// then reach them without wires.
    pub cluster: Option<ClusterSettings>,
}

/// Coordinators that share a store.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The number of coordinators that are there at a time.
    pub coordinators: usize,
    /// The number of further ones, which come in the place of others.
    pub spares: usize,
    /// The kind of store.
    pub store: SharedKind,
    /// The hosts that they are on, if it is not this one: one for each.
    pub network: Option<Arc<Network>>,
    /// The program that every second coordinator runs, beginning with the first, if it is another:
    /// one of an earlier commit, as in the middle of an upgrade.
    pub earlier: Option<Program>,
}

/// The whole system, running.
#[derive(Debug)]
pub struct RunningSystem {
    settings: Settings,
    /// The coordinators, those included that are away.
    pub coordinators: Vec<Coordinator>,
    /// The numbers of those that are away until another one is replaced, longest first.
    absent: VecDeque<usize>,
    /// The store that they share, if they are several.
    shared: Option<SharedStore>,
    /// Connections of our own to the databases, which bypass the wires.
    pub pools: [Pool; DATABASES],
    servers: [Option<DatabaseServer>; DATABASES],
    services: Vec<ServiceSlot>,
    processes: u64,
    started: Instant,
    /// The reports of the services.
    pub record: Arc<Record>,
    /// The number of times each fault was done.
    pub faults: BTreeMap<String, u64>,
    // Last: everything else has its files here.
    folder: TempDir,
}

impl RunningSystem {
    /// Starts everything and waits until the services work.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn start(settings: Settings) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("handfast-crash-").tempdir()?;
        let (coordinators, shared) = coordinators::start(&settings, folder.path()).await?;
        let present = settings.cluster.as_ref().map_or(1, |cluster| cluster.coordinators);
        let absent = (present..coordinators.len()).collect();
        let servers = start_servers(settings.products).await?;
        let places = [0, 1].map(|database| place(&folder, &servers, database, None));
        let pool = |place| Pool::new(place, 4, JUDGE_PATIENCE);
        let pools = [pool(&places[0])?, pool(&places[1])?];
        let mut stage = Self {
            settings,
            coordinators,
            absent,
            shared,
            pools,
            servers,
            services: Vec::new(),
            processes: 0,
            started: Instant::now(),
            record: Arc::new(Record::default()),
            faults: BTreeMap::new(),
            folder,
        };
        stage.make_tables().await?;
        for _ in 0..stage.settings.services {
            let slot = stage.new_slot().await?;
            stage.services.push(slot);
        }
        for service in 0..stage.services.len() {
            stage.start_service(service, None).await?;
        }
        stage.until_progress().await.context("the services begin to work")?;
        Ok(stage)
    }

    /// Returns the endpoints of the coordinators, those included that are away: clients know the
    /// names of all that may come.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.coordinators.iter().map(Coordinator::endpoint).collect()
    }

    /// Returns another client of the coordinators, which bypasses the wires.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn observer(&self) -> Result<Handfast> {
        Ok(service::connect(&self.endpoints()).application("observer").await?)
    }

    fn coordinator(&mut self) -> &mut Coordinator {
        &mut self.coordinators[0]
    }

    async fn make_tables(&self) -> Result<()> {
        let observer = self.observer().await?;
        for pool in &self.pools {
            pool.make_tables(&observer).await?;
        }
        observer.close().await;
        Ok(())
    }

    /// Returns the numbers of the databases that are servers.
    #[must_use]
    pub fn server_numbers(&self) -> Vec<usize> {
        (0..DATABASES).filter(|database| self.servers[*database].is_some()).collect()
    }

    /// Returns the seed that chose the operations.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Returns the time since the start of the stage.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the number of services.
    #[must_use]
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// Does a fault, undoes it, and waits until an operation commits again.
    ///
    /// # Errors
    /// Returns an error if the fault cannot be done, or no operation commits afterwards.
    pub async fn suffer(&mut self, fault: &Fault) -> Result<()> {
        let happened = self.do_fault(fault).await.with_context(|| fault.to_string())?;
        if happened {
            *self.faults.entry(fault.to_string()).or_default() += 1;
        }
        self.until_progress().await.with_context(|| format!("after: {fault}"))
    }

    /// Returns `false` if a crash point was not reached in time.
    async fn do_fault(&mut self, fault: &Fault) -> Result<bool> {
        match fault {
            Fault::KillCoordinator => self.coordinator().restart(None).await?,
            Fault::SetClock(ahead_s) => {
                self.coordinator().set_clock(*ahead_s)?;
                self.coordinator().restart(None).await?;
            }
            Fault::CrashCoordinator { point, pass } => {
                self.coordinator().restart(Some(&format!("{point}:{pass}"))).await?;
                let crashed = self.coordinator().running()?.crashed(CRASH_WITHIN).await?;
                self.coordinator().restart(None).await?;
                return Ok(crashed);
            }
            // The sleeps here and below are the length of the fault itself.
            Fault::PauseCoordinator(lasting) => {
                self.coordinator().running()?.pause()?;
                sleep(*lasting).await;
                self.coordinator().running()?.go_on()?;
            }
            Fault::KillService(service) => self.start_service(*service, None).await?,
            Fault::CrashService { service, point, pass } => {
                let point_and_pass = format!("{point}:{pass}");
                self.start_service(*service, Some(("HANDFAST_CRASH_POINT", point_and_pass)))
                    .await?;
                let crashed = self.services[*service].crashed_at(point, CRASH_WITHIN).await?;
                // A point that was not reached may be reached later, so this process is replaced in
                // any case.
                self.start_service(*service, None).await?;
                return Ok(crashed);
            }
            Fault::PauseService(service, lasting) => {
                self.services[*service].running()?.pause()?;
                sleep(*lasting).await;
                self.services[*service].running()?.go_on()?;
            }
            Fault::StopService { service, point, lasting } => {
                self.start_service(*service, Some(("HANDFAST_STOP_POINT", (*point).to_owned())))
                    .await?;
                let process = self.services[*service].running()?;
                process.stopped(PROGRESS_WITHIN).await?;
                sleep(*lasting).await;
                process.go_on()?;
            }
            Fault::KillDatabase(database) => self.restart_server(*database).await?,
            Fault::PauseDatabase(database, lasting) => {
                self.server(*database)?.pause();
                sleep(*lasting).await;
                self.server(*database)?.go_on();
            }
            Fault::Wire { service, to, state, lasting } => {
                let wire = self.services[*service].wire(*to)?;
                wire.set(*state);
                sleep(*lasting).await;
                wire.set(WireState::Sound);
            }
            Fault::CutHost(lasting) => {
                let host = self.settings.host.as_ref().context("the services are on this host")?;
                host.cut()?;
                sleep(*lasting).await;
                host.heal()?;
            }
        }
        Ok(true)
    }

    /// Waits until an operation that begins from here on has committed.
    ///
    /// # Errors
    /// When none does.
    pub async fn until_progress(&self) -> Result<()> {
        self.record.until_later_operation_commits(PROGRESS_WITHIN).await
    }

    /// Waits until a global that reads a total or a list has committed.
    ///
    /// # Errors
    /// When none does.
    pub async fn until_read(&self) -> Result<()> {
        self.record.until_read(PROGRESS_WITHIN).await
    }

    /// Lets the services finish what they do; they stay, to finish branches.
    ///
    /// # Errors
    /// When one does not come to an end.
    pub async fn finish_services(&mut self) -> Result<()> {
        for slot in &mut self.services {
            slot.finish().await?;
        }
        Ok(())
    }

    fn server(&self, database: usize) -> Result<&DatabaseServer> {
        self.servers[database].as_ref().context("the database is a file")
    }

    async fn restart_server(&mut self, database: usize) -> Result<()> {
        let mut server = self.servers[database].take().context("the database is a file")?;
        // It blocks until the server answers.
        let restarted = tokio::task::spawn_blocking(move || server.restart().map(|()| server));
        self.servers[database] = Some(restarted.await??);
        Ok(())
    }

    async fn new_slot(&self) -> Result<ServiceSlot> {
        let coordinator = match &self.coordinators[..] {
            [one] => Some(Wire::to(one.address()).await?),
            _ => None,
        };
        let mut wires = Vec::new();
        for server in &self.servers {
            wires.push(match server {
                Some(server) => Some(Wire::to(server.address()).await?),
                None => None,
            });
        }
        let databases = wires.try_into().expect("a wire or none for each database");
        Ok(ServiceSlot::new(coordinator, databases))
    }

    /// Starts a service, or another in the place of the one that is killed for it. A variable can
    /// name a point for it to die or to stop at.
    async fn start_service(&mut self, service: usize, point: Option<(&str, String)>) -> Result<()> {
        self.processes += 1;
        let slot = &mut self.services[service];
        let places = [0, 1]
            .map(|database| place(&self.folder, &self.servers, database, slot.address(database)));
        let log = self.folder.path().join(format!("service-{service}.log"));
        let host = self.settings.host.as_ref();
        let prefix = host.map_or_else(Vec::new, |host| host.prefix().to_vec());
        let mut command = self.settings.program.part_after(&prefix, "service", &log)?;
        let endpoints = match &slot.coordinator {
            Some(wire) if host.is_none() => vec![format!("http://{}", wire.address())],
            Some(_) | None => self.coordinators.iter().map(Coordinator::endpoint).collect(),
        };
        command.arg(slot.script(&self.settings, self.processes, endpoints, places)?);
        command.envs(point);
        slot.restart(command, Arc::clone(&self.record)).await
    }

    /// Stops everything in order.
    ///
    /// # Errors
    /// When a part does not stop.
    pub async fn stop(mut self) -> Result<()> {
        for slot in &mut self.services {
            slot.kill().await?;
        }
        for coordinator in &mut self.coordinators {
            coordinator.kill().await?;
        }
        // They block until they have stopped.
        let servers = (self.servers, self.shared);
        tokio::task::spawn_blocking(move || drop(servers)).await?;
        Ok(())
    }
}

/// Starts the private servers that the products ask for, at the same time.
async fn start_servers(products: [Product; DATABASES]) -> Result<[Option<DatabaseServer>; 2]> {
    let kinds = products.map(|product| match product {
        Product::Postgres => Some(ServerKind::Postgres),
        Product::MariaDb => Some(ServerKind::MariaDb),
        Product::Sqlite => None,
    });
    let place = Servers::new()?;
    let starting = kinds.map(|kind| {
        let place = Arc::clone(&place);
        tokio::task::spawn_blocking(move || {
            kind.map(|kind| DatabaseServer::start(kind, &place, &|| Ok(()))).transpose()
        })
    });
    let [first, second] = starting;
    let servers = [first.await??, second.await??];
    for server in servers.iter().flatten() {
        make_database(server).await?;
    }
    Ok(servers)
}

/// MariaDB has none in the beginning.
pub(crate) async fn make_database(server: &DatabaseServer) -> Result<()> {
    if server.kind() == ServerKind::MariaDb {
        let place = DatabaseLocation { product: Product::MariaDb, url: server.url() };
        let pool = Pool::new(&place, 1, JUDGE_PATIENCE)?;
        pool.execute("CREATE DATABASE handfast CHARACTER SET utf8mb4").await?;
    }
    Ok(())
}

/// Returns the location of a database, directly or through a wire.
fn place(
    folder: &TempDir,
    servers: &[Option<DatabaseServer>; DATABASES],
    database: usize,
    through: Option<std::net::SocketAddr>,
) -> DatabaseLocation {
    let Some(server) = &servers[database] else {
        let file = folder.path().join(format!("database-{database}.sqlite"));
        return DatabaseLocation { product: Product::Sqlite, url: file.display().to_string() };
    };
    let url = server.url_through(through.unwrap_or(server.address()));
    match server.kind() {
        ServerKind::Postgres => {
            DatabaseLocation { product: Product::Postgres, url: format!("{url}?sslmode=disable") }
        }
        ServerKind::MariaDb => DatabaseLocation {
            product: Product::MariaDb,
            url: format!("{url}/handfast?ssl-mode=DISABLED"),
        },
        ServerKind::Redis
        | ServerKind::RabbitMq
        | ServerKind::Nats
        | ServerKind::Etcd
        | ServerKind::ZooKeeper => {
            unreachable!("every product has SQL")
        }
    }
}

impl Settings {
    /// Checks the rules that the types do not enforce.
    ///
    /// # Errors
    /// Returns an error if there are no services.
    pub fn check(&self) -> Result<()> {
        ensure!(self.services > 0 && self.workers > 0, "at least one service and one worker");
        Ok(())
    }
}

impl ServiceSlot {
    fn wire(&self, end: WireEnd) -> Result<&Wire> {
        match end {
            WireEnd::Coordinator => {
                self.coordinator.as_ref().context("the coordinators are reached without a wire")
            }
            WireEnd::Database(database) => {
                self.databases[database].as_ref().context("the database is a file")
            }
        }
    }
}

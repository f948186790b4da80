//! The stage of a scenario: a coordinator, a database and services with one release of a client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::client::{Client, ClientSetup, Endpoints, Registry, Wanted};
use crate::cluster::CoordinatorCluster;
use crate::coordinator::Coordinator;
use crate::database::Database;
use crate::line::CuttableLine;
use crate::service::{Actor, Service};
use crate::wait::{same, until, until_same};

/// The application of the services, unless a scenario names another.
const APPLICATION: &str = "shop";

/// The amount that every row of the stock begins with.
pub(crate) const AMOUNT: i64 = 1000;

/// The stage of one client on one database.
#[derive(Debug)]
pub(crate) struct TestBed {
    // Dropped in this order: the services, the coordinator, then their files.
    /// Begins and ends globals, looks at the database, and has no branches.
    desk: Service,
    /// Has branches, and reaches the coordinator by the line.
    shop: Service,
    line: CuttableLine,
    coordinator: Coordinator,
    program: PathBuf,
    client: Client,
    way: ClientSetup,
    database: Arc<Database>,
    name: String,
    folder: TempDir,
    row_last: AtomicU32,
    service_last: AtomicU32,
}

impl TestBed {
    /// Sets it up, with a database of this name.
    pub(crate) fn set_up(
        client: Client,
        way: ClientSetup,
        database: &Arc<Database>,
        name: &str,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("handfast-interop-").tempdir()?;
        let program = std::env::current_exe()?.with_file_name("handfast");
        let coordinator = Coordinator::start(&program, folder.path())?;
        let line = CuttableLine::to(coordinator.address())?;
        let start = |service: &str, address| {
            let place = folder.path().join(service);
            let registries = vec![coordinator.registry()];
            let coordinators = vec![address];
            let endpoints = Endpoints { coordinators, registries, idle: Vec::new() };
            start_service(client, way, database, name, APPLICATION, &place, &endpoints)
        };
        let desk = start("desk", coordinator.address())?;
        let shop = start("shop", line.address())?;
        // A client that asks the registry connects to the coordinator directly, past the line.
        if way.registry == Registry::File {
            until("the client connects", || Ok(line.written().is_some()))?;
            same("how the client writes", &line.written(), &Some(way.written()?))?;
        }
        let maker = desk.actor();
        for statement in database.tables(name) {
            maker.tell(&format!("plain {statement}"))?;
        }
        Ok(Self {
            desk,
            shop,
            line,
            coordinator,
            program,
            client,
            way,
            database: Arc::clone(database),
            name: name.to_owned(),
            folder,
            row_last: AtomicU32::new(0),
            service_last: AtomicU32::new(0),
        })
    }

    /// The service without branches.
    pub(crate) fn desk(&self) -> Actor<'_> {
        self.desk.actor()
    }

    /// The service with branches.
    pub(crate) fn shop(&self) -> &Service {
        &self.shop
    }

    /// One more process of the shop's application and resources.
    pub(crate) fn second_shop(&self) -> Result<Service> {
        self.service_of(APPLICATION)
    }

    /// A process of another application, on the shop's database.
    pub(crate) fn service_of(&self, application: &str) -> Result<Service> {
        let coordinators = vec![self.coordinator.address()];
        let registries = vec![self.coordinator.registry()];
        self.service_at(
            application,
            self.way,
            &Endpoints { coordinators, registries, idle: Vec::new() },
        )
    }

    /// A process of an application that uses one coordinator and also has another in its settings,
    /// on the shop's database.
    pub(crate) fn service_between(
        &self,
        application: &str,
        used: SocketAddr,
        idle: SocketAddr,
    ) -> Result<Service> {
        let (coordinators, registries) = (vec![used], Vec::new());
        let endpoints = Endpoints { coordinators, registries, idle: vec![idle] };
        self.service_at(application, self.way, &endpoints)
    }

    /// Returns the folder for files of a scenario.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Three coordinators on a database of their own.
    pub(crate) fn cluster(&self) -> Result<CoordinatorCluster> {
        CoordinatorCluster::start(&self.program, self.folder.path())
    }

    /// A process of the shop at a cluster for each registry that the client has.
    pub(crate) fn shops_at(&self, cluster: &CoordinatorCluster) -> Result<Vec<Service>> {
        let (coordinators, registries) = (cluster.addresses(), cluster.registries());
        let endpoints = Endpoints { coordinators, registries, idle: Vec::new() };
        let by_raft = self.client.has_raft().then_some(Registry::Raft);
        let start = |registry| {
            let way = ClientSetup { registry, ..self.way };
            self.service_at(APPLICATION, way, &endpoints)
        };
        [Registry::File].into_iter().chain(by_raft).map(start).collect()
    }

    fn service_at(
        &self,
        application: &str,
        way: ClientSetup,
        endpoints: &Endpoints,
    ) -> Result<Service> {
        let number = self.service_last.fetch_add(1, Ordering::Relaxed);
        let place = self.folder.path().join(format!("{application}-{number}"));
        let (client, name) = (self.client, &self.name);
        start_service(client, way, &self.database, name, application, &place, endpoints)
    }

    /// Returns the line between the shop and the coordinator.
    pub(crate) fn line(&self) -> &CuttableLine {
        &self.line
    }

    /// The coordinator.
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// A number that no other row has.
    pub(crate) fn new_id(&self) -> u32 {
        self.row_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A row of its own with [`AMOUNT`] in it.
    pub(crate) fn new_row(&self) -> Result<u32> {
        let row = self.new_id();
        self.plain(&format!("insert into stock values ({row}, 'row {row}', {AMOUNT})"))?;
        Ok(row)
    }

    /// Returns the amount in a row of the stock.
    pub(crate) fn amount(&self, row: u32) -> Result<i64> {
        let amount = self.plain(&format!("select amount from stock where id = {row}"))?;
        amount.parse().with_context(|| format!("row {row}: {amount:?}"))
    }

    /// Waits until this is in a row of the stock.
    pub(crate) fn until_amount(&self, row: u32, amount: i64) -> Result<()> {
        until_same(&format!("the amount of row {row}"), &amount, || self.amount(row))
    }

    /// Returns the number of undo rows of a global.
    pub(crate) fn undo_rows(&self, xid: &str) -> Result<String> {
        self.plain(&format!("select count(*) from undo_log where log_status = 0 and xid = '{xid}'"))
    }

    /// Waits until a global has no undo rows.
    pub(crate) fn until_no_undo_rows(&self, xid: &str) -> Result<()> {
        until_same("the number of undo rows", &"0".to_owned(), || self.undo_rows(xid))
    }

    /// Waits until a client that asks for the status of a global gets this one.
    pub(crate) fn until_status(&self, xid: &str, status: &str) -> Result<()> {
        let ask = format!("status {xid}");
        until_same("the status", &status.to_owned(), || self.desk().tell_until_done(&ask))
    }

    /// A statement outside of any global.
    pub(crate) fn plain(&self, statement: &str) -> Result<String> {
        self.desk().tell(&format!("plain {statement}"))
    }

    /// Keeps the logs, from which the cause of a failure can be found, and returns their folder.
    pub(crate) fn keep_logs(self) -> PathBuf {
        let Self { folder, desk: _, shop: _, coordinator: _, .. } = self;
        folder.keep()
    }
}

/// The statement that takes one from a row.
pub(crate) fn take_one(row: u32) -> String {
    format!("update stock set amount = amount - 1 where id = {row}")
}

fn start_service(
    client: Client,
    way: ClientSetup,
    database: &Database,
    name: &str,
    application: &str,
    folder: &Path,
    endpoints: &Endpoints,
) -> Result<Service> {
    let wanted = Wanted { application, folder, endpoints, way, database, name };
    Service::start(client.service(&wanted)?, &folder.with_extension("log"))
}

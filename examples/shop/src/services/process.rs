//! The services of ordinary SQL as processes of their own.

use anyhow::{Context, Result};
use handfast::{Connect, Handfast};
use serde::{Deserialize, Serialize};

use super::order::Neighbours;
use super::{Service, Services, account, order, stock};
use crate::database::{Pool, SqlMode};
use crate::example::Site;
use crate::worker::Worker;

/// The input of a process.
#[derive(Debug, Serialize, Deserialize)]
struct ServiceInput {
    role: Role,
    mode: SqlMode,
    database: String,
    node: String,
    coordinators: Vec<String>,
}

/// The service that a process is.
#[derive(Debug, Serialize, Deserialize)]
enum Role {
    Order(Neighbours),
    Stock,
    Account,
}

/// Few requests at a time go to one process of an example.
const CONNECTIONS: u32 = 16;

impl Services {
    /// Starts all three as processes, in one mode. Their tables are made and filled here.
    ///
    /// # Errors
    /// Whatever keeps one of them from starting.
    pub async fn start_in_processes(site: &Site<'_>, mode: SqlMode) -> Result<Self> {
        let (databases, input) = (site.databases, site.input);
        let handfast = site.connect("tables").await?;
        stock::fill(&databases.stock, &handfast, &input.products).await?;
        account::fill(&databases.account, &handfast, &input.customers, site.balance_cents).await?;
        databases.order.make_tables(&handfast, order::TABLES).await?;
        handfast.close().await;

        let [of_order, of_stock, of_account] = &databases.places;
        let start = async |role: Role, name: &'static str, database: &String| {
            let input = ServiceInput {
                role,
                mode,
                database: database.clone(),
                node: site.node(name),
                coordinators: site.coordinators.to_vec(),
            };
            let part = serde_json::to_string(&input)?;
            let (worker, url) = Worker::start_service(part, &format!("{name}-service")).await?;
            anyhow::Ok(Service::elsewhere(url, worker))
        };
        let stock = start(Role::Stock, "stock", of_stock).await?;
        let account = start(Role::Account, "account", of_account).await?;
        let neighbours = Neighbours { stock: stock.url.clone(), account: account.url.clone() };
        let order = start(Role::Order(neighbours), "order", of_order).await?;
        Ok(Self { order, stock, account })
    }
}

/// In the process: is the service, and says where on standard output, for as long as the process
/// lives.
///
/// # Errors
/// Whatever keeps it from starting.
pub async fn play(input: &str) -> Result<()> {
    let input: ServiceInput =
        serde_json::from_str(input).context("reading the input of a process")?;
    let (first, others) = input.coordinators.split_first().context("there is no coordinator")?;
    let connect = others.iter().fold(Handfast::connect(first), Connect::endpoint);
    let name = match input.role {
        Role::Order(_) => "order-service",
        Role::Stock => "stock-service",
        Role::Account => "account-service",
    };
    let handfast = connect.application(name).await?;
    let pool = Pool::open(&input.database, CONNECTIONS).await?;
    let (mode, node) = (input.mode, &*input.node);
    let service = match input.role {
        Role::Order(neighbours) => order::serve(&pool, handfast, mode, node, neighbours).await?,
        Role::Stock => stock::start(&pool, handfast, mode, node).await?,
        Role::Account => account::start(&pool, handfast, mode, node).await?,
    };
    crate::worker::tell_parent(&service.url)?;
    std::future::pending().await
}

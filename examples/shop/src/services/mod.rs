//! The three services, each with a database of its own, and what they have in common.
//!
//! They are written in ordinary SQL; what makes a local transaction of theirs a branch is the mode
//! that their databases join in. An example may put services of its own in their places.

pub mod account;
mod failure;
pub mod order;
mod process;
pub mod stock;

pub use failure::{BusinessRefusal, ServiceFailure};
pub use process::play;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use axum::Router;
use handfast::Handfast;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::order::Neighbours;
use crate::database::SqlMode;
use crate::example::Site;
use crate::worker::Worker;

/// The three services of a run.
#[derive(Debug)]
pub struct Services {
    /// Takes the orders.
    pub order: Service,
    /// Has the stock.
    pub stock: Service,
    /// Has the customers' accounts.
    pub account: Service,
}

impl Services {
    /// Starts all three in ordinary SQL, in one mode.
    ///
    /// # Errors
    /// Whatever keeps one of them from starting.
    pub async fn start_in_sql(site: &Site<'_>, mode: SqlMode) -> Result<Self> {
        let (databases, input) = (site.databases, site.input);
        let handfast = site.connect("stock-service").await?;
        stock::fill(&databases.stock, &handfast, &input.products).await?;
        let stock = stock::start(&databases.stock, handfast, mode, &site.node("stock")).await?;

        let handfast = site.connect("account-service").await?;
        account::fill(&databases.account, &handfast, &input.customers, site.balance_cents).await?;
        let node = site.node("account");
        let account = account::start(&databases.account, handfast, mode, &node).await?;

        let neighbours = Neighbours { stock: stock.url.clone(), account: account.url.clone() };
        let order = order::start(site, mode, neighbours).await?;
        Ok(Self { order, stock, account })
    }

    /// Stops the services, in the order in which they call each other.
    pub(crate) async fn stop(self) -> Result<()> {
        self.order.stop().await?;
        self.stock.stop().await?;
        self.account.stop().await
    }
}

/// A service that listens on a port of the loopback interface.
#[derive(Debug)]
pub struct Service {
    /// The address it listens on.
    pub url: String,
    served_by: ServedBy,
    stop: CancellationToken,
    beside: Vec<JoinHandle<Result<()>>>,
}

/// A server in this process, or another process.
#[derive(Debug)]
enum ServedBy {
    Here { handfast: Handfast, task: JoinHandle<std::io::Result<()>> },
    Process(Worker),
}

impl Service {
    /// Serves until stopped. `handfast` is the service's own connection to the coordinator.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(router: Router, handfast: Handfast) -> Result<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any_port).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
        let task = tokio::spawn(serving.into_future());
        Ok(Self { url, served_by: ServedBy::Here { handfast, task }, stop, beside: Vec::new() })
    }

    /// A service that a process of its own serves there.
    fn elsewhere(url: String, process: Worker) -> Self {
        let (served_by, stop) = (ServedBy::Process(process), CancellationToken::new());
        Self { url, served_by, stop, beside: Vec::new() }
    }

    /// Runs a task beside the service, until the token says that it is stopped.
    pub fn beside<W>(&mut self, work: impl FnOnce(CancellationToken) -> W)
    where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        self.beside.push(tokio::spawn(work(self.stop.clone())));
    }

    /// Answers the requests that have arrived, then closes the port and the connection to the
    /// coordinator.
    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let connection = match self.served_by {
            ServedBy::Here { handfast, task } => {
                task.await??;
                Some(handfast)
            }
            ServedBy::Process(process) => {
                process.finish().await?;
                None
            }
        };
        for work in self.beside {
            work.await??;
        }
        if let Some(connection) = connection {
            connection.close().await;
        }
        Ok(())
    }
}

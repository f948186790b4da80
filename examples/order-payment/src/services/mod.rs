//! The three services, each with a database of its own, and what they have in common.

pub(crate) mod account;
mod failure;
pub(crate) mod order;
pub(crate) mod stock;

pub(crate) use failure::{Failure, Refusal};

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use axum::Router;
use handfast::Handfast;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A service that listens on a port of the loopback interface.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) url: String,
    handfast: Handfast,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Service {
    /// Serves until stopped. `handfast` is the service's own connection to the coordinator.
    pub(crate) async fn start(router: Router, handfast: Handfast) -> Result<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any_port).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
        Ok(Self { url, handfast, stop, task: tokio::spawn(serving.into_future()) })
    }

    /// Answers what it has taken in, then lets go of port and coordinator.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await??;
        self.handfast.close().await;
        Ok(())
    }
}

/// Connects a service to the coordinator under its name.
pub(crate) async fn connect(coordinator: &str, application: &str) -> Result<Handfast> {
    Ok(Handfast::connect(coordinator).application(application).await?)
}

//! The coordinator that the run uses: in this process, as children that can be killed, or
//! elsewhere.
//!
//! It does not use the harness of the tests: the examples show what an application needs, and must
//! not depend on test code.

mod child;
mod children;
mod database;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use handfast_server::serve::{RunningServer, Server};
use serde::Deserialize;

use crate::cli::{ChildOptions, Options};

pub(crate) use child::serve_as_child;
pub(crate) use children::ChildCoordinators;
pub(crate) use database::CoordinatorDatabase;

/// Coordinators of which one leads, and where they answer.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// URLs of the native API.
    pub(crate) urls: Vec<String>,
    /// URLs of the admin API.
    admins: Vec<String>,
    location: Location,
}

#[derive(Debug)]
enum Location {
    Here(Box<RunningServer>),
    Children(Box<ChildCoordinators>),
    Elsewhere,
}

/// The counts of the coordinator that the proof needs.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct CoordinatorCounts {
    active: u64,
    committing: u64,
    rolling_back: u64,
    needs_operator: u64,
    /// The number of locked rows.
    pub(crate) locks: u64,
}

impl CoordinatorCounts {
    /// Returns the number of globals that have not ended.
    pub(crate) fn unfinished(&self) -> u64 {
        self.active + self.committing + self.rolling_back + self.needs_operator
    }
}

impl Coordinator {
    /// Starts the coordinators that the options ask for. The records of one are in `data_dir`,
    /// those of several in the database that they share. Children are this program again, by these
    /// words of its command line.
    pub(crate) async fn start(
        words: &'static [&'static str],
        options: &Options,
        data_dir: &Path,
        shared: Option<&CoordinatorDatabase>,
    ) -> Result<Self> {
        if let Some(url) = &options.coordinator {
            let (urls, admins) = (vec![url.clone()], vec![options.admin.clone()]);
            return Ok(Self { urls, admins, location: Location::Elsewhere });
        }
        if options.crash_coordinator > 0 || shared.is_some() {
            let count = options.coordinators;
            let children = ChildCoordinators::start(words, count, data_dir, shared).await?;
            let (urls, admins) = (children.urls(), children.admins());
            return Ok(Self { urls, admins, location: Location::Children(Box::new(children)) });
        }
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let alone = ChildOptions::alone(data_dir, any_port, any_port);
        let server = Server::start(child::config(&alone)).await?;
        let (urls, admins) =
            (vec![url_of(server.grpc_address)], vec![url_of(server.admin_address)]);
        Ok(Self { urls, admins, location: Location::Here(Box::new(server)) })
    }

    /// Returns the children, for the task that kills them.
    pub(crate) fn take_children(&mut self) -> Option<ChildCoordinators> {
        match std::mem::replace(&mut self.location, Location::Elsewhere) {
            Location::Children(children) => Some(*children),
            other @ (Location::Here(_) | Location::Elsewhere) => {
                self.location = other;
                None
            }
        }
    }

    /// Asks the admin API for the counts. If there are several coordinators, any of them can answer
    /// that leads or knows the leader.
    pub(crate) async fn counts(&self, http: &reqwest::Client) -> Result<CoordinatorCounts> {
        let mut failure = None;
        for admin in &self.admins {
            match counts(http, admin).await {
                Ok(counts) => return Ok(counts),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => bail!("there is no coordinator to ask"),
        }
    }

    /// Stops what was started here.
    pub(crate) async fn stop(self) -> Result<()> {
        match self.location {
            Location::Here(server) => {
                server.shutdown().await?;
            }
            Location::Children(mut children) => children.kill().await?,
            Location::Elsewhere => {}
        }
        Ok(())
    }
}

async fn counts(http: &reqwest::Client, admin: &str) -> Result<CoordinatorCounts> {
    let url = format!("{admin}/api/v1/status");
    let asked = http.get(&url).send().await.and_then(reqwest::Response::error_for_status);
    asked.with_context(|| url.clone())?.json().await.context(url)
}

fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}

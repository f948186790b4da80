//! Three coordinators on one PostgreSQL, of which one leads.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind, free_address};

use crate::coordinator::Coordinator;
use crate::wait::until;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// The counts of a coordinator that has nothing left to do.
const IDLE: [&str; 5] = [
    "\"active\":0,",
    "\"committing\":0,",
    "\"rolling_back\":0,",
    "\"needs_operator\":0,",
    "\"locks\":0,",
];

/// The coordinators, each with ports that stay through restarts.
#[derive(Debug)]
pub(crate) struct CoordinatorCluster {
    // Dropped before the server of their store.
    nodes: Vec<Coordinator>,
    _server: DatabaseServer,
}

impl CoordinatorCluster {
    /// Starts the server and the coordinators, and waits until each leads or knows the leader.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let server =
            DatabaseServer::start(ServerKind::Postgres, &ServerDirectory::new()?, &|| Ok(()))?;
        let url = server.url();
        // The address of no node: a client would send all that belongs to a global to the node that
        // its XID names, also while that is down.
        let advertised = free_address(Ipv4Addr::LOCALHOST.into())?;
        let start = |name: &&str| {
            let settings = vec![
                "store=sql".to_owned(),
                format!("sql.url={url}"),
                format!("cluster.node={name}"),
            ];
            Coordinator::start_with(program, folder, name, Some(advertised), settings)
        };
        let nodes = NAMES.iter().map(start).collect::<Result<_>>()?;
        Ok(Self { nodes, _server: server })
    }

    /// Returns the addresses for clients of Seata, those of nodes that are down included.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Coordinator::address).collect()
    }

    /// Returns the addresses of the registries, one on each node.
    pub(crate) fn registries(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Coordinator::registry).collect()
    }

    /// Waits until a node leads.
    pub(crate) fn leader(&self) -> Result<&Coordinator> {
        let mut found = None;
        until("a node leads", || {
            for node in &self.nodes {
                if node.leads()? {
                    found = Some(node);
                }
            }
            Ok(found.is_some())
        })?;
        found.context("a node was found")
    }

    /// Waits until no global is unfinished and no row is locked.
    pub(crate) fn until_idle(&self) -> Result<()> {
        let mut last = String::new();
        let idle = until("all globals have ended", || {
            last = self.leader()?.get("/api/v1/status")?;
            Ok(IDLE.iter().all(|count| last.contains(count)))
        });
        idle.with_context(|| last)
    }
}

//! The store that several coordinators share: its servers, and a wire from each coordinator to each
//! of them, so that one coordinator alone can be cut off.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tokio::task::spawn_blocking;

use crate::stage::make_database;
use crate::wire::{Wire, WireState};

/// A kind of store that coordinators can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// An etcd cluster of three members.
    Etcd,
}

/// A store on servers of its own.
#[derive(Debug)]
pub struct SharedStore {
    kind: SharedKind,
    servers: Vec<DatabaseServer>,
    /// From each coordinator to each server.
    wires: Vec<Vec<Wire>>,
    password_file: PathBuf,
}

impl SharedStore {
    /// Starts the servers, and the wires of this number of coordinators, which reach this host at
    /// an address.
    ///
    /// # Errors
    /// When a server does not start.
    pub async fn start(
        kind: SharedKind,
        coordinators: usize,
        here: IpAddr,
        folder: &Path,
    ) -> Result<Self> {
        let servers = spawn_blocking(move || start_servers(kind)).await??;
        for server in &servers {
            make_database(server).await?;
        }
        let mut wires = Vec::new();
        for _ in 0..coordinators {
            let mut own = Vec::new();
            for server in &servers {
                own.push(Wire::from(here, server.address()).await?);
            }
            wires.push(own);
        }
        let password_file = folder.join("store-password");
        fs::write(&password_file, "handfast\n").context("writing the password of the store")?;
        Ok(Self { kind, servers, wires, password_file })
    }

    /// Returns the settings by which a coordinator uses the store, each `key=value`.
    #[must_use]
    pub fn settings(&self, coordinator: usize) -> Vec<String> {
        let addresses = || self.wires[coordinator].iter().map(Wire::address);
        let node = format!("cluster.node=node-{coordinator}");
        let of_store: Vec<String> = match self.kind {
            SharedKind::Postgres => {
                addresses().map(|it| format!("sql.url=postgres://handfast@{it}/postgres")).collect()
            }
            SharedKind::MariaDb => addresses()
                .map(|it| format!("sql.url=mysql://handfast@{it}/handfast"))
                .chain([format!("sql.password_file={}", self.password_file.display())])
                .collect(),
            SharedKind::Etcd => {
                let urls: Vec<String> = addresses().map(|it| format!("http://{it}")).collect();
                vec![format!("etcd.endpoints={urls:?}")]
            }
        };
        let store = match self.kind {
            SharedKind::Postgres | SharedKind::MariaDb => "store=sql",
            SharedKind::Etcd => "store=etcd",
        };
        [vec![store.to_owned(), node], of_store].concat()
    }

    /// Changes what the wires of all coordinators do.
    pub fn set_all_wires(&self, state: WireState) {
        self.wires.iter().flatten().for_each(|wire| wire.set(state));
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// Changes what the wires of a coordinator do.
    pub fn set_wires(&self, coordinator: usize, state: WireState) {
        self.wires[coordinator].iter().for_each(|wire| wire.set(state));
    }

    /// Kills a server as `kill -9` does, and starts it again on its data.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self, server: usize) -> Result<()> {
        let mut restarted = self.servers.remove(server);
        // It blocks until the server answers.
        let restarting = spawn_blocking(move || restarted.restart().map(|()| restarted));
        self.servers.insert(server, restarting.await??);
        Ok(())
    }

    /// Stops all servers where they are.
    pub fn pause(&self) {
        self.servers.iter().for_each(DatabaseServer::pause);
    }

    /// Lets the servers go on.
    pub fn go_on(&self) {
        self.servers.iter().for_each(DatabaseServer::go_on);
    }
}

fn start_servers(kind: SharedKind) -> Result<Vec<DatabaseServer>> {
    let place = ServerDirectory::new()?;
    let one = |kind, place: &Arc<ServerDirectory>| {
        Ok(vec![DatabaseServer::start(kind, place, &|| Ok(()))?])
    };
    match kind {
        SharedKind::Postgres => one(ServerKind::Postgres, &place),
        SharedKind::MariaDb => one(ServerKind::MariaDb, &place),
        SharedKind::Etcd => DatabaseServer::cluster(ServerKind::Etcd, &place),
    }
}

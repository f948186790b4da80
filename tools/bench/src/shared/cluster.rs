//! Coordinators that share a fresh database.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sqlx::{ConnectOptions, Pool};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::at::{BenchDatabase, Fresh};
use crate::child::Server;
use crate::measure::RunDirectory;

const LOOK_EVERY: Duration = Duration::from_millis(5);
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// Coordinators that share a database.
pub(super) struct SharedCluster<DB: BenchDatabase> {
    pub(super) nodes: Vec<Server>,
    pub(super) directory: TempDir,
    settings: Vec<String>,
    fresh: Fresh<DB>,
}

impl<DB: BenchDatabase> SharedCluster<DB> {
    /// Starts this number of coordinators on a fresh database of the server.
    pub(super) async fn start(url: &str, place: &RunDirectory, count: usize) -> Result<Self> {
        let directory = place.directory()?;
        let fresh = DB::create(url, directory.path(), 1).await?;
        let settings = settings(&fresh, directory.path())?;
        let mut cluster = Self { nodes: Vec::new(), directory, settings, fresh };
        for number in 0..count {
            let node = cluster.start_node(number).await?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    async fn start_node(&self, number: usize) -> Result<Server> {
        let folder = self.directory.path().join(format!("node-{number}"));
        let name = [format!("cluster.node=node-{number}")];
        Server::coordinator(&folder, &[&self.settings[..], &name].concat()).await
    }

    /// Starts a coordinator again, at another address.
    pub(super) async fn restart(&mut self, number: usize) -> Result<()> {
        self.nodes[number] = self.start_node(number).await?;
        Ok(())
    }

    /// Waits until a coordinator leads, and returns its index.
    pub(super) async fn leading(&self) -> Result<usize> {
        let started = Instant::now();
        while started.elapsed() < LEADS_WITHIN {
            for (place, node) in self.nodes.iter().enumerate() {
                if node.leads().await {
                    return Ok(place);
                }
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("no coordinator leads after {LEADS_WITHIN:?}")
    }

    /// Waits until a coordinator leads, and returns it.
    pub(super) async fn leader(&self) -> Result<&Server> {
        Ok(&self.nodes[self.leading().await?])
    }

    /// Returns connections to the database.
    pub(super) fn pool(&self) -> &Pool<DB> {
        &self.fresh.pool
    }

    /// Ends the coordinators, and removes the database.
    pub(super) async fn end(self, url: &str) -> Result<()> {
        drop(self.nodes);
        self.fresh.remove(url).await
    }
}

/// Returns the settings of coordinators that share the database. The password is in a file.
fn settings<DB: BenchDatabase>(fresh: &Fresh<DB>, folder: &Path) -> Result<Vec<String>> {
    let url = fresh.pool.connect_options().to_url_lossy();
    let password = url.password().unwrap_or_default().to_owned();
    let file = folder.join("password");
    std::fs::write(&file, format!("{password}\n")).context("writing the password")?;
    let mut bare = url;
    if bare.set_password(None).is_err() {
        bail!("the URL of the database takes no password");
    }
    let mut settings = vec![
        "store=sql".to_owned(),
        format!("sql.url={bare}"),
        "advertised_address=tc:7091".to_owned(),
        "limits.share_per_connection=100".to_owned(),
        "limits.share_per_application=100".to_owned(),
    ];
    if !password.is_empty() {
        settings.push(format!("sql.password_file={}", file.display()));
    }
    Ok(settings)
}

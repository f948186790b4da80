//! One coordinator, or several of which one leads, as children that are killed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::CoordinatorDatabase;
use super::child::ChildCoordinator;

const READY_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The children.
#[derive(Debug)]
pub(crate) struct ChildCoordinators {
    nodes: Vec<ChildCoordinator>,
    http: reqwest::Client,
}

impl ChildCoordinators {
    /// Starts this number of coordinators by these words of the own command line, and waits until
    /// one leads and the others follow it.
    pub(super) async fn start(
        words: &'static [&'static str],
        count: u8,
        data_dir: &Path,
        shared: Option<&CoordinatorDatabase>,
    ) -> Result<Self> {
        let mut children = Self { nodes: Vec::new(), http: reqwest::Client::new() };
        for number in 0..count {
            let folder = data_dir.with_extension(number.to_string());
            children.nodes.push(ChildCoordinator::start(words, &folder, shared)?);
        }
        for node in 0..children.nodes.len() {
            children.wait_ready(node).await?;
        }
        Ok(children)
    }

    /// Returns the URLs of the native API.
    pub(super) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(ChildCoordinator::url).collect()
    }

    /// Returns the URLs of the admin API.
    pub(super) fn admins(&self) -> Vec<String> {
        self.nodes.iter().map(ChildCoordinator::admin).collect()
    }

    /// Kills the coordinator that leads without warning, and starts it again: one alone at once,
    /// one of several when another leads. Returns the time in which none led.
    pub(crate) async fn crash_and_restart(&mut self) -> Result<Duration> {
        let leader = self.leader().await?;
        self.nodes[leader].kill().await?;
        let killed = Instant::now();
        if self.nodes.len() == 1 {
            self.nodes[leader].spawn()?;
            self.leader().await?;
            return Ok(killed.elapsed());
        }
        self.leader().await?;
        let away = killed.elapsed();
        self.nodes[leader].spawn()?;
        self.wait_ready(leader).await?;
        Ok(away)
    }

    /// Kills all of them, for good.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.kill().await?;
        }
        Ok(())
    }

    /// Waits until one of them leads, and returns its number.
    async fn leader(&mut self) -> Result<usize> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            for node in 0..self.nodes.len() {
                if self.answers(node, "/readyz?leader").await? {
                    return Ok(node);
                }
            }
            sleep(ASK_EVERY).await;
        }
        bail!("no coordinator leads after {READY_WITHIN:?}")
    }

    /// Waits until a coordinator leads, or follows one that does.
    async fn wait_ready(&mut self, node: usize) -> Result<()> {
        let started = Instant::now();
        while !self.answers(node, "/readyz").await? {
            if started.elapsed() > READY_WITHIN {
                bail!("the coordinator is not ready after {READY_WITHIN:?}");
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Returns whether a coordinator says yes. One that was killed does not.
    async fn answers(&mut self, node: usize, path: &str) -> Result<bool> {
        let child = &mut self.nodes[node];
        child.check().with_context(|| format!("coordinator {}", node + 1))?;
        let asked = self.http.get(format!("{}{path}", child.admin())).send().await;
        Ok(asked.is_ok_and(|answer| answer.status().is_success()))
    }
}

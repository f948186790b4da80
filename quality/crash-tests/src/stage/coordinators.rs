//! The coordinators of a stage: one on its directory, or several on a store that they share, with
//! the faults that are done to those.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use handfast_server::admin::model::ServerStatus;
use tokio::time::{Instant, sleep};

use super::{CRASH_WITHIN, PROGRESS_WITHIN, RunningSystem, Settings};
use crate::cluster::fault::{ClusterFault, Deaths, FaultyNode};
use crate::coordinator::{Coordinator, CoordinatorPlace};
use crate::shared_store::{SharedKind, SharedStore};
use crate::wire::WireState;

/// No request waits until a node leads.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Starts the coordinators that the settings ask for.
pub(super) async fn start(
    settings: &Settings,
    folder: &Path,
) -> Result<(Vec<Coordinator>, Option<SharedStore>)> {
    let here: IpAddr = Ipv4Addr::LOCALHOST.into();
    let Some(cluster) = &settings.cluster else {
        let data_dir = settings.data_dir.clone().unwrap_or_else(|| folder.join("data"));
        let log = folder.join("coordinator.log");
        let listen = settings.host.as_ref().map_or(here, |host| host.here());
        let one = Coordinator::start(&settings.program, &data_dir, &log, listen).await?;
        return Ok((vec![one], None));
    };
    let all = cluster.coordinators + cluster.spares;
    let here = cluster.network.as_ref().map_or(here, |network| network.here());
    let store = SharedStore::start(cluster.store, all, here, folder).await?;
    let mut nodes = Vec::new();
    for number in 0..all {
        let data_dir = folder.join(format!("node-{number}"));
        let (log, mut settings_of_node) = (data_dir.with_extension("log"), store.settings(number));
        // The journal is compacted often. An earlier program may not know the key.
        if cluster.store != SharedKind::Etcd && cluster.earlier.is_none() {
            settings_of_node.push("sql.tail_bytes=65536".to_owned());
        }
        // The first one too: before an upgrade the earlier program has made the store.
        let is_earlier = number % 2 == 0;
        let program = cluster.earlier.as_ref().filter(|_| is_earlier).unwrap_or(&settings.program);
        let place = match &cluster.network {
            Some(network) => CoordinatorPlace::on(network.host(number)),
            None => CoordinatorPlace::here(here)?,
        };
        let mut node = Coordinator::new(program, &data_dir, &log, place, settings_of_node)?;
        if number < cluster.coordinators {
            node.restart(None).await?;
        }
        nodes.push(node);
    }
    Ok((nodes, Some(store)))
}

impl RunningSystem {
    /// Returns the counts of the coordinator that leads.
    ///
    /// # Errors
    /// When none answers.
    pub async fn status(&self) -> Result<ServerStatus> {
        self.coordinators[self.leader().await?].status().await
    }

    /// Waits until one of the coordinators leads, and returns its number.
    ///
    /// # Errors
    /// When none does in time.
    pub async fn leader(&self) -> Result<usize> {
        let started = Instant::now();
        while started.elapsed() < PROGRESS_WITHIN {
            for (number, coordinator) in self.coordinators.iter().enumerate() {
                if coordinator.admin().leads().await {
                    return Ok(number);
                }
            }
            sleep(ASK_EVERY).await;
        }
        bail!("no coordinator leads within {PROGRESS_WITHIN:?}")
    }

    /// Does a fault to coordinators that share a store, undoes it, and waits until an operation
    /// commits again. Returns the coordinators that died by it.
    ///
    /// # Errors
    /// Returns an error if the fault cannot be done, or no operation commits afterwards.
    pub async fn suffer_in_cluster(&mut self, fault: &ClusterFault) -> Result<Deaths> {
        let mut deaths = Deaths::default();
        let done = self.do_cluster_fault(fault, &mut deaths).await;
        if done.with_context(|| fault.to_string())? {
            *self.faults.entry(fault.to_string()).or_default() += 1;
        }
        self.until_progress().await.with_context(|| format!("after: {fault}"))?;
        Ok(deaths)
    }

    /// Returns `false` if a crash point was not reached in time.
    async fn do_cluster_fault(
        &mut self,
        fault: &ClusterFault,
        deaths: &mut Deaths,
    ) -> Result<bool> {
        match fault {
            ClusterFault::Kill(node, down) => {
                let node = self.number_of(*node).await?;
                *deaths += self.kill_coordinator(node).await?;
                // The sleeps here and below are the length of the fault itself.
                sleep(*down).await;
                self.coordinators[node].restart(None).await?;
            }
            ClusterFault::Stop(node) => {
                let node = self.number_of(*node).await?;
                self.coordinators[node].stop().await?;
                self.coordinators[node].restart(None).await?;
            }
            ClusterFault::Pause(node, lasting) => {
                let node = self.number_of(*node).await?;
                self.coordinators[node].running()?.pause()?;
                sleep(*lasting).await;
                self.coordinators[node].running()?.go_on()?;
            }
            ClusterFault::CutOff(node, state, lasting) => {
                let node = self.number_of(*node).await?;
                self.shared()?.set_wires(node, *state);
                sleep(*lasting).await;
                self.shared()?.set_wires(node, WireState::Sound);
            }
            ClusterFault::KillAll => {
                let present = self.present();
                for node in &present {
                    *deaths += self.kill_coordinator(*node).await?;
                }
                self.restart(&present).await?;
            }
            ClusterFault::CrashInTheLead { point, pass } => {
                return self.crash_in_the_lead(&format!("{point}:{pass}"), deaths).await;
            }
            ClusterFault::KillServer(server) => {
                let shared = self.shared.as_mut().context("there is no shared store")?;
                shared.restart(*server % shared.server_count()).await?;
            }
            ClusterFault::PauseStore(lasting) => {
                self.shared()?.pause();
                sleep(*lasting).await;
                self.shared()?.go_on();
            }
            ClusterFault::SlowStore(lasting) => {
                self.shared()?.set_all_wires(WireState::Slow);
                sleep(*lasting).await;
                self.shared()?.set_all_wires(WireState::Sound);
            }
            ClusterFault::Replace(node) => {
                let node = self.number_of(*node).await?;
                *deaths += self.kill_coordinator(node).await?;
                self.absent.push_back(node);
                let next = self.absent.pop_front().context("one was put there")?;
                self.coordinators[next].restart(None).await?;
            }
        }
        Ok(true)
    }

    async fn kill_coordinator(&mut self, node: usize) -> Result<Deaths> {
        let leads = self.coordinators[node].admin().leads().await;
        self.coordinators[node].kill().await?;
        Ok(Deaths { coordinators: 1, leaders: u64::from(leads) })
    }

    /// Lets a follower take the lead, and die at a point. The others are killed for it: each of
    /// them could take the lead as well.
    async fn crash_in_the_lead(
        &mut self,
        point_and_pass: &str,
        deaths: &mut Deaths,
    ) -> Result<bool> {
        let leader = self.leader().await?;
        let present = self.present();
        let followers = present.iter().copied().filter(|node| *node != leader);
        let next = followers.min().context("a node follows")?;
        self.coordinators[next].restart(Some(point_and_pass)).await?;
        for other in present.iter().copied().filter(|node| *node != next) {
            *deaths += self.kill_coordinator(other).await?;
        }
        let crashed = self.coordinators[next].running()?.crashed(CRASH_WITHIN).await?;
        if crashed {
            *deaths += Deaths { coordinators: 1, leaders: 1 };
        }
        self.restart(&present).await?;
        Ok(crashed)
    }

    async fn restart(&mut self, nodes: &[usize]) -> Result<()> {
        for node in nodes {
            self.coordinators[*node].restart(None).await?;
        }
        Ok(())
    }

    /// Returns the numbers of the coordinators that are not away.
    fn present(&self) -> Vec<usize> {
        (0..self.coordinators.len()).filter(|node| !self.absent.contains(node)).collect()
    }

    async fn number_of(&self, node: FaultyNode) -> Result<usize> {
        match node {
            FaultyNode::Leader => self.leader().await,
            FaultyNode::Numbered(number) => {
                self.present().get(number).copied().context("no coordinator has this number")
            }
        }
    }

    fn shared(&self) -> Result<&SharedStore> {
        self.shared.as_ref().context("there is no shared store")
    }
}

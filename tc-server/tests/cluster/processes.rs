//! Nodes as processes that are stopped where they are, asked to end, and killed all at once.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::process::Command;

use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{BeginReply, EndReply, GlobalStatus};
use handfast_server::admin::model::{
    NodeStanding, ServerStatus, Status as GlobalStanding, TransactionDetail,
};
use handfast_test_services::{CoordinatorProcess, Signal, until, until_some};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::cluster::{Cluster, Requests, begin, commit, registration};
use crate::on_each_store;
use crate::shared::Shared;

on_each_store!(
    a_leader_that_wakes_up_late_stores_nothing,
    a_planned_change_loses_no_begin,
    all_at_once,
);

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The number of commits that are answered before all nodes are killed.
const COMMITS: usize = 30;
const WORKERS: u64 = 3;

/// A node that runs as a program. Dropping it kills it.
struct ProcessNode {
    process: CoordinatorProcess,
    requests: Requests,
}

impl Deref for ProcessNode {
    type Target = Requests;

    fn deref(&self) -> &Requests {
        &self.requests
    }
}

impl ProcessNode {
    /// Starts a node of the cluster on free ports.
    fn start(cluster: &Cluster, name: &str) -> Self {
        Self::start_on(cluster, name, [ANY_PORT; 2])
    }

    fn start_on(cluster: &Cluster, name: &str, addresses: [SocketAddr; 2]) -> Self {
        let (config, folder) = cluster.config(name);
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, config.to_toml()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-server"));
        command.args(["serve", "--config"]).arg(file).env_clear();
        let process = CoordinatorProcess::start(command, addresses, None).unwrap();
        let requests = Requests::to(process.grpc(), process.admin());
        Self { process, requests }
    }

    async fn until_it_knows_a_leader(&self) {
        self.until_view(|view| view.leader.is_some()).await;
    }

    async fn global(&self, xid: &str) -> TransactionDetail {
        let (status, body) = self.get(&format!("/api/v1/transactions/{xid}")).await;
        assert!(status.is_success(), "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

/// Marks a request as one that another node has passed on, so that the node answers it itself.
fn passed_on<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("handfast-passed-on", "1".parse().unwrap());
    request
}

fn assert_sent_elsewhere(refused: &Status) {
    let code = refused.metadata().get("handfast-code").map(|code| code.to_str().unwrap());
    assert_eq!(code, Some("HF-TC-NOT-LEADING"), "{refused:?}");
}

/// A commit, and a begin, which is answered at once while the lead is certain, arrive while the
/// leader is stopped. After it wakes another node leads, in which the global has been rolled back:
/// an answer to the commit would be a second decision.
async fn a_leader_that_wakes_up_late_stores_nothing<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let sleeper = ProcessNode::start(&cluster, "one");
    sleeper.until(NodeStanding::Leading).await;
    let next = ProcessNode::start(&cluster, "two");
    next.until_it_knows_a_leader().await;
    let xid = sleeper.begin().await;
    let token = sleeper.register(&xid, 1).await.unwrap();
    let before = sleeper.view().await.epoch.unwrap();
    let mut client = sleeper.client().await;

    sleeper.process.signal(Signal::SIGSTOP).unwrap();
    let (mut for_commit, to_commit) = (client.clone(), passed_on(commit(&xid)));
    let late_commit = tokio::spawn(async move { for_commit.end(to_commit).await });
    let late_begin = tokio::spawn(async move { client.begin(passed_on(begin())).await });
    next.until(NodeStanding::Leading).await;
    let (status, body) = next.post(&format!("/api/v1/transactions/{xid}/rollback")).await;
    assert!(status.is_success(), "{body}");
    sleeper.process.signal(Signal::SIGCONT).unwrap();

    assert_sent_elsewhere(&late_commit.await.unwrap().unwrap_err());
    assert_sent_elsewhere(&late_begin.await.unwrap().unwrap_err());
    let view = next.view().await;
    sleeper.until_view(|it| it.standing == NodeStanding::Following && it.epoch == view.epoch).await;
    assert!(view.epoch.unwrap() > before);
    assert_eq!(sleeper.view().await.leader, Some(view.node));
    let global = next.global(&xid).await;
    assert_eq!(global.transaction.status, GlobalStanding::RollingBack);
    let other = next.begin().await;
    assert!(next.register(&other, 2).await.unwrap() > token);
    assert_eq!(next.commit(&other).await.unwrap(), GlobalStatus::Committing);
}

/// The process ends well by itself, and a begun global that no record told of goes on.
async fn a_planned_change_loses_no_begin<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let leader = ProcessNode::start(&cluster, "one");
    leader.until(NodeStanding::Leading).await;
    let next = ProcessNode::start(&cluster, "two");
    next.until_it_knows_a_leader().await;
    let begun = leader.begin().await;
    leader.process.signal(Signal::SIGTERM).unwrap();
    let (status, log) = leader.process.wait().unwrap();
    assert!(status.success(), "{status}: {log}");
    next.until(NodeStanding::Leading).await;
    next.register(&begun, 1).await.unwrap();
    assert_eq!(next.commit(&begun).await.unwrap(), GlobalStatus::Committing);
}

/// The last answer about each global, with its branch.
type Answered = BTreeMap<String, (u64, GlobalStatus)>;

/// Begins globals with a branch, and commits every second one, until no answer comes.
fn work(client: CoordinatorClient<Channel>, worker: u64) -> JoinHandle<Answered> {
    tokio::spawn(async move {
        let mut answered = Answered::new();
        for number in 0_u64.. {
            let branch = (worker << 32) | number;
            if transact(&mut client.clone(), branch, &mut answered).await.is_err() {
                break;
            }
        }
        answered
    })
}

async fn transact(
    client: &mut CoordinatorClient<Channel>,
    branch: u64,
    answered: &mut Answered,
) -> Result<(), Status> {
    let BeginReply { xid, .. } = client.begin(begin()).await?.into_inner();
    client.register_branch(registration(&xid, branch)).await?;
    answered.insert(xid.clone(), (branch, GlobalStatus::Active));
    if branch.is_multiple_of(2) {
        let ended: EndReply = client.end(commit(&xid)).await?.into_inner();
        answered.insert(xid, (branch, ended.status()));
    }
    Ok(())
}

/// Waits until one of the nodes leads, and returns its place and its epoch. What a node knows of
/// another may be of before.
async fn leader_and_epoch(nodes: &[ProcessNode]) -> (usize, u64) {
    until_some("a node leads", async || {
        for (place, node) in nodes.iter().enumerate() {
            let view = node.view().await;
            if view.standing == NodeStanding::Leading {
                return Some((place, view.epoch?));
            }
        }
        None
    })
    .await
}

async fn committed(leader: &ProcessNode) -> usize {
    let (_, body) = leader.get("/api/v1/status").await;
    serde_json::from_str::<ServerStatus>(&body).unwrap().committing
}

/// All nodes are killed under work, and started again on their ports: every answer still holds.
async fn all_at_once<S: Shared>() {
    let cluster = Cluster::new::<S>().await;
    let names = ["one", "two", "three"];
    let mut nodes = names.map(|name| ProcessNode::start(&cluster, name));
    let (leader, before) = leader_and_epoch(&nodes).await;
    let client = nodes[leader].client().await;
    let workers: Vec<_> = (1..=WORKERS).map(|worker| work(client.clone(), worker)).collect();
    until("globals commit", async || committed(&nodes[leader]).await >= COMMITS).await;
    for node in &mut nodes {
        node.process.kill().unwrap();
    }
    let addresses = nodes.each_ref().map(|node| [node.grpc, node.admin]);
    let mut answered = Answered::new();
    for worker in workers {
        answered.append(&mut worker.await.unwrap());
    }
    let started =
        [0, 1, 2].map(|at: usize| ProcessNode::start_on(&cluster, names[at], addresses[at]));
    let (_, epoch) = leader_and_epoch(&started).await;
    assert!(epoch > before);
    for node in &started {
        node.until_view(|view| view.epoch == Some(epoch)).await;
    }
    assert!(answered.len() >= COMMITS, "{answered:?}");
    for (xid, (branch, status)) in &answered {
        let global = started[1].global(xid).await;
        let found = global.transaction.status;
        let branches: Vec<&str> = global.branches.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(branches, [branch.to_string()], "{xid}");
        // A commit that was not answered may have been stored.
        let may_be_active = *status == GlobalStatus::Active;
        let as_answered = found == GlobalStanding::Committing
            || (may_be_active && found == GlobalStanding::Active);
        assert!(as_answered, "{xid}, which was answered as {status:?}, is {found:?}");
    }
}

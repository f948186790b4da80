//! Services and coordinators on different hosts, and a network between them that is cut.

use std::sync::Arc;
use std::time::Duration;

use handfast::GlobalStatus;
use handfast_crash_tests::cluster::ClusterRun;
use handfast_crash_tests::event::now;
use handfast_crash_tests::fault::{Fault, LONGER_THAN_EVERY_TIMEOUT};
use handfast_crash_tests::namespace::Host;
use handfast_crash_tests::network::{LinkCut, Network};
use handfast_crash_tests::service::TimeLimits;
use handfast_crash_tests::shared_store::SharedKind;
use handfast_crash_tests::stage::{ClusterSettings, RunningSystem, Settings};
use handfast_server::admin::model::NodeStanding;
use tokio::time::{sleep, timeout};

use crate::inside::{Asked, InsideClient};
use crate::stages::{FILES, SERVERS, assert_sound, not_run, settings};

/// The time in which a client that is cut off asks at least once, and is told that no coordinator
/// leads there any more.
const ASKED_INSIDE: Duration = Duration::from_secs(5);
/// The time within which a node that led stands aside. Its connections repeat what was lost at
/// growing distances. The client on its host is answered again within as much.
const ASIDE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_loses_all_packets_does_no_harm() {
    let host = match Host::make().unwrap() {
        Ok(host) => Some(Arc::new(host)),
        Err(why) => return not_run(&format!("no second host in a network namespace: {why}")),
    };
    let mut stage = RunningSystem::start(Settings { host, ..settings(FILES, 51) }).await.unwrap();
    for lasting in [Duration::from_millis(800), LONGER_THAN_EVERY_TIMEOUT] {
        stage.suffer(&Fault::CutHost(lasting)).await.unwrap();
    }
    stage.suffer(&Fault::KillCoordinator).await.unwrap();
    assert_sound(stage).await;
}

/// Three coordinators on hosts of their own. The one that leads is cut off from the others, from
/// the store and from the services, with a client on its side: in both directions and in each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_acknowledges_nothing() {
    let network = match Network::make(3).unwrap() {
        Ok(network) => Arc::new(network),
        Err(why) => return not_run(&format!("no hosts in network namespaces: {why}")),
    };
    let cluster = ClusterSettings {
        coordinators: 3,
        spares: 0,
        store: SharedKind::Postgres,
        network: Some(Arc::clone(&network)),
        earlier: None,
    };
    let (limits, cluster) = (TimeLimits::LONG, Some(cluster));
    let settings = Settings { limits, cluster, ..settings(SERVERS, 52) };
    let run = ClusterRun::start(settings).await.unwrap();
    for cut in [LinkCut::Both, LinkCut::Incoming, LinkCut::Outgoing] {
        cut_the_leader_off(&run.stage, &network, cut).await;
    }
    let report = Box::pin(run.finish()).await.unwrap();
    report.require_sound().unwrap();
    assert!(report.leads.gaps.len() >= 3, "each cut changed the leader: {report}");
}

async fn cut_the_leader_off(stage: &RunningSystem, network: &Network, cut: LinkCut) {
    let leader = stage.leader().await.unwrap();
    let host = network.host(leader);
    let inside = InsideClient::start(host.door().unwrap(), stage.endpoints());
    // Requests are under way everywhere when the link goes.
    stage.until_progress().await.unwrap();
    network.cut(leader, cut).unwrap();
    let cut_at = now();
    // The others take over while it is cut off.
    stage.until_progress().await.unwrap();
    sleep(ASKED_INSIDE).await;
    let healed_at = now();
    network.heal(leader, cut).unwrap();
    until_it_stands_aside(stage, leader).await;
    stage.until_progress().await.unwrap();
    timeout(ASIDE_WITHIN, inside.until_acknowledged_after(healed_at))
        .await
        .expect("a client whose host is reached again is answered")
        .unwrap();
    let asked = inside.finish().unwrap();
    assert_nothing_acknowledged(&asked, cut_at, healed_at, cut);
    if cut != LinkCut::Incoming {
        assert_nothing_known(stage, &asked, cut_at, healed_at).await;
    }
}

/// Waits until a node that led says that another one leads.
async fn until_it_stands_aside(stage: &RunningSystem, node: usize) {
    let aside = async {
        loop {
            let view = stage.coordinators[node].admin().cluster().await;
            if view.is_ok_and(|it| it.standing == NodeStanding::Following && it.leader.is_some()) {
                return;
            }
            // A poll: no request waits for a change of standing.
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(ASIDE_WITHIN, aside).await.expect("a node that was cut off follows the next leader");
}

/// The client was answered before the cut, asked while it lasted, and was acknowledged nothing that
/// it asked for then.
fn assert_nothing_acknowledged(asked: &[Asked], cut_at: u64, healed_at: u64, cut: LinkCut) {
    let granted = |it: &&Asked| it.is_acknowledged;
    assert!(asked.iter().filter(granted).any(|it| it.until < cut_at), "{cut:?}: none before");
    let within = |it: &&Asked| it.at > cut_at && it.until < healed_at;
    let inside: Vec<&Asked> = asked.iter().filter(within).collect();
    assert!(!inside.is_empty(), "{cut:?}: the client asked for something");
    let acknowledged: Vec<&str> =
        inside.into_iter().filter(|it| it.is_acknowledged).map(|it| it.what).collect();
    assert!(acknowledged.is_empty(), "{cut:?}: acknowledged: {acknowledged:?}");
}

/// Globals that were begun inside are known to no coordinator. Where the leader can still send, its
/// last batch may be stored, although it does not learn that.
async fn assert_nothing_known(stage: &RunningSystem, asked: &[Asked], cut_at: u64, until: u64) {
    let observer = stage.observer().await.unwrap();
    for it in asked.iter().filter(|it| it.at > cut_at && it.until < until) {
        let Some(xid) = &it.xid else { continue };
        let status = observer.outcome(xid).await.unwrap();
        assert_eq!(status, GlobalStatus::Unknown, "{cut_at}: {it:?}");
    }
    observer.close().await;
}

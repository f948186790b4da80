//! All processes are killed between prepare and commit: the clients, the coordinator and both
//! database servers. After a restart neither server has a prepared branch, and both have the same
//! outcome.

use handfast_test_services::{DatabaseServer, ServerKind, until};
use sqlx::{MySql, Postgres};

use crate::at::bank::Bank;
use crate::child::{Child, before_the_timeout};
use crate::commit_wire::Wired;
use crate::database::XaTestDatabase;
use crate::restarted::{mariadb_pool, start};
use crate::scene::{DEBIT, Scene};

/// One global over two database servers of the test's own.
struct World {
    scene: Scene<Postgres>,
    ledger: Bank<MySql>,
    servers: [DatabaseServer; 2],
}

impl World {
    async fn new() -> Self {
        let servers = [start(ServerKind::Postgres).await, start(ServerKind::MariaDb).await];
        let scene = Scene::on(<Postgres as Wired>::open(servers[0].url()).await).await;
        let ledger = Bank::on(&scene.handfast, mariadb_pool(&servers[1]).await).await;
        Self { scene, ledger, servers }
    }

    /// Starts a process with a branch in each of the databases, which die at a crash point.
    fn clients(&self, xid: &handfast::Xid, point: &str) -> [Child; 2] {
        let one = self.scene.client(Some(xid), DEBIT);
        let other = self.scene.client_of(&self.ledger, Some(xid), DEBIT);
        [one.crash_at(point), other.crash_at(point)]
    }

    async fn kill_and_restart(&mut self) {
        self.scene.coordinator.kill().await;
        for server in &mut self.servers {
            tokio::task::block_in_place(|| server.kill()).unwrap();
        }
        for server in &mut self.servers {
            tokio::task::block_in_place(|| server.restart()).unwrap();
        }
        self.scene.coordinator.restart().await;
    }

    /// Starts the service again, which finishes every branch. Waits until the coordinator knows the
    /// ends before the service stops.
    async fn until_nothing_is_prepared(&self, ended: impl Future<Output = ()>) {
        let scene = &self.scene;
        let rescuer = scene.rescuer().await;
        let ledger = scene.handfast.xa(self.ledger.pool.clone()).node(&scene.node).await.unwrap();
        until("nothing stays prepared", async || self.prepared().await.is_empty()).await;
        ended.await;
        drop(ledger);
        rescuer.leave().await;
    }

    async fn prepared(&self) -> Vec<String> {
        let mut names = self.scene.prepared().await;
        names.extend(MySql::listed(&self.ledger.pool, &self.scene.node).await);
        names
    }

    async fn assert_both_have(&self, cents: i64) {
        let [one, other] = [self.scene.bank.cents(1).await, self.ledger.cents(1).await];
        assert_eq!([one, other], [cents; 2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecided_branches_are_rolled_back_in_both() {
    let mut world = World::new().await;
    let xid = before_the_timeout(async |timeout| {
        let global = world.scene.handfast.transaction("test").timeout(timeout);
        let global = global.begin().await.unwrap();
        let xid = global.xid().clone();
        // The TM is gone too, so only the timeout decides.
        std::mem::forget(global);
        let mut in_time = true;
        for mut client in world.clients(&xid, "xa-after-prepare") {
            in_time &= client.crashed_or_report::<String>().await.is_none();
        }
        in_time.then_some(xid)
    });
    let xid = xid.await;
    // A global that timed out first may have only one branch left.
    until("both are prepared", async || world.prepared().await.len() >= 2).await;
    world.kill_and_restart().await;
    world.until_nothing_is_prepared(world.scene.until_rolled_back(&xid)).await;
    world.assert_both_have(1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decided_branches_are_committed_in_both() {
    let mut world = World::new().await;
    let global = world.scene.begin().await;
    let xid = global.xid().clone();
    let mut clients = world.clients(&xid, "xa-before-phase-two");
    for client in &mut clients {
        assert_eq!(client.next_report::<String>().await, "done");
    }
    global.commit().await.unwrap();
    for client in &mut clients {
        client.crashed().await;
    }
    // The servers may still be ending the sessions of the clients.
    until("both stay prepared", async || world.prepared().await.len() == 2).await;
    world.kill_and_restart().await;
    world.until_nothing_is_prepared(world.scene.until_committed(&xid)).await;
    world.assert_both_have(990).await;
}

//! Does the faults that are done to somebody, one after the other, until the faults are over.

use std::sync::Arc;

use super::cluster::{Cluster, DONE_TO_SOMEBODY};
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND};

/// What a wall clock is set to, in seconds from the true time.
const STEPS_S: [i64; 9] =
    [0, 30, -30, 3_600, -3_600, 24 * 3_600, -24 * 3_600, 300 * 24 * 3_600, -300 * 24 * 3_600];

/// Strikes every now and then.
pub(crate) async fn strike(cluster: Arc<Cluster>) {
    let world = &cluster.world;
    let pause = world.between(200 * MS, 3 * SECOND);
    loop {
        world.sleep(world.between(10 * MS, pause)).await;
        if !world.faulty() {
            return;
        }
        let Some(fault) = draw(&cluster) else { return };
        if cluster.inflict(fault) {
            world.inject(fault);
        }
    }
}

/// A kind that the plan has, by weight; none where it has none.
fn draw(cluster: &Cluster) -> Option<Fault> {
    let weight = |fault: &Fault| cluster.world.plan.permille(*fault);
    let total: u64 = DONE_TO_SOMEBODY.iter().map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut drawn = cluster.world.between(1, total);
    DONE_TO_SOMEBODY.into_iter().find(|fault| {
        let here = drawn <= weight(fault);
        drawn = drawn.saturating_sub(weight(fault));
        here
    })
}

impl Cluster {
    /// Does it; whether there was anybody to do it to.
    fn inflict(self: &Arc<Self>, fault: Fault) -> bool {
        let world = &self.world;
        world.log(Owner::World, || format!("fault: {fault}"));
        let now = world.now();
        let server = world.draw(|random| random.index(self.servers.len()));
        let server = &self.servers[server];
        let client = world.draw(|random| random.index(self.clients()));
        let database = world.draw(|random| random.index(self.databases.len()));
        let database = &self.databases[database];
        match fault {
            Fault::ConnectionCut => return self.network.cut(),
            Fault::ConnectionCutOneWay => return self.network.cut_one_way(),
            Fault::ServerCrash if server.process().is_none() => return false,
            Fault::ServerCrash => server.crash(world.between(10 * MS, 4 * SECOND)),
            Fault::ServerFrozen => {
                world.freeze(server.owner(), world.between(100 * MS, 12 * SECOND));
            }
            Fault::ClientCrash => self.crash_client(client, world.between(10 * MS, 5 * SECOND)),
            Fault::ClientFrozen => {
                world.freeze(Owner::Client(client), world.between(100 * MS, 12 * SECOND));
            }
            Fault::DatabaseCrash => database.crash(world.between(10 * MS, 3 * SECOND)),
            Fault::DatabaseSlow => database.slow_down(now + world.between(SECOND, 8 * SECOND)),
            Fault::DiskError => self.disk.fail_next(),
            Fault::DiskSlow => self.disk.slow_down(now + world.between(SECOND, 8 * SECOND)),
            Fault::DiskStuck => self.disk.get_stuck(now + world.between(SECOND, 8 * SECOND)),
            Fault::ClockStep => {
                let step = world.draw(|random| STEPS_S[random.index(STEPS_S.len())]);
                server.set_clock(step * 1_000);
            }
            Fault::LeadershipTaken => {
                let next = (self.disk.leader() + 1) % self.servers.len();
                self.disk.move_leadership(next);
            }
            Fault::MessageLost
            | Fault::MessageDoubled
            | Fault::MessageDelayed
            | Fault::MessageReordered
            | Fault::CallLost
            | Fault::DatabaseAnswerLost
            | Fault::WriteLost
            | Fault::WriteTorn
            | Fault::WriteUntold
            | Fault::ClientCrashAtPoint
            | Fault::BrokerDown
            | Fault::BrokerAnswerLost => return false,
        }
        true
    }
}

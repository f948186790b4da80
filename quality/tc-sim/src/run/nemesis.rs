//! Inflicts faults on processes, connections and the store, one after the other, until the faults
//! are over. All other kinds are drawn where they strike, for each message or write.

use std::sync::Arc;

use crate::plan::Fault;
use crate::process::client::ClientServices;
use crate::process::installation::Installation;
use crate::world::{MS, Owner, SECOND, World};

/// The faults that are inflicted.
const INFLICTED: [Fault; 15] = [
    Fault::ConnectionCut,
    Fault::ConnectionCutOneWay,
    Fault::ServerCrash,
    Fault::ServerFrozen,
    Fault::ClientCrash,
    Fault::ClientFrozen,
    Fault::DatabaseCrash,
    Fault::DatabaseSlow,
    Fault::DiskError,
    Fault::DiskSlow,
    Fault::DiskStuck,
    Fault::ClockStep,
    Fault::LeadershipTaken,
    Fault::ServerStopped,
    Fault::StoreCutOff,
];

/// The settings of a wall clock, in seconds from the true time.
const CLOCK_STEPS_S: [i64; 9] =
    [0, 30, -30, 3_600, -3_600, 24 * 3_600, -24 * 3_600, 300 * 24 * 3_600, -300 * 24 * 3_600];

/// Inflicts faults on an installation and its services.
#[derive(Debug)]
pub(super) struct Nemesis {
    pub(super) installation: Arc<Installation>,
    pub(super) services: Arc<ClientServices>,
}

impl Nemesis {
    /// Strikes at random intervals, often in one run and seldom in another.
    pub(super) async fn strike(self) {
        let world = &self.installation.world;
        let pause_max = world.between(200 * MS, 3 * SECOND);
        loop {
            world.sleep(world.between(10 * MS, pause_max)).await;
            if !world.faulty() {
                return;
            }
            let Some(fault) = draw(world) else { return };
            if self.inflict(fault) {
                world.count_fault(fault);
            }
        }
    }

    /// Inflicts a fault. Returns whether there was anything to inflict it on.
    fn inflict(&self, fault: Fault) -> bool {
        let Installation { world, network, store, servers, databases, .. } = &*self.installation;
        world.log(Owner::World, || format!("fault: {fault}"));
        let now = world.now();
        let server = &servers[self.draw_server()];
        let client = world.draw(|random| random.index(self.services.count()));
        let database = world.draw(|random| random.index(databases.len()));
        let database = &databases[database];
        match fault {
            Fault::ConnectionCut => return network.cut(),
            Fault::ConnectionCutOneWay => return network.cut_one_way(),
            Fault::ServerCrash if server.process().is_none() => return false,
            Fault::ServerCrash => server.crash(world.between(10 * MS, 4 * SECOND)),
            Fault::ServerFrozen => {
                world.freeze(server.owner(), world.between(100 * MS, 12 * SECOND));
            }
            Fault::ClientCrash => self.services.crash(client, world.between(10 * MS, 5 * SECOND)),
            Fault::ClientFrozen => {
                world.freeze(Owner::Client(client), world.between(100 * MS, 12 * SECOND));
            }
            Fault::DatabaseCrash => database.crash(world.between(10 * MS, 3 * SECOND)),
            Fault::DatabaseSlow => database.slow_down(now + world.between(SECOND, 8 * SECOND)),
            Fault::DiskError => store.fail_next_write(),
            Fault::DiskSlow => store.slow_down(now + world.between(SECOND, 8 * SECOND)),
            Fault::DiskStuck => store.stall(now + world.between(SECOND, 8 * SECOND)),
            Fault::ClockStep => {
                let step = world.draw(|random| CLOCK_STEPS_S[random.index(CLOCK_STEPS_S.len())]);
                server.set_clock(step * 1_000);
            }
            Fault::LeadershipTaken => store.take_lease_away(),
            Fault::ServerStopped => return server.stop(),
            Fault::StoreCutOff => {
                store.cut_off(server.index(), now + world.between(SECOND, 8 * SECOND));
            }
            Fault::MessageLost
            | Fault::MessageDoubled
            | Fault::MessageDelayed
            | Fault::MessageReordered
            | Fault::CallLost
            | Fault::DatabaseAnswerLost
            | Fault::WriteLost
            | Fault::WriteTorn
            | Fault::WriteUnacknowledged
            | Fault::ClientCrashAtPoint
            | Fault::BrokerDown
            | Fault::BrokerAnswerLost
            | Fault::StoreRequestLost
            | Fault::StoreAnswerLost
            | Fault::LeaderAsleep
            | Fault::CandidateAsleep => return false,
        }
        true
    }

    /// Draws a coordinator: the leader in half of the cases, and any in the others.
    fn draw_server(&self) -> usize {
        let Installation { world, store, servers, .. } = &*self.installation;
        let leader = store.leader().filter(|_| servers.len() > 1);
        let leader = leader.filter(|_| world.draw(|random| random.happens(500)));
        leader.unwrap_or_else(|| world.draw(|random| random.index(servers.len())))
    }
}

/// Draws a fault of the plan, by weight. Returns `None` if the plan has none.
fn draw(world: &World) -> Option<Fault> {
    let weight = |fault: &Fault| world.plan.permille(*fault);
    let total: u64 = INFLICTED.iter().map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut drawn = world.between(1, total);
    INFLICTED.into_iter().find(|fault| {
        let chosen = drawn <= weight(fault);
        drawn = drawn.saturating_sub(weight(fault));
        chosen
    })
}

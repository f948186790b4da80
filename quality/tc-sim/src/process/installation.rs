//! The parts that exist once in a run: the databases, the broker, the network, and the coordinators
//! with their store. It knows no client.

use std::fmt;
use std::sync::Arc;

use super::server::Server;
use crate::judge::Judge;
use crate::model::broker::Broker;
use crate::model::database::{Database, Flavour};
use crate::model::network::Network;
use crate::model::observation::Observer;
use crate::model::store::StoreHost;
use crate::plan::{Fault, Mode};
use crate::workload::Workload;
use crate::workload::outside::{GuardAtStart, draw_guard_at_start, table_of_orders};
use crate::workload::transfers::prepared_before_start;
use crate::world::World;

/// The offsets of clocks that were never set alike.
const CLOCK_OFFSETS_MS: [i64; 5] = [0, -3_600_000, 3_600_000, -90_000, 90_000];

/// The simulated installation, without its clients.
pub(crate) struct Installation {
    pub(crate) world: Arc<World>,
    pub(crate) judge: Arc<Judge>,
    pub(crate) workload: Arc<Workload>,
    pub(crate) databases: Vec<Arc<Database>>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) store: Arc<StoreHost>,
    pub(crate) network: Arc<Network>,
    pub(crate) servers: Vec<Arc<Server>>,
}

impl Installation {
    pub(crate) fn new(world: &Arc<World>, judge: &Arc<Judge>) -> Arc<Self> {
        let plan = &world.plan;
        let observer = || -> Arc<dyn Observer> { Arc::clone(judge) as _ };
        let store = StoreHost::new(world, observer());
        let network = Network::new(world, observer());
        let workload = Arc::new(Workload::new(plan));
        let flavours = [Flavour::MariaDb, Flavour::Postgres, Flavour::Sqlite];
        let database = |index| {
            let flavour = world.draw(|random| flavours[random.index(flavours.len())]);
            Database::new(
                world,
                observer(),
                index,
                flavour,
                workload.initial_rows(index),
                table_of_orders(),
            )
        };
        let databases: Vec<_> = (0..plan.databases).map(database).collect();
        if plan.modes.contains(&Mode::Xa) {
            for database in databases.iter().filter(|database| database.can_prepare()) {
                prepared_before_start().into_iter().for_each(|name| database.add_prepared(name));
            }
        }
        if plan.modes.contains(&Mode::Guards) {
            for database in databases.iter().filter(|database| database.can_guard()) {
                if let GuardAtStart::Since(ago) = world.draw(draw_guard_at_start) {
                    database.was_guarded_before_start(ago);
                }
            }
        }
        let servers = (0..plan.servers)
            .map(|index| Server::new(world, judge, index, &store, &network))
            .collect();
        Arc::new(Self {
            world: Arc::clone(world),
            judge: Arc::clone(judge),
            workload,
            databases,
            broker: Arc::new(Broker::new(world)),
            store,
            network,
            servers,
        })
    }

    /// Sets the clocks of several coordinators apart, if clocks are wrong at all in this run.
    pub(crate) fn set_clocks(&self) {
        let world = &self.world;
        if self.servers.len() == 1 || world.plan.permille(Fault::ClockStep) == 0 {
            return;
        }
        for server in &self.servers {
            let offset =
                world.draw(|random| CLOCK_OFFSETS_MS[random.index(CLOCK_OFFSETS_MS.len())]);
            server.set_clock(offset);
        }
    }
}

impl fmt::Debug for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installation").field("plan", &self.world.plan).finish_non_exhaustive()
    }
}

//! Everything that is simulated together, from its start to its end.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::judge::oracle::{Ending, Observation};
use crate::model::broker::Broker;
use crate::model::database::{Database, Flavour, Undo};
use crate::model::disk::Disk;
use crate::model::network::Network;
use crate::plan::{Fault, Mode};
use crate::process::client::{ClientProcess, Shop};
use crate::process::server::Server;
use crate::workload::transfers::{is_foreign, strangers};
use crate::world::{MS, Owner, SECOND, World};

/// How long everything may take to end when the faults are over.
const HEALING_MAX: u64 = 400 * SECOND;
/// How long late messages may still come in when everything has ended.
const SILENCE: u64 = 20 * SECOND;

/// The simulated installation.
pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) network: Arc<Network>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) databases: Vec<Arc<Database>>,
    pub(crate) shop: Arc<Shop>,
    pub(crate) broker: Arc<Broker>,
    clients: Mutex<Vec<Option<Arc<ClientProcess>>>>,
    lives: AtomicU64,
    /// Orders under way.
    busy: Arc<AtomicU64>,
    closed: AtomicBool,
}

/// An order is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Business {
    busy: Arc<AtomicU64>,
}

impl Drop for Business {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cluster {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let plan = &world.plan;
        let (disk, network) = (Arc::new(Disk::new()), Network::new(world));
        let servers = 0..plan.servers();
        let shop = Arc::new(Shop::new(plan));
        let flavours = [Flavour::MariaDb, Flavour::Postgres, Flavour::Sqlite];
        let database = |index| {
            let flavour = world.draw(|random| flavours[random.index(flavours.len())]);
            Database::new(world, index, flavour, shop.set_up(index))
        };
        let databases: Vec<_> = (0..plan.databases).map(database).collect();
        if plan.modes.contains(&Mode::Xa) {
            for database in databases.iter().filter(|database| database.can_prepare()) {
                strangers().into_iter().for_each(|name| database.leave_prepared(name));
            }
        }
        Arc::new(Self {
            world: Arc::clone(world),
            broker: Arc::new(Broker::new(world)),
            servers: servers.map(|at| Server::new(world, at, &disk, &network)).collect(),
            databases,
            disk,
            network,
            shop,
            clients: Mutex::new(vec![None; plan.clients]),
            lives: AtomicU64::new(0),
            busy: Arc::new(AtomicU64::new(0)),
            closed: AtomicBool::new(false),
        })
    }

    /// The whole run: start, faults, healing, and the last judgement.
    pub(crate) async fn live(self: Arc<Self>) {
        self.servers.iter().for_each(Server::start);
        (0..self.clients()).for_each(|index| self.start_client(index));
        self.world.spawn(Owner::World, crate::run::nemesis::strike(Arc::clone(&self)));
        self.world.sleep_until(self.world.plan.faults_ms * MS).await;
        self.heal();
        let mut unsettled = self.settle().await;
        self.closed.store(true, Ordering::Relaxed);
        self.world.sleep(SILENCE).await;
        unsettled.extend(self.inspect().await);
        self.judge(unsettled);
        self.close();
    }

    pub(crate) fn clients(&self) -> usize {
        self.world.plan.clients
    }

    /// A service's process, if it lives.
    pub(crate) fn client(&self, index: usize) -> Option<Arc<ClientProcess>> {
        self.lock()[index].clone()
    }

    /// Says that an order is under way.
    pub(crate) fn enter(&self) -> Business {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Business { busy: Arc::clone(&self.busy) }
    }

    /// Whether there is no business any more.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn start_client(self: &Arc<Self>, index: usize) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let client = ClientProcess::start(self, index, life);
        self.lock()[index] = Some(Arc::clone(&client));
        client.open_for_business();
    }

    /// Kills a service's process; another one starts after a while.
    pub(crate) fn crash_client(self: &Arc<Self>, index: usize, down_for: u64) {
        let Some(client) = self.lock()[index].take() else { return };
        self.world.log(client.owner(), || "crashes".to_owned());
        client.die();
        self.world.kill(client.owner());
        self.network.client_died(index);
        let cluster = Arc::clone(self);
        self.world.spawn(Owner::World, async move {
            cluster.world.sleep(down_for).await;
            cluster.start_client(index);
        });
    }

    fn heal(&self) {
        self.world.log(Owner::World, || "faults are over".to_owned());
        self.world.heal();
        self.disk.heal();
        self.databases.iter().for_each(|database| database.heal());
    }

    /// Waits until everything has ended; says what has not when the time is over.
    async fn settle(&self) -> Vec<String> {
        let until = self.world.now() + HEALING_MAX;
        loop {
            let unsettled = self.unsettled().await;
            if unsettled.is_empty() || self.world.now() >= until {
                return unsettled;
            }
            self.world.sleep(500 * MS).await;
        }
    }

    async fn unsettled(&self) -> Vec<String> {
        let mut unsettled = Vec::new();
        let busy = self.busy.load(Ordering::Relaxed);
        if busy > 0 || !self.shop.sold_out() {
            unsettled.push(format!("orders under way or to come, {busy} of them begun"));
        }
        let unfinished = self.world.oracle().ledger().unfinished().count();
        if unfinished > 0 {
            unsettled.push(format!("{unfinished} globals unfinished"));
        }
        let sagas = self.world.oracle().ledger().unfinished_sagas();
        if sagas > 0 {
            unsettled.push(format!("{sagas} sagas unfinished"));
        }
        let prepared = self.prepared();
        if prepared.iter().any(|(_, name)| !is_foreign(name)) {
            unsettled.push(format!("still prepared: {prepared:?}"));
        }
        let events = self.world.oracle().ledger().events_under_way();
        if events > 0 {
            unsettled.push(format!("{events} events on their way"));
        }
        unsettled.extend(self.inspect().await);
        unsettled
    }

    /// What is prepared, and in which database.
    fn prepared(&self) -> Vec<(usize, String)> {
        let of = |database: &Arc<Database>| {
            let index = database.index;
            database.prepared().into_iter().map(move |name| (index, name))
        };
        self.databases.iter().flat_map(of).collect()
    }

    /// Looks into the leader's memory: its own invariants, and whether anything is left in it.
    async fn inspect(&self) -> Vec<String> {
        let leader = &self.servers[self.disk.leader()];
        let Some(process) = leader.process() else { return vec!["nobody leads".to_owned()] };
        let look = |coordinator: &handfast_core::Coordinator| {
            (coordinator.check_invariants(), coordinator.counts())
        };
        match process.engine.view(look).await {
            Err(error) => vec![format!("the leader does not answer: {error}")],
            Ok((checked, counts)) => {
                if let Err(broken) = checked {
                    self.world.violate("core", broken);
                }
                let unfinished = counts.active + counts.committing + counts.rolling_back;
                let left = unfinished + counts.needs_operator + counts.locks + counts.waiters;
                if left > 0 { vec![format!("left in memory: {counts:?}")] } else { Vec::new() }
            }
        }
    }

    fn judge(&self, unsettled: Vec<String>) {
        let mut ending = Ending { unsettled, prepared: self.prepared(), ..Ending::default() };
        for (index, database) in self.databases.iter().enumerate() {
            let (rows, undo) = database.committed();
            ending.databases.push(rows.iter().map(|(row, cell)| (*row, cell.value)).collect());
            let mut at_start = self.shop.set_up(index);
            at_start.sort_unstable();
            ending.at_start.push(at_start);
            let is_guard = |undo: &Undo| *undo == Undo::Guard;
            ending.undo.extend(undo.iter().map(|(key, undo)| (index, *key, is_guard(undo))));
        }
        if self.world.plan.modes.contains(&Mode::Xa) {
            let able = self.databases.iter().filter(|database| database.can_prepare()).count();
            let foreign = strangers().iter().filter(|name| is_foreign(name)).count();
            ending.foreign = able * foreign;
        }
        ending.audit = self.shop.audit(&ending.databases);
        self.world.observe(&Observation::Ended { ending: &ending });
    }

    /// Lets go of everything, so that the pieces do not keep each other.
    fn close(&self) {
        for client in self.lock().iter_mut().filter_map(Option::take) {
            client.die();
        }
        self.network.close();
        self.servers.iter().for_each(|server| server.close());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<ClientProcess>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("plan", &self.world.plan).finish_non_exhaustive()
    }
}

/// The faults that are done to somebody, rather than drawn for each message.
pub(crate) const DONE_TO_SOMEBODY: [Fault; 13] = [
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
];

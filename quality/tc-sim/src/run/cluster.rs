//! One run from its start to its end: starts the installation and the services, lets faults strike,
//! heals, waits until everything has ended, and shows the judge the final state.

use std::fmt;
use std::sync::Arc;

use super::nemesis::Nemesis;
use crate::judge::Judge;
use crate::model::database::Database;
use crate::model::observation::{FinalState, Observation, Observer};
use crate::model::values::{RowId, Undo};
use crate::plan::Mode;
use crate::process::client::ClientServices;
use crate::process::installation::Installation;
use crate::process::server::Server;
use crate::workload::transfers::{is_foreign, prepared_before_start};
use crate::world::{MS, Owner, SECOND, World};

/// How long everything may take to end when the faults are over.
const SETTLE_MAX: u64 = 400 * SECOND;
/// How long late messages may still arrive when everything has ended.
const SILENCE: u64 = 20 * SECOND;

/// The simulated installation with its services.
pub(super) struct Cluster {
    world: Arc<World>,
    judge: Arc<Judge>,
    installation: Arc<Installation>,
    services: Arc<ClientServices>,
}

impl Cluster {
    pub(super) fn new(world: &Arc<World>, judge: &Arc<Judge>) -> Arc<Self> {
        let installation = Installation::new(world, judge);
        let services = ClientServices::new(&installation);
        let (world, judge) = (Arc::clone(world), Arc::clone(judge));
        Arc::new(Self { world, judge, installation, services })
    }

    /// Lives through the whole run.
    pub(super) async fn live(self: Arc<Self>) {
        self.installation.set_clocks();
        self.installation.servers.iter().for_each(Server::start);
        self.installation.start_outside();
        (0..self.services.count()).for_each(|index| self.services.start(index));
        let (installation, services) = (Arc::clone(&self.installation), Arc::clone(&self.services));
        let nemesis = Nemesis { installation, services };
        self.world.spawn(Owner::World, nemesis.strike());
        self.world.sleep_until(self.world.plan.faults_end_ms() * MS).await;
        self.heal();
        let mut unsettled = self.settle().await;
        // Only here: sweeps, relays and consumers have their part in settling.
        self.installation.workload.close();
        self.world.sleep(SILENCE).await;
        unsettled.extend(self.inspect_leader().await);
        let refused_outside = self.installation.write_kept_rows().await;
        self.show_final_state(unsettled, refused_outside);
        self.close();
    }

    fn heal(&self) {
        self.world.log(Owner::World, || "faults are over".to_owned());
        self.world.end_faults();
        self.installation.store.heal();
        self.installation.databases.iter().for_each(|database| database.heal());
    }

    /// Waits until everything has ended. Returns what has not when the time is over.
    async fn settle(&self) -> Vec<String> {
        let until = self.world.now() + SETTLE_MAX;
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
        let workload = &self.installation.workload;
        let in_progress = workload.in_progress();
        if in_progress > 0 || !workload.is_exhausted() {
            unsettled.push(format!("orders to come or in progress, {in_progress} of them begun"));
        }
        let unfinished = self.judge.oracle().ledger().unfinished().count();
        if unfinished > 0 {
            unsettled.push(format!("{unfinished} globals unfinished"));
        }
        let sagas = self.judge.oracle().ledger().unfinished_sagas();
        if sagas > 0 {
            unsettled.push(format!("{sagas} sagas unfinished"));
        }
        let prepared = self.prepared();
        if prepared.iter().any(|(_, name)| !is_foreign(name)) {
            unsettled.push(format!("still prepared: {prepared:?}"));
        }
        let events = self.judge.oracle().ledger().pending_events();
        if events > 0 {
            unsettled.push(format!("{events} events on their way"));
        }
        unsettled.extend(self.inspect_leader().await);
        unsettled
    }

    /// Returns every prepared transaction: its database, and its name.
    fn prepared(&self) -> Vec<(usize, String)> {
        let of = |database: &Arc<Database>| {
            let index = database.index;
            database.prepared().into_iter().map(move |name| (index, name))
        };
        self.installation.databases.iter().flat_map(of).collect()
    }

    /// Inspects the leader's memory: its own invariants, and whether anything is left in it.
    async fn inspect_leader(&self) -> Vec<String> {
        let Installation { store, servers, .. } = &*self.installation;
        let leader = store.leader().and_then(|leader| servers[leader].process());
        let Some(process) = leader else { return vec!["no server leads".to_owned()] };
        let inspect = |coordinator: &handfast_core::Coordinator| {
            (coordinator.check_invariants(), coordinator.counts())
        };
        match process.engine.view(inspect).await {
            Err(error) => vec![format!("the leader does not answer: {error}")],
            Ok((checked, counts)) => {
                if let Err(broken) = checked {
                    self.judge.report("core", broken);
                }
                let unfinished = counts.active + counts.committing + counts.rolling_back;
                let left = unfinished + counts.needs_operator + counts.locks + counts.waiters;
                if left > 0 { vec![format!("left in memory: {counts:?}")] } else { Vec::new() }
            }
        }
    }

    fn show_final_state(&self, unsettled: Vec<String>, refused_outside: Vec<String>) {
        let Installation { databases, workload, .. } = &*self.installation;
        let prepared = self.prepared();
        let mut end = FinalState { unsettled, prepared, refused_outside, ..FinalState::default() };
        for (index, database) in databases.iter().enumerate() {
            let (rows, undo) = database.committed();
            end.databases.push(rows.iter().map(|(row, cell)| (*row, cell.value)).collect());
            let mut at_start = workload.initial_rows(index);
            at_start.sort_unstable();
            end.at_start.push(at_start);
            let is_guard = |undo: &Undo| *undo == Undo::Guard;
            end.undo.extend(undo.iter().map(|(key, undo)| (index, *key, is_guard(undo))));
        }
        if self.world.plan.modes.contains(&Mode::Xa) {
            let able = databases.iter().filter(|database| database.can_prepare()).count();
            let foreign = prepared_before_start().iter().filter(|name| is_foreign(name)).count();
            end.foreign = able * foreign;
        }
        end.audit = workload.audit(&self.without_outside(&end.databases));
        self.judge.observe(&Observation::Ended { end: &end });
    }

    /// Returns the rows without what was added from outside.
    fn without_outside(&self, databases: &[Vec<(RowId, i64)>]) -> Vec<Vec<(RowId, i64)>> {
        let outside = self.judge.oracle().ledger().outside.clone();
        let added = |place| outside.get(&place).copied().unwrap_or_default();
        let of = |(database, rows): (usize, &Vec<(RowId, i64)>)| {
            rows.iter().map(|(row, value)| (*row, value - added((database, *row)))).collect()
        };
        databases.iter().enumerate().map(of).collect()
    }

    /// Ends all processes and connections: they hold references to each other.
    fn close(&self) {
        self.services.close();
        self.installation.network.close();
        self.installation.servers.iter().for_each(|server| server.close());
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("plan", &self.world.plan).finish_non_exhaustive()
    }
}

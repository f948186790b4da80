//! The application: places orders, some of which it abandons half way, and reads what is globally
//! committed.
//!
//! Part of an order is done by another service, which may be late or dead, or whose answer may be
//! lost.

use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::{Either, select};

use super::ClientProcess;
use super::at::BranchError;
use super::global::Global;
use crate::model::database::Database;
use crate::model::observation::ReportedOutcome;
use crate::plan::{Fault, Mode};
use crate::workload::edit::{Edit, EventDraft};
use crate::workload::orders::Order;
use crate::workload::points::TccTry;
use crate::workload::transfers::Transfer;
use crate::world::{MS, SECOND};

/// How long a service waits for another one.
const CALL_TIMEOUT: u64 = 6 * SECOND;

/// A part of an order that a service is called for.
#[derive(Clone, Debug)]
enum ServiceCall {
    Branch { database: usize, edits: Vec<Edit>, events: Vec<EventDraft> },
    Try(TccTry),
    Transfer(Transfer),
}

impl ClientProcess {
    /// Starts the application's tasks.
    pub(super) fn start_application(self: &Arc<Self>) {
        for _ in 0..self.world.plan.workers {
            self.world.spawn(self.owner(), Arc::clone(self).place_orders());
        }
        self.world.spawn(self.owner(), Arc::clone(self).read_repeatedly());
        let modes = &self.world.plan.modes;
        let databases = &self.installation.databases;
        if modes.contains(&Mode::Saga) {
            self.world.spawn(self.owner(), Arc::clone(self).run_sagas());
        }
        for database in databases.iter().filter(|_| modes.contains(&Mode::Xa)) {
            if database.can_prepare() {
                self.world.spawn(self.owner(), Arc::clone(self).sweep(Arc::clone(database)));
            }
        }
        if modes.contains(&Mode::Outbox) {
            let emits = |database: &Database| {
                database.index == 0 || database.can_prepare() && modes.contains(&Mode::Xa)
            };
            for database in databases.iter().filter(|database| emits(database)) {
                self.world.spawn(self.owner(), Arc::clone(self).relay(Arc::clone(database)));
            }
            self.world.spawn(self.owner(), Arc::clone(self).consume());
        }
        if modes.contains(&Mode::Guards) {
            self.world.spawn(self.owner(), Arc::clone(self).write_without_xid());
        }
    }

    /// Places orders while there are any.
    async fn place_orders(self: Arc<Self>) {
        self.world.sleep(self.world.between(MS, 500 * MS)).await;
        let workload = Arc::clone(&self.installation.workload);
        while workload.take_order() {
            let order = self.draw_order();
            let in_progress = workload.begin_work();
            self.place_order(&order).await;
            drop(in_progress);
            self.world.sleep(self.world.between(MS, workload.pause_max)).await;
        }
    }

    fn draw_order(&self) -> Order {
        let (world, workload) = (&self.world, &self.installation.workload);
        let services = self.services.count();
        let mut order = world.draw(|random| workload.draw_order(random, services));
        if order.stock.is_empty() {
            return order;
        }
        if world.plan.modes.contains(&Mode::Tcc) {
            order.tries = world.draw(|random| workload.draw_tries(random, services));
        }
        if world.plan.modes.contains(&Mode::Xa) {
            let databases = self.installation.databases.iter();
            let able = databases.filter(|database| database.can_prepare());
            let able: Vec<usize> = able.map(|database| database.index).collect();
            world.draw(|random| workload.draw_transfers(random, services, &able, &mut order));
        }
        order
    }

    async fn place_order(self: &Arc<Self>, order: &Order) {
        let global = match self.begin(order.timeout_ms).await {
            Ok(global) => global,
            Err(error) => return self.world.log(self.owner(), || format!("no begin: {error}")),
        };
        let outcome = match self.run_branches(&global, order).await {
            Ok(true) => self.receive_outcome(&global, ReportedOutcome::Committed),
            Ok(false) if !order.is_abandoned => self.commit(&global).await,
            Ok(false) => self.roll_back_global(&global, "given up").await,
            Err(_) => self.roll_back_global(&global, "a branch failed").await,
        };
        // A dirty write needs an operator, and no program of the model writes without a lock.
        if outcome == ReportedOutcome::NeedsOperator {
            let xid = &global.xid;
            self.judge.report("every_global_ends", format!("{xid} needs an operator"));
        }
    }

    /// Runs the branches of an order: stock first or money first, so that orders meet in both
    /// ways. Returns whether the last of them has decided the global.
    async fn run_branches(
        self: &Arc<Self>,
        global: &Global,
        order: &Order,
    ) -> Result<bool, BranchError> {
        if order.stock.is_empty() {
            return self.pay(&global.xid, order, !order.is_abandoned).await;
        }
        if order.transfers_first {
            self.transfer(global, order).await?;
        }
        let (edits, events) = (order.stock.clone(), order.sold_events.clone());
        let stock = ServiceCall::Branch { database: 0, edits, events };
        if self.world.draw(|random| random.happens(500)) {
            self.call(order.warehouse, global, stock).await?;
            let is_rest_empty =
                order.tries.is_empty() && (order.transfers_first || order.transfers.is_empty());
            let is_last = is_rest_empty && !order.is_abandoned;
            if self.pay(&global.xid, order, is_last).await? {
                return Ok(true);
            }
        } else {
            self.pay(&global.xid, order, false).await?;
            self.call(order.warehouse, global, stock).await?;
        }
        for (service, wanted) in &order.tries {
            self.call(*service, global, ServiceCall::Try(*wanted)).await?;
        }
        if !order.transfers_first {
            self.transfer(global, order).await?;
        }
        Ok(false)
    }

    async fn transfer(self: &Arc<Self>, global: &Global, order: &Order) -> Result<(), BranchError> {
        for (service, transfer) in &order.transfers {
            self.call(*service, global, ServiceCall::Transfer(transfer.clone())).await?;
        }
        Ok(())
    }

    /// Returns whether the last payment has decided the global.
    async fn pay(
        self: &Arc<Self>,
        xid: &str,
        order: &Order,
        is_last: bool,
    ) -> Result<bool, BranchError> {
        let mut has_decided = false;
        for (number, payment) in order.payments.iter().enumerate() {
            let is_last = is_last && number + 1 == order.payments.len();
            has_decided = self.run_branch(order.bank, xid, (payment, &[]), is_last).await?;
        }
        Ok(has_decided)
    }

    /// Calls a service over the network, or serves the call itself if it is that service.
    async fn call(
        self: &Arc<Self>,
        service: usize,
        global: &Global,
        call: ServiceCall,
    ) -> Result<(), BranchError> {
        let xid = &global.xid;
        if service == self.index {
            return self.serve(xid, &call).await;
        }
        // The propagation of the XID waits for it.
        self.begun(global).await.map_err(BranchError::Coordinator)?;
        let world = &self.world;
        let (answer, answered) = oneshot::channel();
        let (request, response) = (world.between(100, 3 * MS), world.between(100, 3 * MS));
        let (request_lost, response_lost) =
            (world.strikes(Fault::CallLost), world.strikes(Fault::CallLost));
        if let Some(callee) = self.services.process(service).filter(|_| !request_lost) {
            let xid = xid.clone();
            world.spawn(callee.owner(), async move {
                callee.world.sleep(request).await;
                let done = callee.serve(&xid, &call).await;
                callee.world.sleep(response).await;
                if !response_lost {
                    // The caller may have stopped waiting.
                    let _gone = answer.send(done);
                }
            });
        }
        match select(answered, world.sleep(CALL_TIMEOUT)).await {
            Either::Left((Ok(done), _)) => done,
            Either::Left((Err(_), _)) | Either::Right(_) => Err(BranchError::CommitUnknown),
        }
    }

    async fn serve(self: &Arc<Self>, xid: &str, call: &ServiceCall) -> Result<(), BranchError> {
        match call {
            ServiceCall::Branch { database, edits, events } => {
                self.run_branch(*database, xid, (edits, events), false).await.map(drop)
            }
            ServiceCall::Transfer(transfer) => self.run_transfer(xid, transfer).await,
            ServiceCall::Try(wanted) => self.run_try(xid, *wanted).await,
        }
    }

    /// Writes rows at intervals as a task does that has lost its XID, until the workload is closed.
    async fn write_without_xid(self: Arc<Self>) {
        while !self.installation.workload.is_closed() {
            self.world.sleep(self.world.between(10 * MS, 6 * SECOND)).await;
            let resource = self.world.draw(|random| random.index(self.resources.len()));
            let resource = &self.resources[resource];
            if resource.database.can_guard() {
                let connections = &resource.connections;
                self.installation.write_from_outside(&resource.database, connections).await;
            }
        }
    }

    /// Reads globally committed rows at intervals, until the workload is closed.
    async fn read_repeatedly(self: Arc<Self>) {
        let workload = Arc::clone(&self.installation.workload);
        while !workload.is_closed() {
            self.world.sleep(self.world.between(10 * MS, 2 * SECOND)).await;
            let (database, rows) = self.world.draw(|random| workload.draw_read(random));
            if let Err(error) = self.read_committed(database, &rows).await {
                self.world.log(self.owner(), || format!("no committed read: {error:?}"));
            }
        }
    }
}

//! The application: orders that take stock in one database and money in the others, some of them
//! given up half way, and readers that want nothing but what is committed globally.
//!
//! Part of an order is done by another service, which may be late, dead, or answer into the void.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::channel::oneshot;
use futures::future::{Either, select};

use super::{BranchError, ClientProcess, Edit, Tell, Try};
use crate::judge::oracle::Told;
use crate::model::database::{Database, RowId};
use crate::plan::{Fault, Mode, Plan};
use crate::random::Random;
use crate::workload::events as effect;
use crate::workload::points::{self, Points};
use crate::workload::transfers::{self as purse, Transfer};
use crate::world::{MS, SECOND};

/// How long a service waits for another one.
const CALL_TIMEOUT: u64 = 6 * SECOND;
/// What one unit costs.
const PRICE: i64 = 10;
/// How much of everything there is at the start.
const PLENTY: i64 = 1_000_000;

/// What is in the databases, and how much there is left to do.
///
/// Database 0 has `rows` products, each a row of its stock and one of what was sold. Every other
/// database has `rows` customers and the shop's till in row 0.
#[derive(Debug)]
pub(crate) struct Shop {
    rows: u32,
    databases: usize,
    /// Whether what is sold is told by events.
    tells: bool,
    orders_left: AtomicU64,
    sagas_left: AtomicU64,
}

/// One order, all of it drawn before it begins.
#[derive(Debug)]
struct Order {
    stock: Vec<Edit>,
    /// Where the money moves, and how.
    bank: usize,
    /// Each payment is a branch; the second one writes over the first one's rows.
    payments: Vec<Vec<Edit>>,
    /// Which service does the stock's part.
    warehouse: usize,
    given_up: bool,
    timeout_ms: u64,
    /// Points that are spent with it, by which service.
    points: Vec<(usize, Try)>,
    /// Branches between purses, by which service, and whether they come first.
    transfers: Vec<(usize, Transfer)>,
    transfers_first: bool,
}

/// A part of an order that a service does.
#[derive(Clone, Debug)]
enum Part {
    Branch { database: usize, edits: Vec<Edit>, tells: Vec<Tell> },
    Try(Try),
    Transfer(Transfer),
}

impl Shop {
    pub(crate) fn new(plan: &Plan) -> Self {
        let sagas = plan.modes.contains(&Mode::Saga).then(|| 1 + plan.transactions / 4);
        Self {
            rows: plan.rows,
            databases: plan.databases,
            tells: plan.modes.contains(&Mode::Outbox),
            orders_left: AtomicU64::new(plan.transactions),
            sagas_left: AtomicU64::new(sagas.unwrap_or(0)),
        }
    }

    /// The rows of a database and what they hold at the start.
    pub(crate) fn set_up(&self, database: usize) -> Vec<(RowId, i64)> {
        let effects = effect::set_up(database, self.databases, self.rows);
        let points = points::set_up(self.rows).chain(purse::set_up(self.rows)).chain(effects);
        if database == 0 {
            let stock = |product| [(stock_of(product), PLENTY), (sold_of(product), 0)];
            (0..self.rows).flat_map(stock).chain(points).collect()
        } else {
            let customers = (1..=self.rows).map(|customer| (RowId(customer), PLENTY));
            customers.chain([(RowId(0), 0)]).chain(points).collect()
        }
    }

    /// Whether there are no more orders, and no more sagas.
    pub(crate) fn sold_out(&self) -> bool {
        let left = self.orders_left.load(Ordering::Relaxed);
        left + self.sagas_left.load(Ordering::Relaxed) == 0
    }

    /// The number of another saga, if there is one; it is the caller's then.
    pub(crate) fn next_saga(&self) -> Option<u64> {
        take_one(&self.sagas_left)
    }

    /// Whether there is another order; it is the caller's then.
    fn next(&self) -> bool {
        take_one(&self.orders_left).is_some()
    }

    fn draw(&self, random: &mut Random, clients: usize) -> Order {
        let bank = 1 + random.index(self.databases - 1);
        let first = u32::try_from(random.index(self.rows as usize)).unwrap_or(0);
        let mut stock = Vec::new();
        let mut units = 0;
        // Sometimes two products, in either order.
        let products = if self.rows > 1 && random.happens(300) { 2 } else { 1 };
        for product in 0..products {
            let sold = i64::try_from(random.between(1, 5)).unwrap_or(1);
            let product = (first + product) % self.rows;
            stock.push(Edit { row: stock_of(product), delta: -sold });
            stock.push(Edit { row: sold_of(product), delta: sold });
            units += sold;
        }
        let customer = RowId(u32::try_from(random.between(1, u64::from(self.rows))).unwrap_or(1));
        let pay = |amount: i64| {
            vec![Edit { row: customer, delta: -amount }, Edit { row: RowId(0), delta: amount }]
        };
        let payments = match random.happens(400) {
            true => vec![pay(units * (PRICE - 1)), pay(units)],
            false => vec![pay(units * PRICE)],
        };
        let warehouse = random.index(clients);
        let given_up = random.happens(200);
        Order {
            stock,
            bank,
            payments,
            warehouse,
            given_up,
            timeout_ms: random.between(500, 12_000),
            points: Vec::new(),
            transfers: Vec::new(),
            transfers_first: false,
        }
    }

    /// One or two tries of an order, or none.
    fn draw_points(&self, random: &mut Random, clients: usize) -> Vec<(usize, Try)> {
        let tries = random.index(3);
        let draw = |_| {
            let account = u32::try_from(random.index(self.rows as usize)).unwrap_or(0);
            let units = i64::try_from(random.between(1, 5)).unwrap_or(1);
            let (points, refuses) = (Points { account, units }, random.happens(50));
            let wanted = Try { database: random.index(self.databases), points, refuses };
            (random.index(clients), wanted)
        };
        (0..tries).map(draw).collect()
    }

    /// What is wrong with the books, if anything: units and money are conserved, and what was paid
    /// is what was sold.
    pub(crate) fn audit(&self, values: &[Vec<(RowId, i64)>]) -> Vec<String> {
        let mut wrong = Vec::new();
        let value = |database: usize, row: RowId| {
            let found = values[database].iter().find(|(of, _)| *of == row);
            found.map_or(0, |(_, value)| *value)
        };
        let mut sold = 0;
        for product in 0..self.rows {
            sold += value(0, sold_of(product));
            let units = value(0, stock_of(product)) + value(0, sold_of(product));
            if units != PLENTY {
                wrong.push(format!("product {product}: {units} units of {PLENTY}"));
            }
        }
        let mut paid = 0;
        for bank in 1..self.databases {
            paid += value(bank, RowId(0));
            let money: i64 = (0..=self.rows).map(|row| value(bank, RowId(row))).sum();
            let expected = PLENTY * i64::from(self.rows);
            if money != expected {
                wrong.push(format!("bank {bank}: {money} of {expected}"));
            }
        }
        if paid != sold * PRICE {
            wrong.push(format!("{sold} units sold at {PRICE}, but {paid} paid"));
        }
        wrong.extend(values.iter().flat_map(|values| points::audit(self.rows, values)));
        wrong.extend(purse::audit(self.rows, values));
        for product in (0..self.rows).filter(|_| self.tells) {
            let told = value(effect::database_of(0, self.databases), effect::row_of(0, product));
            let sold = value(0, sold_of(product));
            if told != sold {
                wrong.push(format!("product {product}: {sold} sold, events told of {told}"));
            }
        }
        wrong
    }
}

fn take_one(left: &AtomicU64) -> Option<u64> {
    let next = |left: u64| left.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}

fn stock_of(product: u32) -> RowId {
    RowId(2 * product)
}

fn sold_of(product: u32) -> RowId {
    RowId(2 * product + 1)
}

impl ClientProcess {
    /// Starts the application's tasks.
    pub(crate) fn open_for_business(self: &Arc<Self>) {
        for _ in 0..self.world.plan.workers {
            self.world.spawn(self.owner(), Arc::clone(self).sell());
        }
        self.world.spawn(self.owner(), Arc::clone(self).look());
        let modes = &self.world.plan.modes;
        if modes.contains(&Mode::Saga) {
            self.world.spawn(self.owner(), Arc::clone(self).run_sagas());
        }
        for database in self.cluster.databases.iter().filter(|_| modes.contains(&Mode::Xa)) {
            if database.can_prepare() {
                self.world.spawn(self.owner(), Arc::clone(self).sweep(Arc::clone(database)));
            }
        }
        if modes.contains(&Mode::Outbox) {
            let emits = |database: &Database| {
                database.index == 0 || database.can_prepare() && modes.contains(&Mode::Xa)
            };
            for database in self.cluster.databases.iter().filter(|database| emits(database)) {
                self.world.spawn(self.owner(), Arc::clone(self).relay(Arc::clone(database)));
            }
            self.world.spawn(self.owner(), Arc::clone(self).consume());
        }
    }

    /// Takes orders while there are any.
    async fn sell(self: Arc<Self>) {
        self.world.sleep(self.world.between(MS, 500 * MS)).await;
        let shop = Arc::clone(&self.cluster.shop);
        while shop.next() {
            let clients = self.cluster.clients();
            let mut order = self.world.draw(|random| shop.draw(random, clients));
            if self.world.plan.modes.contains(&Mode::Tcc) {
                order.points = self.world.draw(|random| shop.draw_points(random, clients));
            }
            if self.world.plan.modes.contains(&Mode::Xa) {
                self.draw_transfers(&mut order);
            }
            let business = self.cluster.enter();
            self.place(&order).await;
            drop(business);
            self.world.sleep(self.world.between(MS, 1_500 * MS)).await;
        }
    }

    async fn place(self: &Arc<Self>, order: &Order) {
        let global = match self.begin(order.timeout_ms).await {
            Ok(global) => global,
            Err(error) => return self.world.log(self.owner(), || format!("no begin: {error}")),
        };
        let ended = match self.do_branches(&global.xid, order).await {
            Ok(()) if !order.given_up => self.commit(&global).await,
            Ok(()) => self.roll_back_global(&global, "given up").await,
            Err(_) => self.roll_back_global(&global, "a branch failed").await,
        };
        // Money back is a person's business; the model leaves no reason for it.
        if ended == Told::NeedsOperator {
            let xid = &global.xid;
            self.world.violate("every_global_ends", format!("{xid} needs an operator"));
        }
    }

    fn draw_transfers(&self, order: &mut Order) {
        let databases = self.cluster.databases.iter().filter(|database| database.can_prepare());
        let databases: Vec<usize> = databases.map(|database| database.index).collect();
        let (rows, clients) = (self.world.plan.rows, self.cluster.clients());
        self.world.draw(|random| {
            let transfers = purse::draw(random, &databases, rows);
            let by = |transfer| (random.index(clients), transfer);
            order.transfers = transfers.into_iter().map(by).collect();
            order.transfers_first = random.happens(600);
        });
    }

    /// Stock first or money first, so that orders meet in both ways.
    async fn do_branches(self: &Arc<Self>, xid: &str, order: &Order) -> Result<(), BranchError> {
        if order.transfers_first {
            self.transfer(xid, order).await?;
        }
        let sold = order.stock.iter().filter(|edit| edit.delta > 0 && self.cluster.shop.tells);
        let tell = |edit: &Edit| Tell { key: edit.row.0 / 2, units: edit.delta };
        let (edits, tells) = (order.stock.clone(), sold.map(tell).collect());
        let stock = Part::Branch { database: 0, edits, tells };
        if self.world.draw(|random| random.happens(500)) {
            self.call(order.warehouse, xid, stock).await?;
            self.pay(xid, order).await?;
        } else {
            self.pay(xid, order).await?;
            self.call(order.warehouse, xid, stock).await?;
        }
        for (service, wanted) in &order.points {
            self.call(*service, xid, Part::Try(*wanted)).await?;
        }
        if order.transfers_first { Ok(()) } else { self.transfer(xid, order).await }
    }

    async fn transfer(self: &Arc<Self>, xid: &str, order: &Order) -> Result<(), BranchError> {
        for (service, transfer) in &order.transfers {
            self.call(*service, xid, Part::Transfer(transfer.clone())).await?;
        }
        Ok(())
    }

    async fn do_part(self: &Arc<Self>, xid: &str, part: &Part) -> Result<(), BranchError> {
        match part {
            Part::Branch { database, edits, tells } => {
                self.run_branch(*database, xid, edits, tells).await
            }
            Part::Transfer(transfer) => self.run_prepared(xid, transfer).await,
            Part::Try(wanted) => self.run_try(xid, *wanted).await,
        }
    }

    async fn pay(self: &Arc<Self>, xid: &str, order: &Order) -> Result<(), BranchError> {
        for payment in &order.payments {
            self.run_branch(order.bank, xid, payment, &[]).await?;
        }
        Ok(())
    }

    /// Has another service do a branch, or does it itself where it is that service.
    async fn call(
        self: &Arc<Self>,
        service: usize,
        xid: &str,
        part: Part,
    ) -> Result<(), BranchError> {
        if service == self.index {
            return self.do_part(xid, &part).await;
        }
        let world = &self.world;
        let (answer, answered) = oneshot::channel();
        let (request, response) = (world.between(100, 3 * MS), world.between(100, 3 * MS));
        let (request_lost, response_lost) =
            (world.strikes(Fault::CallLost), world.strikes(Fault::CallLost));
        if let Some(callee) = self.cluster.client(service).filter(|_| !request_lost) {
            let xid = xid.to_owned();
            world.spawn(callee.owner(), async move {
                callee.world.sleep(request).await;
                let done = callee.do_part(&xid, &part).await;
                callee.world.sleep(response).await;
                if !response_lost {
                    // The caller may have given up.
                    let _gone = answer.send(done);
                }
            });
        }
        match select(answered, world.sleep(CALL_TIMEOUT)).await {
            Either::Left((Ok(done), _)) => done,
            Either::Left((Err(_), _)) | Either::Right(_) => Err(BranchError::CommitUnknown),
        }
    }

    /// Reads what is committed globally, now and then, while there is business.
    async fn look(self: Arc<Self>) {
        let shop = Arc::clone(&self.cluster.shop);
        while !self.cluster.closed() {
            self.world.sleep(self.world.between(10 * MS, 2 * SECOND)).await;
            let (database, row) = self
                .world
                .draw(|random| (random.index(shop.databases), random.index(shop.rows as usize)));
            let row = u32::try_from(row).unwrap_or(0);
            let rows = if database == 0 {
                [stock_of(row), sold_of(row)]
            } else {
                [RowId(row), RowId(row + 1)]
            };
            if let Err(error) = self.read_committed(database, &rows).await {
                self.world.log(self.owner(), || format!("no committed read: {error:?}"));
            }
        }
    }
}

//! The work of the simulated services, drawn from the seed, and the audit of its result.
//!
//! Orders take stock in one database and money in another. With the modes of the plan they also
//! change points (TCC) and move money between purses (XA), sagas spend points, and events carry
//! what was sold to other databases. The workload knows rows and chance; it runs nothing.

pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod orders;
pub(crate) mod outside;
pub(crate) mod points;
pub(crate) mod saga;
pub(crate) mod transfers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::model::values::RowId;
use crate::plan::{Mode, Plan};
use crate::world::MS;
use orders::{PRICE, TILL, customer_row, sold_row, stock_row};

/// The initial value of every row of stock, and of every customer's account.
const INITIAL_BALANCE: i64 = 1_000_000;

/// The rows that the services change, and how much work is left.
///
/// Database 0 has `rows` products, each with a row of its stock and one of what was sold. Every
/// other database has `rows` customers, and the shop's till in row 0.
#[derive(Debug)]
pub(crate) struct Workload {
    rows: u32,
    databases: usize,
    /// Whether branches emit events.
    emits_events: bool,
    /// The longest pause of a service between two orders, in microseconds.
    pub(crate) pause_max: u64,
    orders_left: AtomicU64,
    sagas_left: AtomicU64,
    in_progress: Arc<AtomicU64>,
    closed: AtomicBool,
}

/// An order or a saga in progress, until this is dropped.
#[derive(Debug)]
pub(crate) struct WorkInProgress {
    count: Arc<AtomicU64>,
}

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workload {
    pub(crate) fn new(plan: &Plan) -> Self {
        let sagas = plan.modes.contains(&Mode::Saga).then(|| 1 + plan.transactions / 4);
        Self {
            rows: plan.rows,
            databases: plan.databases,
            emits_events: plan.modes.contains(&Mode::Outbox),
            pause_max: orders_pause_max(plan),
            orders_left: AtomicU64::new(plan.transactions * if plan.is_long() { 2 } else { 1 }),
            sagas_left: AtomicU64::new(sagas.unwrap_or(0)),
            in_progress: Arc::new(AtomicU64::new(0)),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the rows of a database and their initial values.
    pub(crate) fn initial_rows(&self, database: usize) -> Vec<(RowId, i64)> {
        let others = points::initial_rows(self.rows)
            .chain(transfers::initial_rows(self.rows))
            .chain(events::initial_rows(database, self.databases, self.rows));
        if database == 0 {
            let product = |product| [(stock_row(product), INITIAL_BALANCE), (sold_row(product), 0)];
            (0..self.rows).flat_map(product).chain(others).collect()
        } else {
            let customer = |customer| (customer_row(customer), INITIAL_BALANCE);
            (1..=self.rows).map(customer).chain([(TILL, 0)]).chain(others).collect()
        }
    }

    /// Takes one of the orders that are left. Returns whether there was one.
    pub(crate) fn take_order(&self) -> bool {
        take_one(&self.orders_left).is_some()
    }

    /// Takes one of the sagas that are left, and returns its number.
    pub(crate) fn take_saga(&self) -> Option<u64> {
        take_one(&self.sagas_left)
    }

    /// Returns whether every order and saga has been taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        let left = self.orders_left.load(Ordering::Relaxed);
        left + self.sagas_left.load(Ordering::Relaxed) == 0
    }

    /// Counts an order or a saga as in progress, until the guard is dropped.
    pub(crate) fn begin_work(&self) -> WorkInProgress {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        WorkInProgress { count: Arc::clone(&self.in_progress) }
    }

    /// Returns the number of orders and sagas in progress.
    pub(crate) fn in_progress(&self) -> u64 {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Ends the services' background work: reads, sweeps, relays and consumers.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether background work is to end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns what is wrong with the final rows of all databases, without what was added from
    /// outside: units and money are conserved, what was paid is what was sold, and events have
    /// carried all that was sold.
    pub(crate) fn audit(&self, databases: &[Vec<(RowId, i64)>]) -> Vec<String> {
        let mut wrong = Vec::new();
        let value = |database: usize, row: RowId| {
            let found = databases[database].iter().find(|(of, _)| *of == row);
            found.map_or(0, |(_, value)| *value)
        };
        let mut sold = 0;
        for product in 0..self.rows {
            sold += value(0, sold_row(product));
            let units = value(0, stock_row(product)) + value(0, sold_row(product));
            if units != INITIAL_BALANCE {
                wrong.push(format!("product {product}: {units} units of {INITIAL_BALANCE}"));
            }
        }
        let mut paid = 0;
        for bank in 1..self.databases {
            paid += value(bank, TILL);
            let money: i64 = (0..=self.rows).map(|row| value(bank, RowId(row))).sum();
            let expected = INITIAL_BALANCE * i64::from(self.rows);
            if money != expected {
                wrong.push(format!("bank {bank}: {money} of {expected}"));
            }
        }
        if paid != sold * PRICE {
            wrong.push(format!("{sold} units sold at {PRICE}, but {paid} paid"));
        }
        wrong.extend(databases.iter().flat_map(|rows| points::audit(self.rows, rows)));
        wrong.extend(transfers::audit(self.rows, databases));
        for product in (0..self.rows).filter(|_| self.emits_events) {
            let target = events::target_database(0, self.databases);
            let carried = value(target, events::target_row(0, product));
            let sold = value(0, sold_row(product));
            if carried != sold {
                wrong.push(format!("product {product}: {sold} sold, events carried {carried}"));
            }
        }
        wrong
    }
}

/// Orders of a long run are spread over all of it.
fn orders_pause_max(plan: &Plan) -> u64 {
    let short = 1_500 * MS;
    if !plan.is_long() {
        return short;
    }
    let workers = plan.clients as u64 * plan.workers;
    let orders_each = (2 * plan.transactions / workers).max(1);
    (2 * plan.faults_end_ms() * MS / orders_each).max(short)
}

fn take_one(left: &AtomicU64) -> Option<u64> {
    let next = |left: u64| left.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}

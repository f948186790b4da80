//! Orders: stock in database 0, money in another one, and what the plan's modes add.

use super::Workload;
use super::edit::{Edit, EventDraft};
use super::points::{PointsChange, TccTry};
use super::transfers::{self, Transfer};
use crate::model::values::RowId;
use crate::random::Random;

/// The price of one unit.
pub(super) const PRICE: i64 = 10;
/// The row of the shop's till, in every database but the first.
pub(super) const TILL: RowId = RowId(0);

/// One order. All of it is drawn before it begins.
#[derive(Debug)]
pub(crate) struct Order {
    /// Nothing for a gift.
    pub(crate) stock: Vec<Edit>,
    /// The goods sold, for the branch that changes the stock.
    pub(crate) sold_events: Vec<EventDraft>,
    /// The service that changes the stock.
    pub(crate) warehouse: usize,
    /// The database of the payments.
    pub(crate) bank: usize,
    /// Each payment is a branch. The second one changes the rows of the first again.
    pub(crate) payments: Vec<Vec<Edit>>,
    /// Whether the order is rolled back when all its branches are done.
    pub(crate) is_abandoned: bool,
    pub(crate) timeout_ms: u64,
    /// Tries that change points, each with the service that runs it.
    pub(crate) tries: Vec<(usize, TccTry)>,
    /// Branches that move money between purses, each with the service that runs it.
    pub(crate) transfers: Vec<(usize, Transfer)>,
    /// Whether the transfers come before everything else, or after it.
    pub(crate) transfers_first: bool,
}

impl Workload {
    /// Draws an order of AT branches, or now and then a gift.
    pub(crate) fn draw_order(&self, random: &mut Random, services: usize) -> Order {
        if self.rows > 1 && random.happens(250) {
            return self.draw_gift(random);
        }
        let bank = 1 + random.index(self.databases - 1);
        let first = u32::try_from(random.index(self.rows as usize)).unwrap_or(0);
        let mut stock = Vec::new();
        let mut units = 0;
        // Sometimes two products, in either order.
        let products = if self.rows > 1 && random.happens(300) { 2 } else { 1 };
        for product in 0..products {
            let sold = i64::try_from(random.between(1, 5)).unwrap_or(1);
            let product = (first + product) % self.rows;
            stock.push(Edit { row: stock_row(product), delta: -sold });
            stock.push(Edit { row: sold_row(product), delta: sold });
            units += sold;
        }
        let customer = u32::try_from(random.between(1, u64::from(self.rows))).unwrap_or(1);
        let pay = |amount: i64| {
            let out = Edit { row: customer_row(customer), delta: -amount };
            vec![out, Edit { row: TILL, delta: amount }]
        };
        let payments = match random.happens(400) {
            true => vec![pay(units * (PRICE - 1)), pay(units)],
            false => vec![pay(units * PRICE)],
        };
        let warehouse = random.index(services);
        let is_abandoned = random.happens(200);
        Order {
            sold_events: self.sold_events(&stock),
            stock,
            warehouse,
            bank,
            payments,
            is_abandoned,
            timeout_ms: random.between(500, 12_000),
            tries: Vec::new(),
            transfers: Vec::new(),
            transfers_first: false,
        }
    }

    /// Draws an order of a single branch, in which one customer pays another one.
    fn draw_gift(&self, random: &mut Random) -> Order {
        let giver = u32::try_from(random.between(1, u64::from(self.rows))).unwrap_or(1);
        let taker = giver % self.rows + 1;
        let amount = i64::try_from(random.between(1, 5)).unwrap_or(1);
        let paid = Edit { row: customer_row(giver), delta: -amount };
        let got = Edit { row: customer_row(taker), delta: amount };
        Order {
            stock: Vec::new(),
            sold_events: Vec::new(),
            warehouse: 0,
            bank: 1 + random.index(self.databases - 1),
            payments: vec![vec![paid, got]],
            is_abandoned: random.happens(100),
            timeout_ms: random.between(500, 12_000),
            tries: Vec::new(),
            transfers: Vec::new(),
            transfers_first: false,
        }
    }

    /// Draws up to two tries for an order.
    pub(crate) fn draw_tries(&self, random: &mut Random, services: usize) -> Vec<(usize, TccTry)> {
        let tries = random.index(3);
        let draw = |_| {
            let account = u32::try_from(random.index(self.rows as usize)).unwrap_or(0);
            let units = i64::try_from(random.between(1, 5)).unwrap_or(1);
            let (change, refuses) = (PointsChange { account, units }, random.happens(50));
            let wanted = TccTry { database: random.index(self.databases), change, refuses };
            (random.index(services), wanted)
        };
        (0..tries).map(draw).collect()
    }

    /// Adds a transfer between purses of the given databases to an order.
    pub(crate) fn draw_transfers(
        &self,
        random: &mut Random,
        services: usize,
        databases: &[usize],
        order: &mut Order,
    ) {
        let drawn = transfers::draw(random, databases, self.rows);
        let by = |transfer| (random.index(services), transfer);
        order.transfers = drawn.into_iter().map(by).collect();
        order.transfers_first = random.happens(600);
    }

    /// Draws two rows of one product or of neighbouring accounts, and their database.
    pub(crate) fn draw_read(&self, random: &mut Random) -> (usize, [RowId; 2]) {
        let database = random.index(self.databases);
        let row = u32::try_from(random.index(self.rows as usize)).unwrap_or(0);
        if database == 0 {
            (database, [stock_row(row), sold_row(row)])
        } else {
            (database, [RowId(row), RowId(row + 1)])
        }
    }

    fn sold_events(&self, stock: &[Edit]) -> Vec<EventDraft> {
        let sold = stock.iter().filter(|edit| edit.delta > 0 && self.emits_events);
        sold.map(|edit| EventDraft { key: edit.row.0 / 2, units: edit.delta }).collect()
    }
}

pub(super) fn stock_row(product: u32) -> RowId {
    RowId(2 * product)
}

pub(super) fn sold_row(product: u32) -> RowId {
    RowId(2 * product + 1)
}

/// Returns the row of a customer's account. Customers are counted from 1; row 0 is the till.
pub(super) fn customer_row(customer: u32) -> RowId {
    RowId(customer)
}

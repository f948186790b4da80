//! The facts that must hold after a run, read from the databases and the coordinator: the clients'
//! own view proves nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::coordinator::Coordinator;
use crate::database::Databases;
use crate::example::{Books, Example, Leftover};
use crate::money::Money;

/// The time that phase two may take to finish after the last order. A crash can leave a global open
/// until its timeout; beyond that this is for a machine under load.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The totals of the three databases.
#[derive(Debug, Clone)]
pub(crate) struct Holdings {
    /// Units on hand by product.
    units: BTreeMap<i64, i64>,
    /// Cents by customer.
    balances: BTreeMap<String, i64>,
    /// Units in written orders by product.
    sold: BTreeMap<i64, i64>,
    /// Cents of written orders by customer.
    paid: BTreeMap<String, i64>,
    /// The number of orders.
    orders: usize,
}

/// The work that phase two still owes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    pub(crate) undo_rows: i64,
    pub(crate) locks: u64,
    pub(crate) unfinished: u64,
    /// Further counts of the example.
    pub(crate) own: Vec<Leftover>,
}

/// One thing that must hold.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) holds: bool,
}

impl Holdings {
    /// Reads them.
    pub(crate) async fn read(databases: &Databases, books: Books) -> Result<Self> {
        let paid = databases.order.numbers_by_name(books.paid).await?;
        Ok(Self {
            units: sum(databases.stock.numbers_by_id(books.units).await?),
            balances: sum(databases.account.numbers_by_name(books.balances).await?),
            sold: sum(databases.order.numbers_by_id(books.sold).await?),
            orders: paid.len(),
            paid: sum(paid),
        })
    }

    /// Units on hand.
    pub(crate) fn stock(&self) -> i64 {
        self.units.values().sum()
    }

    /// Cents of written orders.
    pub(crate) fn revenue_cents(&self) -> i64 {
        self.paid.values().sum()
    }

    fn money_cents(&self) -> i64 {
        self.balances.values().sum()
    }

    fn units_sold(&self) -> i64 {
        self.sold.values().sum()
    }
}

fn sum<Key: Ord>(rows: Vec<(Key, i64)>) -> BTreeMap<Key, i64> {
    let mut sums = BTreeMap::new();
    for (key, number) in rows {
        *sums.entry(key).or_default() += number;
    }
    sums
}

impl Leftovers {
    /// Waits, within limits, until nothing is left, and tells what is.
    pub(crate) async fn settle(
        example: &impl Example,
        databases: &Databases,
        coordinator: &Coordinator,
        http: &reqwest::Client,
    ) -> Result<Self> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            let is_late = Instant::now() >= until;
            match Self::count(example, databases, coordinator, http).await {
                Ok(left) if left.is_nothing() || is_late => return Ok(left),
                Err(error) if is_late => return Err(error),
                // A coordinator that starts again answers a little later.
                Ok(_) | Err(_) => {}
            }
            sleep(ASK_EVERY).await;
        }
    }

    fn is_nothing(&self) -> bool {
        let own: i64 = self.own.iter().map(|left| left.count).sum();
        (self.undo_rows, self.locks, self.unfinished, own) == (0, 0, 0, 0)
    }

    async fn count(
        example: &impl Example,
        databases: &Databases,
        coordinator: &Coordinator,
        http: &reqwest::Client,
    ) -> Result<Self> {
        let standing = coordinator.counts(http).await?;
        let mut undo_rows = 0;
        for pool in [&databases.order, &databases.stock, &databases.account] {
            undo_rows += pool.undo_rows().await?;
        }
        let (locks, unfinished) = (standing.locks, standing.unfinished());
        Ok(Self { undo_rows, locks, unfinished, own: example.leftovers(databases).await? })
    }
}

/// Returns every check. `committed` is the number of orders that customers saw committed.
pub(crate) fn checks(
    before: &Holdings,
    after: &Holdings,
    left: &Leftovers,
    committed: usize,
) -> Vec<Check> {
    let own = left.own.iter().map(|left| Check::equal(left.what, 0, left.count));
    let common = [
        Check::equal(
            "stock before = stock after + sold",
            before.stock(),
            after.stock() + after.units_sold(),
        ),
        Check::equal(
            "money before = money after + paid",
            Money(before.money_cents()),
            Money(after.money_cents() + after.revenue_cents()),
        ),
        Check::equal(
            "products out of balance",
            0,
            out_of_balance(&before.units, &after.units, &after.sold),
        ),
        Check::equal(
            "customers out of balance",
            0,
            out_of_balance(&before.balances, &after.balances, &after.paid),
        ),
        Check::equal("orders confirmed = orders written", committed, after.orders),
        Check::equal("undo rows left", 0, left.undo_rows),
        Check::equal("global locks left", 0, left.locks),
        Check::equal("unfinished transactions left", 0, left.unfinished),
    ];
    common.into_iter().chain(own).collect()
}

impl Check {
    fn equal<T: PartialEq + ToString>(what: &'static str, expected: T, found: T) -> Self {
        let holds = expected == found;
        Self { what, expected: expected.to_string(), found: found.to_string(), holds }
    }
}

/// Returns the number of keys that do not add up, one by one: errors in two of them must not hide
/// each other.
fn out_of_balance<Key: Ord>(
    before: &BTreeMap<Key, i64>,
    after: &BTreeMap<Key, i64>,
    moved: &BTreeMap<Key, i64>,
) -> usize {
    let at = |sums: &BTreeMap<Key, i64>, key| sums.get(key).copied().unwrap_or_default();
    let keys = before.keys().chain(after.keys()).chain(moved.keys());
    let keys: std::collections::BTreeSet<&Key> = keys.collect();
    keys.into_iter().filter(|key| at(before, key) != at(after, key) + at(moved, key)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(units: i64, sold: i64, balance: i64, paid: i64, orders: usize) -> Holdings {
        Holdings {
            units: [(1, units), (2, 7)].into(),
            balances: [("A".to_owned(), balance)].into(),
            sold: [(1, sold)].into(),
            paid: [("A".to_owned(), paid)].into(),
            orders,
        }
    }

    fn broken(after: &Holdings, left: &Leftovers) -> Vec<&'static str> {
        let checks = checks(&holdings(10, 0, 500, 0, 0), after, left, 1);
        checks.into_iter().filter(|check| !check.holds).map(|check| check.what).collect()
    }

    #[test]
    fn a_sound_run_holds() {
        assert!(broken(&holdings(8, 2, 400, 100, 1), &Leftovers::default()).is_empty());
    }

    #[test]
    fn a_lost_unit_a_lost_cent_and_a_lost_order_are_seen() {
        assert_eq!(
            broken(&holdings(7, 2, 400, 100, 1), &Leftovers::default()),
            ["stock before = stock after + sold", "products out of balance"]
        );
        assert_eq!(
            broken(&holdings(8, 2, 399, 100, 1), &Leftovers::default()),
            ["money before = money after + paid", "customers out of balance"]
        );
        assert_eq!(
            broken(&holdings(8, 2, 400, 100, 2), &Leftovers::default()),
            ["orders confirmed = orders written"]
        );
    }

    #[test]
    fn errors_that_cancel_out_are_seen() {
        let mut after = holdings(7, 2, 400, 100, 1);
        after.units.insert(2, 8);
        assert_eq!(broken(&after, &Leftovers::default()), ["products out of balance"]);
    }

    #[test]
    fn leftovers_are_seen() {
        let own = vec![Leftover { what: "reservations left", count: 4 }];
        let left = Leftovers { undo_rows: 1, locks: 2, unfinished: 3, own };
        let broken = broken(&holdings(8, 2, 400, 100, 1), &left);
        assert_eq!(broken.len(), 4);
        assert_eq!(broken.last(), Some(&"reservations left"));
    }
}

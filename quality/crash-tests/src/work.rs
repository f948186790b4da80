//! Operations as data: they are drawn at random and turned into SQL, and rows are turned back into
//! the values that were read. Pure.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::event::ReadValues;
use crate::history::{List, Read, Reading};

/// Accounts in each database.
pub const ACCOUNTS: i64 = 10;
/// The amount in each account at the start.
pub const CENTS: i64 = 1_000;
/// Lists in each database.
pub const LISTS: i64 = 400;
/// The number of lists used at a time: few, so that they are contended, and changing, so that they
/// do not grow forever.
const LISTS_AT_A_TIME: i64 = 4;
/// The number of databases that an operation may span.
pub const DATABASES: usize = 2;

/// The total of all accounts, which never changes.
#[must_use]
pub fn total() -> i64 {
    let databases = i64::try_from(DATABASES).expect("there are few databases");
    databases * ACCOUNTS * CENTS
}

/// The workload of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// Transfers and totals.
    Bank,
    /// Appends and reads of lists.
    Lists,
    /// Either, from operation to operation.
    Both,
}

/// A database product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Product {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// SQLite.
    Sqlite,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Takes from an account in one database and gives to one in the other, with a receipt in each.
    Transfer {
        /// The database that gives.
        from: usize,
        /// The accounts, in the order of the databases.
        accounts: [i64; DATABASES],
        /// The amount.
        cents: i64,
    },
    /// Reads all accounts under global locks.
    Total,
    /// Reads lists under global locks, then appends to lists.
    Append {
        /// The lists that are read.
        reads: BTreeSet<List>,
        /// The lists that are appended to.
        appends: BTreeSet<List>,
        /// Whether the databases are used in the opposite order.
        turned: bool,
    },
    /// Reads lists globally committed, holding nothing.
    Read {
        /// Which.
        lists: BTreeSet<List>,
    },
}

/// One local transaction of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// In which database.
    pub database: usize,
    /// Its statements, in order.
    pub steps: Vec<Step>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes rows.
    Write(String),
    /// Reads rows of an id and a value.
    Read(String),
}

/// An id and a value, as a read gives them.
pub type Row = (i64, String);

impl Task {
    /// Chooses an operation. `window` says which lists are in use.
    pub fn choose(workload: Workload, window: i64, random: &mut StdRng) -> Self {
        let bank = match workload {
            Workload::Bank => true,
            Workload::Lists => false,
            Workload::Both => random.random_bool(0.5),
        };
        match (bank, random.random_range(0..10)) {
            (true, 0..9) => Self::Transfer {
                from: random.random_range(0..DATABASES),
                accounts: [random.random_range(1..=ACCOUNTS), random.random_range(1..=ACCOUNTS)],
                cents: random.random_range(1..=20),
            },
            (true, _) => Self::Total,
            (false, 0..8) => Self::Append {
                reads: lists(window, random, 1),
                appends: lists(window, random, 2),
                turned: random.random_bool(0.5),
            },
            (false, _) => Self::Read { lists: lists(window, random, 2) },
        }
    }

    /// Returns whether its plain reads must be globally committed.
    #[must_use]
    pub fn reads_committed(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Returns the local transactions, in the order in which they are run.
    #[must_use]
    pub fn branches(&self, operation: u64, products: [Product; DATABASES]) -> Vec<Branch> {
        let mut branches: Vec<Branch> = (0..DATABASES)
            .map(|database| Branch {
                database,
                steps: self.steps(operation, database, products[database]),
            })
            .filter(|branch| !branch.steps.is_empty())
            .collect();
        if self.is_turned() {
            branches.reverse();
        }
        branches
    }

    /// Whether it changes or locks rows of one database alone.
    #[must_use]
    pub fn has_one_branch(&self) -> bool {
        let product = [Product::Sqlite; DATABASES];
        self.branches(0, product).len() == 1
    }

    fn is_turned(&self) -> bool {
        match self {
            Self::Transfer { from, .. } => *from != 0,
            Self::Append { turned, .. } => *turned,
            Self::Total | Self::Read { .. } => false,
        }
    }

    fn steps(&self, operation: u64, database: usize, product: Product) -> Vec<Step> {
        match self {
            Self::Transfer { from, accounts, cents } => {
                let (account, sign) = (accounts[database], if *from == database { -1 } else { 1 });
                let cents = cents * sign;
                vec![
                    Step::Write(format!(
                        "UPDATE account SET cents = cents + ({cents}) WHERE id = {account}"
                    )),
                    Step::Write(format!(
                        "INSERT INTO receipt (id, account, cents) \
                         VALUES ({operation}, {account}, {cents})"
                    )),
                ]
            }
            Self::Total => {
                let sql = "SELECT id, cents FROM account ORDER BY id FOR UPDATE";
                vec![Step::Read(sql.to_owned())]
            }
            Self::Append { reads, appends, .. } => {
                let reads = of(reads, database).map(|id| select(id, " FOR UPDATE"));
                let appends = of(appends, database).map(|id| append(id, operation, product));
                reads.chain(appends).collect()
            }
            Self::Read { lists } => of(lists, database).map(|id| select(id, "")).collect(),
        }
    }

    /// Returns the values in the rows that its branches read.
    #[must_use]
    pub fn seen(&self, read: &[(usize, Row)]) -> ReadValues {
        let mut seen = ReadValues::default();
        let reading = match self {
            Self::Transfer { .. } => return seen,
            Self::Total => {
                let cents = |(_, (_, cents)): &(usize, Row)| cents.parse::<i64>().ok();
                seen.total = read.iter().map(cents).sum();
                return seen;
            }
            Self::Append { .. } => Reading::Locked,
            Self::Read { .. } => Reading::Committed,
        };
        seen.lists.extend(read.iter().map(|(database, (id, items))| Read {
            list: (*database, *id),
            reading,
            elements: elements(items),
        }));
        seen
    }
}

/// The elements of a list as its row holds them.
#[must_use]
pub fn elements(items: &str) -> Vec<u64> {
    items.split(',').filter_map(|item| item.parse().ok()).collect()
}

/// One or more lists of each database, or of one of them.
fn lists(window: i64, random: &mut StdRng, per_database: usize) -> BTreeSet<List> {
    let first = window * LISTS_AT_A_TIME % (LISTS - LISTS_AT_A_TIME) + 1;
    let databases = match random.random_range(0..4) {
        0 => 0..1,
        1 => 1..2,
        _ => 0..DATABASES,
    };
    databases
        .flat_map(|database| std::iter::repeat_n(database, per_database))
        .map(|database| (database, first + random.random_range(0..LISTS_AT_A_TIME)))
        .collect()
}

fn of(lists: &BTreeSet<List>, database: usize) -> impl Iterator<Item = i64> {
    lists.iter().filter(move |(there, _)| *there == database).map(|(_, id)| *id)
}

fn select(id: i64, lock: &str) -> Step {
    Step::Read(format!("SELECT id, items FROM list WHERE id = {id}{lock}"))
}

fn append(id: i64, operation: u64, product: Product) -> Step {
    let items = match product {
        Product::Postgres | Product::Sqlite => format!("items || '{operation},'"),
        Product::MariaDb => format!("CONCAT(items, '{operation},')"),
    };
    Step::Write(format!("UPDATE list SET items = {items} WHERE id = {id}"))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const BOTH: [Product; DATABASES] = [Product::Postgres, Product::MariaDb];

    #[test]
    fn a_transfer_moves_money_with_a_receipt_on_both_sides() {
        let task = Task::Transfer { from: 1, accounts: [3, 4], cents: 5 };
        let branches = task.branches(77, BOTH);
        assert_eq!(branches.iter().map(|branch| branch.database).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            branches[0].steps,
            [
                Step::Write("UPDATE account SET cents = cents + (-5) WHERE id = 4".to_owned()),
                Step::Write(
                    "INSERT INTO receipt (id, account, cents) VALUES (77, 4, -5)".to_owned()
                ),
            ]
        );
    }

    #[test]
    fn an_append_reads_first_in_the_dialect_of_the_product() {
        let task = Task::Append {
            reads: [(0, 2)].into(),
            appends: [(0, 2), (1, 3)].into(),
            turned: false,
        };
        let steps: Vec<Step> =
            task.branches(9, BOTH).into_iter().flat_map(|branch| branch.steps).collect();
        assert_eq!(
            steps,
            [
                Step::Read("SELECT id, items FROM list WHERE id = 2 FOR UPDATE".to_owned()),
                Step::Write("UPDATE list SET items = items || '9,' WHERE id = 2".to_owned()),
                Step::Write("UPDATE list SET items = CONCAT(items, '9,') WHERE id = 3".to_owned()),
            ]
        );
    }

    #[test]
    fn rows_become_totals_and_lists() {
        let row = |database, id, value: &str| (database, (id, value.to_owned()));
        let total = Task::Total.seen(&[row(0, 1, "40"), row(1, 1, "-2")]).total;
        assert_eq!(total, Some(38));
        let task = Task::Read { lists: [(1, 5)].into() };
        let seen = task.seen(&[row(1, 5, "12,7,")]);
        assert_eq!((seen.lists[0].list, &*seen.lists[0].elements), ((1, 5), &[12, 7][..]));
    }

    #[test]
    fn chosen_lists_exist() {
        let mut random = StdRng::seed_from_u64(1);
        for window in 0..1_000 {
            let chosen = lists(window, &mut random, 2);
            assert!(chosen.iter().all(|(_, id)| (1..=LISTS).contains(id)), "{chosen:?}");
        }
    }
}

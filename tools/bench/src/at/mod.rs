//! `at`: global transactions over real databases beside the same statements without Handfast.
//!
//! Every row is compared with the plain local transaction of the same connections, statement and
//! run. A branch alone is measured with the echo in the coordinator's place, which replies at once:
//! the rest is the cost of the library and the database.

mod caller;
mod contention;
mod counters;
mod database;
mod goals;
mod hot;
mod jdbc;
mod peers;
mod polling;
mod seata;
mod setup;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sqlx::{MySql, Postgres, Sqlite};

use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};

use seata::{SeataCoordinator, SeataSetup};
use setup::AtSetup;

pub(crate) use database::{BenchDatabase, Fresh, ITEMS, Statement};
pub(crate) use peers::build_peers;
pub(crate) use setup::{DATABASE_PROGRAMS, branch};

/// `handfast-bench at`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A database product; may be given several times. Without any, all with a known server.
    #[arg(long, value_enum)]
    database: Vec<Product>,
    /// The MySQL or MariaDB server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The PostgreSQL server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_POSTGRES")]
    postgres: Option<String>,
    /// Measurements to make; may be given several times. Without any, all but hot rows and unlocked
    /// parents.
    #[arg(long, value_enum)]
    what: Vec<WorkMethod>,
    /// The statement of a branch.
    #[arg(long, value_enum, default_value = "point")]
    statement: Statement,
    /// Clients, each with a connection of its own; may be given several times.
    #[arg(long, default_values_t = [1, 8, 32])]
    clients: Vec<usize>,
    /// Measures hot rows, beside polling as other coordinators' clients do it.
    #[arg(long)]
    hot: bool,
    /// Measures a hot row that is a declared counter, beside one that is not.
    #[arg(long, conflicts_with = "hot")]
    counters: bool,
    /// Measures globals that are in each other's way, without a repetition of any.
    #[arg(long, conflicts_with_all = ["hot", "counters"])]
    contention: bool,
    /// Also measures the same globals by Seata's Java client, on the coordinator's port for it and
    /// on Seata Server. Needs Java and Maven.
    #[arg(long, requires = "contention")]
    beside_seata: bool,
    /// The library keeps a connection for each client between branches, in place of giving it back
    /// to the pool. The plain transactions that it is compared with still do.
    #[arg(long)]
    keep_connections: bool,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Product {
    Mysql,
    Postgres,
    Sqlite,
}

/// One way to do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkMethod {
    /// BEGIN, the statement, COMMIT.
    Local,
    /// The same as a branch, with a coordinator that replies at once.
    Branch,
    /// The same, and the branch is a single statement.
    BranchAlone,
    /// A local transaction that takes no part in globals and makes sure that none holds its rows.
    Checked,
    /// A whole global of one branch, with the real coordinator.
    Global,
    /// The same, and the branch decides it.
    GlobalLast,
    /// The same, and the branch is a single statement.
    GlobalLastAlone,
    /// The database's own two-phase commit, in two round trips.
    Prepared,
    /// Two plain local transactions, one in each of two databases.
    LocalTwo,
    /// A whole global of one branch in each of two databases.
    GlobalTwo,
    /// The same, and the second branch decides it.
    GlobalTwoLast,
    /// The same, and both branches are single statements.
    GlobalTwoLastAlone,
    /// A whole global of one branch, without locks on rows that are referred to.
    GlobalUnlocked,
}

impl WorkMethod {
    const ALL: [Self; 12] = [
        Self::Local,
        Self::Branch,
        Self::BranchAlone,
        Self::Checked,
        Self::Global,
        Self::GlobalLast,
        Self::GlobalLastAlone,
        Self::Prepared,
        Self::LocalTwo,
        Self::GlobalTwo,
        Self::GlobalTwoLast,
        Self::GlobalTwoLastAlone,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Branch => "branch alone",
            Self::BranchAlone => "branch alone, one statement",
            Self::Checked => "local, checked",
            Self::Global => "global, 1 branch",
            Self::GlobalLast => "global, 1 branch that decides",
            Self::GlobalLastAlone => "global, 1 statement that decides",
            Self::Prepared => "two-phase commit of the database",
            Self::LocalTwo => "local, 2 databases",
            Self::GlobalTwo => "global, 2 databases",
            Self::GlobalTwoLast => "global, 2 databases, the second decides",
            Self::GlobalTwoLastAlone => "global, a statement in 2 databases, the second decides",
            Self::GlobalUnlocked => "global, 1 branch, parents unlocked",
        }
    }

    /// Returns the way that it is compared with.
    fn baseline(self) -> Option<Self> {
        match self {
            Self::Local | Self::LocalTwo => None,
            Self::Branch
            | Self::BranchAlone
            | Self::Checked
            | Self::Global
            | Self::GlobalLast
            | Self::GlobalLastAlone
            | Self::GlobalUnlocked
            | Self::Prepared => Some(Self::Local),
            Self::GlobalTwo | Self::GlobalTwoLast | Self::GlobalTwoLastAlone => {
                Some(Self::LocalTwo)
            }
        }
    }
}

/// The options for one product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductOptions<'a> {
    pub(crate) url: &'a str,
    pub(crate) measure: &'a Measure,
    pub(crate) place: &'a RunDirectory,
    pub(crate) keep_connections: bool,
}

/// Measures the selected products and ways.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("at");
    let ways = if options.what.is_empty() { &WorkMethod::ALL[..] } else { &options.what };
    let beside = if options.beside_seata { &SeataCoordinator::ALL[..] } else { &[] };
    beside.iter().try_for_each(|coordinator| coordinator.build())?;
    for product in options.products()? {
        let url = options.url(product)?;
        let (measure, place) = (&options.measure, &options.place);
        let keep_connections = options.keep_connections;
        let part = ProductOptions { url, measure, place, keep_connections };
        let rows = if options.hot {
            part.hot(product, &options.clients).await?
        } else if options.counters {
            part.counters(product, &options.clients).await?
        } else if options.contention {
            part.contention(product, beside, &options.clients).await?
        } else {
            part.ways(product, ways, options.statement, &options.clients).await?
        };
        rows.into_iter().for_each(|row| report.push(row));
    }
    Ok(report)
}

impl ProductOptions<'_> {
    async fn open<DB: BenchDatabase>(&self, clients: &[usize]) -> Result<AtSetup<DB>> {
        let most = most(clients);
        let kept = if self.keep_connections { most } else { 0 };
        AtSetup::open(self.url, self.place, most, kept).await
    }

    /// Measures ways with each number of clients, beside their baselines.
    async fn ways(
        &self,
        product: Product,
        ways: &[WorkMethod],
        statement: Statement,
        clients: &[usize],
    ) -> Result<Vec<Row>> {
        match product {
            Product::Mysql => self.ways_on::<MySql>(ways, statement, clients).await,
            Product::Postgres => self.ways_on::<Postgres>(ways, statement, clients).await,
            Product::Sqlite => self.ways_on::<Sqlite>(ways, statement, clients).await,
        }
        .with_context(|| format!("{product:?}"))
    }

    /// Measures hot rows with each number of clients, beside polling.
    async fn hot(&self, product: Product, clients: &[usize]) -> Result<Vec<Row>> {
        match product {
            Product::Mysql => self.hot_on::<MySql>(clients).await,
            Product::Postgres => self.hot_on::<Postgres>(clients).await,
            Product::Sqlite => self.hot_on::<Sqlite>(clients).await,
        }
        .with_context(|| format!("{product:?}"))
    }

    async fn hot_on<DB: BenchDatabase>(&self, clients: &[usize]) -> Result<Vec<Row>> {
        let setup = self.open::<DB>(clients).await?;
        let rows = hot::measure(&setup, clients, self.measure).await;
        setup.close(self.url).await?;
        rows
    }

    /// Measures a hot counter with each number of clients.
    async fn counters(&self, product: Product, clients: &[usize]) -> Result<Vec<Row>> {
        match product {
            Product::Mysql => self.counters_on::<MySql>(clients).await,
            Product::Postgres => self.counters_on::<Postgres>(clients).await,
            Product::Sqlite => self.counters_on::<Sqlite>(clients).await,
        }
        .with_context(|| format!("{product:?}"))
    }

    async fn counters_on<DB: BenchDatabase>(&self, clients: &[usize]) -> Result<Vec<Row>> {
        let setup = self.open::<DB>(clients).await?;
        let rows = counters::measure(&setup, clients, self.measure).await;
        setup.close(self.url).await?;
        rows
    }

    /// Measures globals that are in each other's way, also by a Seata client on coordinators.
    async fn contention(
        &self,
        product: Product,
        beside: &[SeataCoordinator],
        clients: &[usize],
    ) -> Result<Vec<Row>> {
        match product {
            Product::Mysql => self.contention_on::<MySql>(beside, clients).await,
            Product::Postgres => self.contention_on::<Postgres>(beside, clients).await,
            Product::Sqlite => self.contention_on::<Sqlite>(beside, clients).await,
        }
        .with_context(|| format!("{product:?}"))
    }

    async fn contention_on<DB: BenchDatabase>(
        &self,
        beside: &[SeataCoordinator],
        clients: &[usize],
    ) -> Result<Vec<Row>> {
        let setup = self.open::<DB>(clients).await?;
        let mut others = Vec::new();
        for &coordinator in beside {
            let program = contention::program();
            others.push(SeataSetup::open(coordinator, self.url, self.place, &program).await?);
        }
        let rows = contention::measure(&setup, &mut others, clients, self.measure).await;
        for other in others {
            other.close(self.url).await?;
        }
        setup.close(self.url).await?;
        rows
    }

    async fn ways_on<DB: BenchDatabase>(
        &self,
        ways: &[WorkMethod],
        statement: Statement,
        clients: &[usize],
    ) -> Result<Vec<Row>> {
        let has = |what: &WorkMethod| DB::DROP.is_some() || *what != WorkMethod::Prepared;
        let ways: Vec<WorkMethod> = ways.iter().copied().filter(has).collect();
        let setup = self.open::<DB>(clients).await?;
        let mut rows = Vec::new();
        for &clients in clients {
            rows.extend(self.ways_at_once(&setup, &ways, statement, clients).await?);
        }
        setup.close(self.url).await?;
        Ok(rows)
    }

    async fn ways_at_once<DB: BenchDatabase>(
        &self,
        setup: &AtSetup<DB>,
        ways: &[WorkMethod],
        statement: Statement,
        clients: usize,
    ) -> Result<Vec<Row>> {
        let name = |what: &WorkMethod| name(DB::PRODUCT, statement, clients, *what);
        let names: Vec<String> = ways.iter().map(name).collect();
        let times = (self.measure.warm_up(), self.measure.length());
        let run = async |which: usize| setup.measure(ways[which], statement, clients, times).await;
        let mut rows = self.measure.rows(&names, run).await?;
        compare(ways, &mut rows);
        Ok(rows)
    }
}

/// Returns the name of a row.
fn name(product: &str, statement: Statement, clients: usize, what: WorkMethod) -> String {
    let (statement, what) = (statement.name(), what.name());
    format!("{product}, {statement}, {clients} clients: {what}")
}

fn most(clients: &[usize]) -> usize {
    clients.iter().copied().max().unwrap_or(1)
}

/// Adds how many times faster its baseline is to each row.
fn compare(ways: &[WorkMethod], rows: &mut [Row]) {
    let speeds: Vec<f64> = rows.iter().map(|row| row.per_second.median).collect();
    for (at, row) in rows.iter_mut().enumerate() {
        let baseline = ways[at].baseline();
        let Some(of) = ways.iter().position(|way| Some(*way) == baseline) else { continue };
        row.set_figure("plain local / this", speeds[of] / speeds[at]);
    }
}

impl Options {
    /// Returns the selected products. Without any: those with a known server, and SQLite if all
    /// that is measured can use it.
    fn products(&self) -> Result<Vec<Product>> {
        if !self.database.is_empty() {
            return Ok(self.database.clone());
        }
        let servers = [(Product::Mysql, &self.mysql), (Product::Postgres, &self.postgres)];
        let known =
            servers.into_iter().filter(|(_, url)| url.is_some()).map(|(product, _)| product);
        let without_server = !self.hot && !self.beside_seata;
        Ok(known.chain(without_server.then_some(Product::Sqlite)).collect())
    }

    fn url(&self, product: Product) -> Result<&str> {
        let (url, flag) = match product {
            Product::Mysql => (&self.mysql, "--mysql"),
            Product::Postgres => (&self.postgres, "--postgres"),
            Product::Sqlite => return Ok(""),
        };
        url.as_deref().with_context(|| format!("{flag} names no server"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    #[test]
    fn each_way_is_held_against_its_own_baseline() {
        let ways =
            [WorkMethod::Local, WorkMethod::Branch, WorkMethod::LocalTwo, WorkMethod::GlobalTwo];
        let row = |median| Row {
            per_second: Spread { median, min: median, max: median },
            ..Row::default()
        };
        let mut rows = [row(100.0), row(80.0), row(50.0), row(10.0)];
        compare(&ways, &mut rows);
        let ratio = |at: usize| rows[at].figure("plain local / this");
        assert_eq!((ratio(0), ratio(2)), (None, None));
        assert!((ratio(1).unwrap() - 1.25).abs() < 1e-9);
        assert!((ratio(3).unwrap() - 5.0).abs() < 1e-9);
    }
}

//! Globals of one update end to end, by this library and by Seata's Java client, beside the plain
//! transactions of their own languages.
//!
//! Programs in Java and coordinators run as long as the measurement, since a JVM gets faster for
//! its first half minute.

use std::time::Duration;

use anyhow::{Context, Result};
use handfast_interop::JavaRelease;
use sqlx::MySql;
use tempfile::TempDir;

use super::contention::ROW_LOCKED;
use super::database::{BenchDatabase, ITEMS, Statement};
use super::jdbc::JdbcAddress;
use super::seata::{JavaProgram, SeataCoordinator, SeataSetup};
use super::setup::{AtSetup, DATABASE_PROGRAMS};
use super::{ProductOptions, WorkMethod, most};
use crate::goal::Goal;
use crate::java::{JavaClients, JavaRun};
use crate::peers::set_times;
use crate::report::Row;
use crate::sample::Sample;
use crate::usage::Process;

/// How many times as fast as Seata's whole stack the library on Handfast is to be.
const TIMES_SEATA: f64 = 8.0;
/// A warm-up is a run whose window is this short.
const SHORT: Duration = Duration::from_millis(100);
const PLAIN: &str = "plain ÷ this";
const SPARE_CONNECTIONS: usize = 4;

/// A way to make the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    /// Plain transactions in Java.
    Jdbc,
    /// Seata's Java client on a coordinator.
    Seata(SeataCoordinator),
    /// Plain transactions in Rust.
    Sqlx,
    /// The library on Handfast; the caller asks for the commit.
    Library,
    /// The same, and the branch decides.
    LibraryLast,
}

const ALL: [Stack; 6] = [
    Stack::Jdbc,
    Stack::Seata(SeataCoordinator::SeataServer),
    Stack::Seata(SeataCoordinator::Handfast),
    Stack::Sqlx,
    Stack::Library,
    Stack::LibraryLast,
];

/// Fetches and builds the programs in Java.
pub(crate) fn build_peers() -> Result<()> {
    SeataCoordinator::ALL.iter().try_for_each(|coordinator| coordinator.build())
}

impl ProductOptions<'_> {
    /// Measures every stack with each number of clients, on MySQL or MariaDB.
    pub(crate) async fn peers(&self, clients: &[usize], jvm_warm_up: Duration) -> Result<Vec<Row>> {
        let most = most(clients);
        let mut stacks = Stacks::open(self, most).await?;
        for stack in ALL.into_iter().filter(|stack| stack.is_in_java()) {
            stacks.run(stack, most, (jvm_warm_up, SHORT)).await.context("a JVM's warm-up")?;
        }
        let mut measured = Vec::new();
        for &clients in clients {
            let names = ALL.map(|stack| format!("{clients} clients: {}", stack.name()));
            let times = (self.measure.warm_up(), self.measure.length());
            let run = async |which: usize| stacks.run(ALL[which], clients, times).await;
            let mut rows = self.measure.rows(&names, run).await?;
            compare(&mut rows);
            measured.extend(rows);
        }
        stacks.close(self.url).await?;
        Ok(measured)
    }
}

/// Compares each row with the plain transactions of its language, and the stacks with Seata's. The
/// rows are in the order of [`ALL`].
fn compare(rows: &mut [Row]) {
    let speeds: Vec<f64> = rows.iter().map(|row| row.per_second.median).collect();
    let [jdbc, seata, _, sqlx, library, last] = speeds[..] else { return };
    for (row, stack) in rows.iter_mut().zip(ALL) {
        let speed = row.per_second.median;
        match stack {
            Stack::Jdbc | Stack::Sqlx => {}
            Stack::Seata(_) => row.set_figure(PLAIN, jdbc / speed),
            Stack::Library | Stack::LibraryLast => row.set_figure(PLAIN, sqlx / speed),
        }
    }
    set_times(library, &mut rows[1]);
    rows[1].set_figure("Handfast, its last branch decides ÷ this", last / seata);
    rows[1].set_figure("this client on Handfast ÷ this", speeds[2] / seata);
    for (at, speed) in [(4, library), (5, last)] {
        let bound = format!("{}: {seata:.0}/s", rows[1].name);
        let goal = Goal::at_least("times Java on Seata Server", TIMES_SEATA, speed / seata, bound);
        rows[at].goals = vec![goal];
    }
}

impl Stack {
    fn name(self) -> String {
        match self {
            Self::Jdbc => "plain transaction, Java with HikariCP".to_owned(),
            Self::Seata(coordinator) => {
                let version = JavaRelease::NEWEST.version();
                format!("Seata {version} in Java with HikariCP on {}", coordinator.name())
            }
            Self::Sqlx => "plain transaction, Rust with sqlx".to_owned(),
            Self::Library => "Handfast's library".to_owned(),
            Self::LibraryLast => "Handfast's library, its last branch decides".to_owned(),
        }
    }

    fn is_in_java(self) -> bool {
        matches!(self, Self::Jdbc | Self::Seata(_))
    }
}

/// All of them, ready to run.
struct Stacks {
    // Dropped before the database that it uses.
    jdbc: JavaClients,
    seata_server: SeataSetup<MySql>,
    handfast: SeataSetup<MySql>,
    library: AtSetup<MySql>,
    _directory: TempDir,
}

impl Stacks {
    async fn open(options: &ProductOptions<'_>, clients: usize) -> Result<Self> {
        let ProductOptions { url, place, .. } = *options;
        let library = options.open::<MySql>(&[clients]).await?;
        let directory = place.directory()?;
        let dialect = MySql::SEATA.context("Seata's client uses MySQL")?;
        let address = JdbcAddress::new(dialect.jdbc, url, &library.first.name)?;
        let command = updates("local", clients).command(&address, None, directory.path())?;
        let jdbc = JavaClients::start(command, directory.path().join("java.log")).await?;
        let globals = updates("global", clients);
        let open = async |coordinator| SeataSetup::open(coordinator, url, place, &globals).await;
        Ok(Self {
            jdbc,
            seata_server: open(SeataCoordinator::SeataServer).await?,
            handfast: open(SeataCoordinator::Handfast).await?,
            library,
            _directory: directory,
        })
    }

    async fn run(
        &mut self,
        stack: Stack,
        clients: usize,
        times: (Duration, Duration),
    ) -> Result<(Sample, f64)> {
        let way = match stack {
            Stack::Jdbc => {
                let servers = Process::named(&DATABASE_PROGRAMS)?;
                return by_java(&mut self.jdbc, clients, times, &servers).await;
            }
            Stack::Seata(coordinator) => {
                let setup = match coordinator {
                    SeataCoordinator::SeataServer => &mut self.seata_server,
                    SeataCoordinator::Handfast => &mut self.handfast,
                };
                let servers = setup.servers()?;
                return by_java(&mut setup.java, clients, times, &servers).await;
            }
            Stack::Sqlx => WorkMethod::Local,
            Stack::Library => WorkMethod::Global,
            Stack::LibraryLast => WorkMethod::GlobalLastAlone,
        };
        self.library.measure(way, Statement::Point, clients, times).await
    }

    async fn close(self, url: &str) -> Result<()> {
        drop(self.jdbc);
        self.seata_server.close(url).await?;
        self.handfast.close(url).await?;
        self.library.close(url).await
    }
}

/// Returns the program that makes one update a transaction, with a pool for its clients and for
/// phase two.
fn updates(way: &str, clients: usize) -> JavaProgram {
    let connections = clients + SPARE_CONNECTIONS;
    let arguments = vec![ITEMS.to_string(), connections.to_string(), way.to_owned()];
    JavaProgram { class: "Updates", arguments }
}

async fn by_java(
    java: &mut JavaClients,
    clients: usize,
    times: (Duration, Duration),
    servers: &[Process],
) -> Result<(Sample, f64)> {
    let expected = |reason: &str| (reason == "row-locked").then_some(ROW_LOCKED);
    let run = JavaRun { operation: "update", clients, times, servers, expected };
    let result = java.run(&run).await?;
    Ok((result.sample, result.foreign_cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::TIMES;
    use crate::statistics::Spread;

    #[test]
    fn stacks_are_held_against_plain_transactions_and_against_seata() {
        let row = |median| Row { per_second: Spread::of([median]), ..Row::default() };
        let mut rows = [10_000.0, 500.0, 600.0, 12_000.0, 4_000.0, 6_000.0].map(row);
        compare(&mut rows);
        let figure = |at: usize, name: &str| rows[at].figure(name).unwrap_or(f64::NAN);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(figure(1, PLAIN), 20.0) && near(figure(4, PLAIN), 3.0));
        assert!(near(figure(5, PLAIN), 2.0) && near(figure(1, TIMES), 8.0));
        assert!(rows[0].figures.is_empty() && rows[3].figures.is_empty());
        assert!(rows[4].goals[0].met() && rows[5].goals[0].met());
        rows[1].per_second = Spread::of([501.0]);
        compare(&mut rows);
        assert!(!rows[4].goals[0].met(), "less than eight times");
    }
}

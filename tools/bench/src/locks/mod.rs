//! `locks`: locks of every backend beside the plain recipe of that backend, all in turns in one
//! run.
//!
//! A pair takes and releases a lock without contention; its latency is that of taking the lock. A
//! hand-over passes one lock that all clients want from one to the next; its latency is the time
//! from the start of the release until the next client holds the lock.

mod contender;
mod etcd;
mod peers;
mod recipe;
mod servers;
mod zookeeper;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::goal::Goal;
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::workers::{OperationEnd, work};

use contender::Contender;
use servers::LockServers;

pub(crate) use peers::peers;

/// `handfast-bench locks`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A backend; may be given several times. Without any, all whose server is known.
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// The MySQL or MariaDB server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The PostgreSQL server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_POSTGRES")]
    postgres: Option<String>,
    /// The program that Redis servers are started with.
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis_server: PathBuf,
    /// Clients with a lock of their own each; may be given several times.
    #[arg(long, default_values_t = [1, 64])]
    clients: Vec<usize>,
    /// Clients that want the same lock; may be given several times.
    #[arg(long, default_values_t = [32])]
    waiters: Vec<usize>,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

/// The backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The coordinator, durable, over the stream.
    Coordinator,
    /// A Redis server that keeps nothing.
    Redis,
    /// A Redis server with its default settings.
    #[value(skip)]
    RedisDefault,
    /// A Redis server with `appendfsync always`.
    RedisAlways,
    /// Three Redis servers that keep nothing.
    Redlock,
    Postgres,
    Mysql,
    Sqlite,
    /// An etcd of one server, durable.
    Etcd,
    /// A ZooKeeper of one server, durable.
    Zookeeper,
    /// This process.
    Memory,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Redis => "Redis",
            Self::RedisDefault => "Redis, default settings",
            Self::RedisAlways => "Redis, appendfsync always",
            Self::Redlock => "Redlock of three",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Sqlite => "SQLite",
            Self::Etcd => "etcd",
            Self::Zookeeper => "ZooKeeper",
            Self::Memory => "memory",
        }
    }
}

/// The workload of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Pairs,
    HandOver,
}

/// Measures every backend asked for.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("locks");
    let servers = LockServers::open(options).await?;
    let pairs = options.clients.iter().map(|clients| (Workload::Pairs, *clients));
    let hand_overs = options.waiters.iter().map(|waiters| (Workload::HandOver, *waiters));
    for (workload, clients) in pairs.chain(hand_overs) {
        let rows = rows(&servers.contenders, workload, clients, &options.measure).await?;
        rows.into_iter().for_each(|row| report.push(row));
    }
    servers.close(options).await?;
    Ok(report)
}

async fn rows(
    contenders: &[Contender],
    workload: Workload,
    clients: usize,
    measure: &Measure,
) -> Result<Vec<Row>> {
    let name = |contender: &Contender| name(contender.backend, workload, clients, contender.way());
    let names: Vec<String> = contenders.iter().map(name).collect();
    let times = (measure.warm_up(), measure.length());
    let run = async |which: usize| match workload {
        Workload::Pairs => pairs(&contenders[which], clients, times).await,
        Workload::HandOver => hand_overs(&contenders[which], clients, times).await,
    };
    let mut rows = measure.rows(&names, run).await?;
    compare(contenders, &mut rows);
    set_goals(workload, clients, &mut rows);
    Ok(rows)
}

/// Returns the name of a row.
fn name(backend: Backend, workload: Workload, clients: usize, way: &str) -> String {
    let workload = match workload {
        Workload::Pairs => "pairs",
        Workload::HandOver => "hand-over",
    };
    format!("{}, {workload}, {clients} clients: {way}", backend.name())
}

/// Every client takes and releases a lock that no other client wants.
async fn pairs(
    contender: &Contender,
    clients: usize,
    times: (Duration, Duration),
) -> Result<(Sample, f64)> {
    let pair = async |client, _: &mut _| {
        let begun = Instant::now();
        let held = contender.take(client).await?;
        let took = begun.elapsed();
        contender.release(client, held).await?;
        Ok(OperationEnd::Took(took))
    };
    work(clients, times, &contender.servers()?, pair).await
}

/// All clients want one lock and release it at once.
async fn hand_overs(
    contender: &Contender,
    clients: usize,
    times: (Duration, Duration),
) -> Result<(Sample, f64)> {
    let released: Cell<Option<Instant>> = Cell::default();
    let hand_over = async |_, _: &mut _| {
        let held = contender.take(0).await?;
        let ended = released
            .get()
            .map_or(OperationEnd::Well, |release| OperationEnd::Took(release.elapsed()));
        released.set(Some(Instant::now()));
        contender.release(0, held).await?;
        Ok(ended)
    };
    work(clients, times, &contender.servers()?, hand_over).await
}

/// Sets each row of the library beside the plain recipe of its backend.
fn compare(contenders: &[Contender], rows: &mut [Row]) {
    for (at, contender) in contenders.iter().enumerate() {
        let plain =
            contenders.iter().position(|it| it.is_plain() && it.backend == contender.backend);
        if let Some(plain) = plain
            && !contender.is_plain()
        {
            let share = rows[at].per_second.median / rows[plain].per_second.median;
            rows[at].set_figure("share of the plain recipe", share);
        }
    }
}

/// Sets the goals of these rows.
fn set_goals(workload: Workload, clients: usize, rows: &mut [Row]) {
    let rates: Vec<(String, f64)> =
        rows.iter().map(|row| (row.name.clone(), row.per_second.median)).collect();
    let plain = |backend| {
        let name = name(backend, workload, clients, recipe::SET_NX);
        rates.iter().find(|(row, _)| *row == name)
    };
    let beside = |(name, rate): &(String, f64)| format!("{name}: {rate:.0}/s");
    for row in rows {
        let rate = row.per_second.median;
        let is = |backend| row.name == name(backend, workload, clients, contender::LIBRARY);
        let mut goals = Vec::new();
        if is(Backend::Redis)
            && workload == Workload::Pairs
            && let Some(bound) = plain(Backend::Redis)
        {
            let share = rate / bound.1;
            goals.push(Goal::at_least("share of the recipe", 0.9, share, beside(bound)));
        }
        if is(Backend::Coordinator) {
            match (workload, clients) {
                (Workload::HandOver, _) => {
                    goals.push(Goal::at_least("hand-overs a second", 4_000.0, rate, "none"));
                }
                (Workload::Pairs, 1) => {
                    let p50 = row.latency.map_or(f64::NAN, |all| all.p50_us);
                    goals.push(Goal::at_most("p50 µs", 350.0, p50, "none"));
                }
                (Workload::Pairs, _) => {
                    for (backend, times) in [(Backend::RedisAlways, 2.0), (Backend::Redis, 0.65)] {
                        let Some(bound) = plain(backend) else { continue };
                        let reached = rate / bound.1;
                        goals.push(Goal::at_least("times Redis", times, reached, beside(bound)));
                    }
                }
            }
        }
        row.goals = goals;
    }
}

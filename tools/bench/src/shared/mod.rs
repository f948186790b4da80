//! `shared`: coordinators on a database that several can share, beside a bare insert of the same
//! bytes into the same database, and how long clients wait when the leader changes.

mod cluster;
mod failover;
mod insert;

use anyhow::{Context, Result};
use clap::Args;
use handfast_core::Epoch;
use handfast_server::store::{CoordinatorNode, SqlSettings, SqlStore, Store};
use sqlx::{ConnectOptions, MySql, Postgres};

use crate::at::{BenchDatabase, Fresh};
use crate::goal::Goal;
use crate::idle::IdleWatch;
use crate::load::{self, Load, Pace, Shape, Wire};
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::statistics::Latencies;
use crate::usage::Process;
use crate::{at, core};

use cluster::SharedCluster;
use insert::BareTable;

/// The records of a batch that is compared with a bare insert.
const RECORDS: usize = 64;
/// Globals at a time.
const IN_FLIGHT: usize = 64;
/// The batches that a global waits for, one after the other, if its caller asks for the commit: of
/// each of its two registrations, and of its decision. Where the last branch decides, it waits for
/// two.
const BATCHES_A_GLOBAL: f64 = 3.0;

/// `handfast-bench shared`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The MySQL or MariaDB server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The PostgreSQL server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_POSTGRES")]
    postgres: Option<String>,
    /// Unfinished globals in the store while the leader changes.
    #[arg(long, default_value_t = 10_000)]
    globals: u64,
    /// Changes of the leader of each kind.
    #[arg(long, default_value_t = 10)]
    changes: usize,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

/// Measures each database with a known server.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("shared");
    if let Some(url) = &options.postgres {
        options.measure_on::<Postgres>(url, &mut report).await.context("PostgreSQL")?;
    }
    if let Some(url) = &options.mysql {
        options.measure_on::<MySql>(url, &mut report).await.context("MySQL")?;
    }
    Ok(report)
}

impl Options {
    async fn measure_on<DB: BareTable>(&self, url: &str, report: &mut Report) -> Result<()> {
        self.speeds::<DB>(url, report).await?;
        self.globals_on::<DB>(url, report).await?;
        for row in failover::measure::<DB>(url, self.globals, self.changes, &self.place).await? {
            report.push(row);
        }
        Ok(())
    }

    /// Measures batches beside bare inserts.
    async fn speeds<DB: BareTable>(&self, url: &str, report: &mut Report) -> Result<()> {
        let directory = self.place.directory()?;
        let fresh = DB::create(url, directory.path(), 2).await?;
        let store = open::<DB>(&fresh).await?;
        let (epoch, _) = store.lead(Epoch(1)).await?;
        let batch = core::changes(RECORDS)?;
        store.commit(epoch, batch.clone()).await?;
        let stored = DB::newest_batches(&fresh.pool).await.context("reading a batch")?;
        let bytes = stored.first().context("the journal is empty")?;
        let plain = SqlStore::decompressed(bytes);
        DB::make_table(&fresh.pool).await?;
        let mut number = 0;
        let names = [
            format!("{}, bare insert of {} bytes", DB::PRODUCT, plain.len()),
            format!("{}, batch of {RECORDS} records", DB::PRODUCT),
            format!("{}, bare insert of {} bytes, as it is stored", DB::PRODUCT, bytes.len()),
        ];
        let mut rows = self
            .measure
            .rows(&names, async |which| {
                if which == 1 {
                    let commit = async || Ok(store.commit(epoch, batch.clone()).await?);
                    return self.repeat(commit).await;
                }
                let bytes = if which == 0 { &*plain } else { bytes };
                let insert = async || {
                    number += 1;
                    Ok(DB::insert(&fresh.pool, number, bytes).await?)
                };
                self.repeat(insert).await
            })
            .await?;
        store.resign(epoch).await;
        fresh.remove(url).await?;
        let bare = rows[0].per_second.median;
        let goal = |row: &mut Row| {
            let share = row.per_second.median / bare;
            row.goals.push(Goal::at_least(
                "share of the bare insert",
                0.8,
                share,
                per_second(bare),
            ));
        };
        goal(&mut rows[1]);
        rows.into_iter().for_each(|row| report.push(row));
        Ok(())
    }

    /// Repeats an operation for the time of a run.
    async fn repeat(
        &self,
        mut operation: impl AsyncFnMut() -> Result<()>,
    ) -> Result<(Sample, f64)> {
        let warm = std::time::Instant::now();
        while warm.elapsed() < self.measure.warm_up() {
            operation().await?;
        }
        let (watch, own) = (IdleWatch::start()?, Process::own().cpu()?);
        // PostgreSQL has a process for each connection, which ends with it.
        let servers: Vec<(Process, std::time::Duration)> = Process::named(&at::DATABASE_PROGRAMS)?
            .into_iter()
            .filter_map(|server| Some((server, server.cpu().ok()?)))
            .collect();
        let mut latencies = Latencies::default();
        let (mut done, started) = (0_u32, std::time::Instant::now());
        while started.elapsed() < self.measure.length() {
            let begun = std::time::Instant::now();
            operation().await?;
            latencies.record(begun.elapsed());
            done += 1;
        }
        let per_second = f64::from(done) / started.elapsed().as_secs_f64();
        let spent = servers.iter().map(|(server, before)| {
            let now = server.cpu().unwrap_or(*before);
            now.saturating_sub(*before)
        });
        let ours = Process::own().cpu()? - own + spent.sum::<std::time::Duration>();
        Ok((Sample::new(per_second, latencies), watch.foreign_cores(ours)?))
    }

    /// Measures globals on a coordinator that shares the database with none, beside bare inserts of
    /// the batches that they made.
    async fn globals_on<DB: BareTable>(&self, url: &str, report: &mut Report) -> Result<()> {
        let names = [
            format!("{}, {IN_FLIGHT} globals at a time", DB::PRODUCT),
            format!("{}, {IN_FLIGHT}, decided by the last branch", DB::PRODUCT),
            format!("{}, bare insert of their batches", DB::PRODUCT),
            format!("{}, the same as they are stored", DB::PRODUCT),
        ];
        let mut batches = Vec::new();
        let mut rows = self
            .measure
            .rows(&names, async |which| match which {
                0 | 1 => {
                    let shape = Shape { last_decides: which == 1, ..Shape::of_one_row() };
                    let (measured, stored) = self.globals_once::<DB>(url, shape).await?;
                    batches = stored;
                    Ok(measured)
                }
                2 => {
                    let plain = batches.iter().map(|batch| SqlStore::decompressed(batch).into());
                    self.inserts_of::<DB>(url, &plain.collect::<Vec<Vec<u8>>>()).await
                }
                _ => self.inserts_of::<DB>(url, &batches).await,
            })
            .await?;
        let bare = rows[2].per_second.median;
        let bound = bare * IN_FLIGHT as f64 / BATCHES_A_GLOBAL;
        let what = "share of 64 bare inserts / 3";
        let asked = rows[0].per_second.median / bound;
        rows[0].set_figure(what, asked);
        let share = rows[1].per_second.median / bound;
        rows[1].goals.push(Goal::at_least(what, 0.6, share, per_second(bare)));
        let mean = |bytes: usize| bytes as f64 / batches.len().max(1) as f64;
        let stored = batches.iter().map(Vec::len).sum();
        let plain = batches.iter().map(|batch| SqlStore::decompressed(batch).len()).sum();
        rows[2].set_figure("bytes of a batch", mean(plain));
        rows[3].set_figure("bytes of a batch", mean(stored));
        rows.into_iter().for_each(|row| report.push(row));
        Ok(())
    }

    /// Runs the globals once, and returns their latest batches as well.
    async fn globals_once<DB: BareTable>(
        &self,
        url: &str,
        shape: Shape,
    ) -> Result<((Sample, f64), Vec<Vec<u8>>)> {
        let pace = Pace::Closed { in_flight: IN_FLIGHT };
        let load = Load { wire: Wire::Stream, connections: 1, shape, pace, behind_max: None };
        let cluster = SharedCluster::<DB>::start(url, &self.place, 1).await?;
        let target = cluster.leader().await?.target()?;
        let (warm_up, length) = (self.measure.warm_up(), self.measure.length());
        let measured = load::measure(target, &load, warm_up, length).await;
        let batches = DB::newest_batches(cluster.pool()).await.context("reading the batches");
        cluster.end(url).await?;
        Ok((measured?, batches?))
    }

    /// Inserts these batches again and again into a table of a fresh database.
    async fn inserts_of<DB: BareTable>(
        &self,
        url: &str,
        batches: &[Vec<u8>],
    ) -> Result<(Sample, f64)> {
        let directory = self.place.directory()?;
        let fresh = DB::create(url, directory.path(), 1).await?;
        DB::make_table(&fresh.pool).await?;
        let mut batches = batches.iter().cycle();
        let mut number = 0;
        let insert = async || {
            number += 1;
            let batch = batches.next().context("the globals have stored no batch")?;
            Ok(DB::insert(&fresh.pool, number, batch).await?)
        };
        let measured = self.repeat(insert).await;
        fresh.remove(url).await?;
        measured
    }
}

async fn open<DB: BenchDatabase>(fresh: &Fresh<DB>) -> Result<SqlStore> {
    let node = CoordinatorNode {
        id: "bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        grpc: "127.0.0.1:1".to_owned(),
        admin: "127.0.0.1:2".to_owned(),
        seata: None,
    };
    let url = fresh.pool.connect_options().to_url_lossy();
    Ok(SqlStore::open(SqlSettings::new(url, node)).await?)
}

fn per_second(bare: f64) -> String {
    format!("bare inserts: {bare:.0}/s")
}

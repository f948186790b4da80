//! The setup: two databases, a coordinator, and a participant of every mode in each database.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast::saga::{Saga, SagaStatus, SagaStep};
use handfast::{AtResource, Handfast, TccResource};
use rand::RngExt;
use rand::rngs::SmallRng;
use tempfile::TempDir;

use super::Mode;
use super::actions::{Change, Held, Step};
use super::database::{Column, ModesDatabase, XaBranch};
use super::events::EventFlow;
use crate::at::{DATABASE_PROGRAMS, Fresh, ITEMS};
use crate::child::Server;
use crate::measure::RunDirectory;
use crate::sample::Sample;
use crate::usage::Process;
use crate::workers::{OperationEnd, work};

/// The number of connections for background work: phase two, steps, the relay and the consumer.
const SPARE_CONNECTIONS: usize = 8;
/// How long to wait for the end of a saga.
const SAGA_ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The action of the participants of sagas.
const CHANGE: &str = "change";

/// The servers and participants that one database product is measured with.
pub(crate) struct ModesSetup<DB: ModesDatabase> {
    first: Side<DB>,
    second: Side<DB>,
    handfast: Handfast,
    coordinator: Server,
    events: EventFlow<DB>,
    sagas: AtomicU64,
    _directory: TempDir,
}

/// One database with its participants.
struct Side<DB: ModesDatabase> {
    fresh: Fresh<DB>,
    at: AtResource<DB>,
    tcc: TccResource<Held<DB>>,
    xa: Option<Box<dyn XaBranch>>,
    /// Its resource in the steps of sagas.
    saga: String,
}

impl<DB: ModesDatabase> Side<DB> {
    async fn open(
        url: &str,
        folder: &Path,
        clients: usize,
        handfast: &Handfast,
        name: &str,
    ) -> Result<Self> {
        let connections = u32::try_from(clients + SPARE_CONNECTIONS)?;
        let fresh = DB::create(url, folder, connections).await?;
        fresh.fill().await?;
        let held = "ALTER TABLE item ADD COLUMN held BIGINT NOT NULL DEFAULT 0";
        DB::execute(&fresh.pool, held.to_owned()).await?;
        handfast.migrate(&fresh.pool).await?;
        let pool = &fresh.pool;
        let steps = handfast.saga_participant(name, pool.clone());
        steps.action(CHANGE, Step::new()).register();
        Ok(Self {
            at: handfast.at(pool.clone()).await?,
            tcc: handfast.tcc(format!("{name}-held"), pool.clone(), Held::new()).await?,
            xa: DB::xa(handfast, pool.clone(), name.to_owned()).await?,
            saga: name.to_owned(),
            fresh,
        })
    }

    async fn local(&self, item: i64, by: i64) -> Result<()> {
        let mut local = DB::begin_local(&self.fresh.pool).await?;
        DB::change(&mut local, Column::Count, item, by).await?;
        Ok(local.commit().await?)
    }

    async fn branch(&self, item: i64, by: i64) -> Result<()> {
        let mut local = self.at.begin().await?;
        DB::change_in_branch(&mut local, item, by).await?;
        Ok(local.commit().await?)
    }

    async fn xa(&self, item: i64, by: i64) -> Result<()> {
        let xa = self.xa.as_ref().context("the database has no two-phase commit")?;
        Ok(xa.change(item, by).await?)
    }
}

impl<DB: ModesDatabase> ModesSetup<DB> {
    /// Starts and connects everything.
    pub(crate) async fn open(url: &str, place: &RunDirectory, clients: usize) -> Result<Self> {
        let directory = place.directory()?;
        let folder: PathBuf = directory.path().to_owned();
        let coordinator = Server::coordinator(&folder.join("coordinator"), &[]).await?;
        let handfast = Handfast::connect(coordinator.endpoint()).application("bench").await?;
        let first = Side::open(url, &folder, clients, &handfast, "first").await?;
        let second = Side::open(url, &folder, clients, &handfast, "second").await?;
        let events = EventFlow::start(&first.fresh.pool, &second.fresh.pool);
        let sagas = AtomicU64::new(0);
        Ok(Self { first, second, handfast, coordinator, events, sagas, _directory: directory })
    }

    /// Ends everything.
    pub(crate) async fn close(self, url: &str) -> Result<()> {
        self.events.close().await?;
        self.handfast.close().await;
        self.first.fresh.remove(url).await?;
        self.second.fresh.remove(url).await
    }

    /// Measures one mode.
    pub(super) async fn measure(
        &self,
        mode: Mode,
        clients: usize,
        times: (Duration, Duration),
    ) -> Result<(Sample, f64)> {
        let mut servers = Process::named(&DATABASE_PROGRAMS)?;
        servers.push(self.coordinator.process()?);
        let transfer = async |_, random: &mut SmallRng| {
            let mut item = || random.random_range(0..ITEMS);
            self.transfer(mode, item(), item()).await?;
            Ok(OperationEnd::Well)
        };
        work(clients, times, &servers, transfer).await
    }

    /// Takes one from a row of the first database and gives it to a row of the second.
    async fn transfer(&self, mode: Mode, from: i64, to: i64) -> Result<()> {
        let (first, second) = (&self.first, &self.second);
        match mode {
            Mode::Local => {
                first.local(from, -1).await?;
                second.local(to, 1).await
            }
            Mode::Saga => self.saga(from, to).await,
            Mode::Outbox => self.events.transfer(from, to).await,
            Mode::At => {
                self.global(async {
                    first.branch(from, -1).await?;
                    second.branch(to, 1).await
                })
                .await
            }
            Mode::Tcc => {
                self.global(async {
                    first.tcc.try_(&Change { item: from, by: -1 }).await?;
                    Ok(second.tcc.try_(&Change { item: to, by: 1 }).await?)
                })
                .await
            }
            Mode::Xa => {
                self.global(async {
                    first.xa(from, -1).await?;
                    second.xa(to, 1).await
                })
                .await
            }
        }
    }

    /// Runs work in a global transaction.
    async fn global(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let global = self.handfast.transaction("bench").begin().await?;
        global.scope(work).await?;
        Ok(global.commit().await?)
    }

    async fn saga(&self, from: i64, to: i64) -> Result<()> {
        let key = self.sagas.fetch_add(1, Ordering::Relaxed).to_string();
        let take = SagaStep::compensable("take", &self.first.saga, CHANGE);
        let give = SagaStep::pivot("give", &self.second.saga, CHANGE);
        let saga = Saga::new("transfer")
            .step(take.input(&Change { item: from, by: -1 }))
            .step(give.input(&Change { item: to, by: 1 }));
        let report = self.handfast.start_saga(key, saga).await?.ended(SAGA_ENDS_WITHIN).await?;
        ensure!(report.status() == SagaStatus::Completed, "the saga is {:?}", report.status());
        Ok(())
    }
}

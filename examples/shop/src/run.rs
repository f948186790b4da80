//! One run from its parts: coordinator, databases, services, customers, proof.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cli::Options;
use crate::client;
use crate::coordinator::{ChildCoordinators, Coordinator, CoordinatorDatabase};
use crate::crash::{CrashedCoordinators, crash_along};
use crate::database::{Databases, Server};
use crate::example::{Example, Site};
use crate::input::{Input, Order};
use crate::proof::{Holdings, Leftovers};
use crate::report::{Measured, Report, Tally};

/// Runs the orders and reports. What was started is stopped and removed, also after a failure.
pub(crate) async fn run(example: &impl Example, options: &Options) -> Result<Report> {
    let input = Input::read(options)?;
    let server = Server::parse(&options.database)?;
    example.accept(server.kind())?;
    let folder = TempDir::with_prefix("handfast-orders-")?;
    let shared = CoordinatorDatabase::create(&server, options, folder.path()).await?;
    let run = Run { example, options, input: &input };
    let ran = Box::pin(run.with_coordinator(server.clone(), shared.as_ref(), folder.path())).await;
    let removed = match shared {
        Some(shared) => shared.remove(&server).await,
        None => Ok(()),
    };
    let report = ran?;
    removed.context("removing the database of the coordinators")?;
    Ok(report)
}

/// One run of an example.
struct Run<'run, E> {
    example: &'run E,
    options: &'run Options,
    input: &'run Input,
}

impl<E: Example> Run<'_, E> {
    async fn with_coordinator(
        &self,
        server: Server,
        shared: Option<&CoordinatorDatabase>,
        folder: &Path,
    ) -> Result<Report> {
        let data_dir = folder.join("coordinator");
        let mut coordinator = Coordinator::start(E::WORDS, self.options, &data_dir, shared).await?;
        let ran = Box::pin(self.with_databases(server, &mut coordinator, folder)).await;
        let stopped = coordinator.stop().await;
        let report = ran?;
        stopped?;
        Ok(report)
    }

    async fn with_databases(
        &self,
        server: Server,
        coordinator: &mut Coordinator,
        folder: &Path,
    ) -> Result<Report> {
        let databases = Databases::create(server, folder, self.options.concurrency).await?;
        let ran = tokio::select! {
            ran = Box::pin(self.with_services(coordinator, &databases)) => ran,
            // A run that is interrupted must leave no databases behind.
            asked = asked_to_stop() => asked.and(Err(anyhow!("interrupted"))),
        };
        let removed = databases.remove().await;
        let report = ran?;
        removed.context("removing the databases")?;
        Ok(report)
    }

    async fn with_services(
        &self,
        coordinator: &mut Coordinator,
        databases: &Databases,
    ) -> Result<Report> {
        let (options, input) = (self.options, self.input);
        let balance_cents = i64::from(options.balance);
        let coordinators = &coordinator.urls;
        let site = Site { coordinators, databases, input, balance_cents };
        let services = self.example.start(&site).await?;
        let before = Holdings::read(databases, E::BOOKS).await?;
        let http = reqwest::Client::new();

        let children = coordinator.take_children();
        let orders = Orders { http: &http, service: &services.order.url, options };
        let started = Instant::now();
        let (tally, crashed) = orders.place_all(self.example, &input.orders, children).await?;
        let took = started.elapsed();

        let left = Leftovers::settle(self.example, databases, coordinator, &http).await?;
        let after = Holdings::read(databases, E::BOOKS).await?;
        services.stop().await?;
        let mut away_max = Duration::ZERO;
        if let Some(mut crashed) = crashed {
            away_max = crashed.away_max;
            crashed.children.kill().await?;
        }
        let coordinator_restarts = options.crash_coordinator;
        let measured = Measured { before, after, left, took, coordinator_restarts, away_max };
        Ok(tally.into_report(measured))
    }
}

/// Returns on Ctrl-C and SIGTERM.
async fn asked_to_stop() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = terminate.recv() => Ok(()),
    }
}

/// The customers.
struct Orders<'run> {
    http: &'run reqwest::Client,
    service: &'run str,
    options: &'run Options,
}

impl Orders<'_> {
    /// Places every order, and kills the coordinator in between if there are children to kill. The
    /// example may disturb the services meanwhile.
    async fn place_all(
        &self,
        example: &impl Example,
        orders: &[Order],
        children: Option<ChildCoordinators>,
    ) -> Result<(Tally, Option<CrashedCoordinators>)> {
        let (ended, progress) = watch::channel(0);
        let (times, total) = (self.options.crash_coordinator, orders.len());
        let disturbed = example.disturb(total, progress.clone());
        let crashes = async {
            match children {
                Some(children) => crash_along(children, times, total, progress).await.map(Some),
                None => Ok(None),
            }
        };
        let placed = self.place_each(orders, &ended);
        let (tally, crashed, disturbed) = tokio::join!(placed, crashes, disturbed);
        disturbed.context("disturbing the services")?;
        Ok((tally?, crashed.context("crashing the coordinator")?))
    }

    async fn place_each(&self, orders: &[Order], ended: &watch::Sender<usize>) -> Result<Tally> {
        let bar = progress_bar(orders.len());
        let place = |order| client::place(self.http, self.service, order);
        let concurrency = usize::from(self.options.concurrency);
        let mut placed = futures::stream::iter(orders).map(place).buffer_unordered(concurrency);
        let mut tally = Tally::new()?;
        while let Some(order) = placed.next().await {
            tally.add(order);
            bar.inc(1);
            ended.send_modify(|ended| *ended += 1);
        }
        bar.finish_and_clear();
        Ok(tally)
    }
}

/// Returns a progress bar, which is shown only if standard error is a terminal.
fn progress_bar(orders: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(orders).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} orders, {per_sec}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

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
use crate::coordinator::{ChildCoordinator, Coordinator};
use crate::crash::crash_along;
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
    let mut coordinator = Coordinator::start(options, &folder.path().join("coordinator")).await?;
    let run = Run { example, options, input: &input };
    let ran = Box::pin(run.with_databases(server, &mut coordinator, folder.path())).await;
    let stopped = coordinator.stop().await;
    let report = ran?;
    stopped?;
    Ok(report)
}

/// One run of an example.
struct Run<'run, E> {
    example: &'run E,
    options: &'run Options,
    input: &'run Input,
}

impl<E: Example> Run<'_, E> {
    async fn with_databases(
        &self,
        server: Server,
        coordinator: &mut Coordinator,
        folder: &Path,
    ) -> Result<Report> {
        let databases = Databases::create(server, folder, self.options.concurrency).await?;
        let ran = tokio::select! {
            ran = Box::pin(self.with_services(coordinator, &databases)) => ran,
            // So that an impatient person leaves no databases behind.
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
        let site = Site { coordinator: &coordinator.url, databases, input, balance_cents };
        let services = self.example.start(&site).await?;
        let before = Holdings::read(databases, E::BOOKS).await?;
        let http = reqwest::Client::new();

        let child = coordinator.take_child();
        let orders = Orders { http: &http, service: &services.order.url, options };
        let started = Instant::now();
        let (tally, child) = orders.place_all(self.example, &input.orders, child).await?;
        let took = started.elapsed();

        let left = Leftovers::settle(self.example, databases, coordinator, &http).await?;
        let after = Holdings::read(databases, E::BOOKS).await?;
        services.stop().await?;
        if let Some(mut child) = child {
            child.kill().await?;
        }
        let coordinator_restarts = options.crash_coordinator;
        let measured = Measured { before, after, left, took, coordinator_restarts };
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
    /// Places every order, and kills the coordinator in between if there is a child to kill. What
    /// else is done meanwhile the example knows.
    async fn place_all(
        &self,
        example: &impl Example,
        orders: &[Order],
        child: Option<ChildCoordinator>,
    ) -> Result<(Tally, Option<ChildCoordinator>)> {
        let (ended, progress) = watch::channel(0);
        let (times, total) = (self.options.crash_coordinator, orders.len());
        let disturbed = example.disturb(total, progress.clone());
        let crashes = async {
            match child {
                Some(child) => crash_along(child, times, total, progress).await.map(Some),
                None => Ok(None),
            }
        };
        let placed = self.place_each(orders, &ended);
        let (tally, child, disturbed) = tokio::join!(placed, crashes, disturbed);
        disturbed.context("disturbing the services")?;
        Ok((tally?, child.context("crashing the coordinator")?))
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

/// On a terminal's standard error; nowhere else.
fn progress_bar(orders: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(orders).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} orders, {per_sec}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

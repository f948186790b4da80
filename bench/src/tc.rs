//! `tc`: globals against a coordinator of its own, in a process of its own, on a fresh directory.

use anyhow::{Result, bail};
use clap::Args;

use crate::child::Server;
use crate::load::{self, Load, Pace, Shape, Wire};
use crate::measure::{Measure, Place};
use crate::report::{Report, Row};
use crate::sample::Sample;

/// `handfast-bench tc`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How the client speaks.
    #[arg(long, value_enum, default_value = "stream")]
    wire: Wire,
    /// Closed loop: globals at a time, over all connections; may be given several times.
    #[arg(long, default_values_t = [1, 64, 256], conflicts_with = "rate")]
    in_flight: Vec<usize>,
    /// Open loop: globals a second instead; may be given several times. Latency counts from the
    /// moment at which a global was to begin.
    #[arg(long, value_name = "PER SECOND")]
    rate: Vec<f64>,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// The coordinator's store: embedded, or memory for comparison.
    #[arg(long, default_value = "embedded")]
    store: String,
    /// A setting of the coordinator, such as `engine.batch_max=1024`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: Place,
}

/// Measures each pace asked for.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("tc");
    for pace in options.paces()? {
        let connections = options.connections.max(1);
        let load = Load { wire: options.wire, connections, shape: options.shape, pace };
        let mut settings = vec![format!("store={}", options.store)];
        settings.extend(options.set.iter().cloned());
        report.push(row(&load, &options.measure, &options.place, &settings).await?);
    }
    Ok(report)
}

/// One row: a load on a fresh coordinator, as often as there are runs.
async fn row(load: &Load, measure: &Measure, place: &Place, settings: &[String]) -> Result<Row> {
    let name = name(load);
    measure.row(&name, async || once(load, measure, place, settings).await).await
}

/// What a row of [`once`] is called.
pub(crate) fn name(load: &Load) -> String {
    let Load { connections, pace, shape, wire } = load;
    let over = if *connections > 1 { format!(" on {connections}") } else { String::new() };
    format!("tc, {}, {pace}{over}, {shape}", wire.name())
}

/// A load on a fresh coordinator.
pub(crate) async fn once(
    load: &Load,
    measure: &Measure,
    place: &Place,
    settings: &[String],
) -> Result<(Sample, f64)> {
    let directory = place.directory()?;
    let server = Server::coordinator(directory.path(), settings).await?;
    load::measure(&server, load, measure.warm_up(), measure.length()).await
}

impl Options {
    fn paces(&self) -> Result<Vec<Pace>> {
        if let Some(rate) = self.rate.iter().find(|rate| !rate.is_normal() || **rate < 0.0) {
            bail!("{rate} globals a second are no load");
        }
        if self.rate.is_empty() {
            let closed = |&in_flight: &usize| Pace::Closed { in_flight: in_flight.max(1) };
            return Ok(self.in_flight.iter().map(closed).collect());
        }
        Ok(self.rate.iter().map(|&per_second| Pace::Open { per_second }).collect())
    }
}

//! `tc`: globals against a coordinator in a child process, on a fresh directory, or against any
//! server that speaks the protocol.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::child::Server;
use crate::load::{self, Load, Pace, Shape, Target, Wire};
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::usage::Process;

/// `handfast-bench tc`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The protocol of the client.
    #[arg(long, value_enum, default_value = "stream")]
    wire: Wire,
    /// Closed loop: globals at a time, over all connections; may be given several times.
    #[arg(long, default_values_t = [1, 64, 256], conflicts_with = "rate")]
    in_flight: Vec<usize>,
    /// Open loop: globals a second instead; may be given several times. Latency counts from the
    /// moment at which a global was due.
    #[arg(long, value_name = "PER SECOND")]
    rate: Vec<f64>,
    /// A server that runs already, instead of a child: any that speaks the protocol.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["store", "set"])]
    target: Option<String>,
    /// The id of its process, if it is on this machine, to measure its cost.
    #[arg(long, value_name = "ID", requires = "target")]
    target_process: Option<u32>,
    /// Begins no global while phase two is behind by this many branches. A server that replies to
    /// commits and defers their phase two then shows what it keeps up with.
    #[arg(long, value_name = "BRANCHES")]
    behind_max: Option<u64>,
    /// The number of connections.
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
    place: RunDirectory,
}

/// Measures each selected pace.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("tc");
    for pace in options.paces()? {
        let connections = options.connections.max(1);
        let Options { wire, shape, behind_max, .. } = *options;
        let load = Load { wire, connections, shape, pace, behind_max };
        report.push(options.row(&load).await?);
    }
    Ok(report)
}

/// Returns the name of a row of [`once`].
pub(crate) fn name(load: &Load) -> String {
    let Load { connections, pace, shape, wire, behind_max } = load;
    let over = if *connections > 1 { format!(" on {connections}") } else { String::new() };
    let behind = behind_max.map(|most| format!(", at most {most} behind")).unwrap_or_default();
    format!("tc, {}, {pace}{over}, {shape}{behind}", wire.name())
}

/// Runs a load on a fresh coordinator.
pub(crate) async fn once(
    load: &Load,
    measure: &Measure,
    place: &RunDirectory,
    settings: &[String],
) -> Result<(Sample, f64)> {
    let directory = place.directory()?;
    let server = match load.wire {
        Wire::Seata => Server::seata_coordinator(directory.path(), settings).await?,
        Wire::Stream | Wire::Unary => Server::coordinator(directory.path(), settings).await?,
    };
    load::measure(server.target()?, load, measure.warm_up(), measure.length()).await
}

impl Options {
    /// Measures one row: a load, as often as there are runs.
    async fn row(&self, load: &Load) -> Result<Row> {
        let (name, measure) = (name(load), &self.measure);
        if let Some(target) = self.target().await? {
            let name = format!("{name}, at {}", target.address);
            let (warm_up, length) = (measure.warm_up(), measure.length());
            let run = async || load::measure(target, load, warm_up, length).await;
            return measure.row(&name, run).await;
        }
        let mut settings = vec![format!("store={}", self.store)];
        settings.extend(self.set.iter().cloned());
        measure.row(&name, async || once(load, measure, &self.place, &settings).await).await
    }

    async fn target(&self) -> Result<Option<Target>> {
        let Some(name) = &self.target else { return Ok(None) };
        let mut found = tokio::net::lookup_host(name).await.with_context(|| name.clone())?;
        let address = found.next().with_context(|| format!("{name} has no address"))?;
        let process = self.target_process.map(Process::of).transpose()?;
        Ok(Some(Target { address, process }))
    }

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

//! The best that the machine allows, measured in the same run as what is compared with it.
//!
//! The echo server answers the frames that the coordinator answers, in the same sizes, and makes
//! durable what the coordinator makes durable, as one `fdatasync` for everything that has gathered.
//! It keeps no state and decides nothing: it is what would be left of a coordinator whose decisions
//! cost nothing.

mod answer;
mod echo;
mod log;
mod seata;
mod sync;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::child::Server;
use crate::load::{Load, Pace, Shape, Wire};
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::{load, unary_echo};

pub(crate) use echo::serve;

/// The name of a row of [`sync_once`].
pub(crate) const SYNC: &str = "fdatasync of 4 KiB in place";

/// The options of the echo server.
#[derive(Clone, Debug, Args)]
pub(crate) struct EchoOptions {
    /// The address to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// The path of the log. Without one nothing is made durable.
    #[arg(long)]
    log: Option<PathBuf>,
    /// The protocol.
    #[arg(long, value_enum, default_value = "stream")]
    wire: Wire,
}

/// `handfast-bench bound`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Echo over the stream, durable and not.
    #[arg(long)]
    stream: bool,
    /// Echo by unary calls, not durable.
    #[arg(long)]
    unary: bool,
    /// `fdatasync` alone.
    #[arg(long)]
    sync: bool,
    /// The echo over one wire; may be given several times.
    #[arg(long, value_enum)]
    wire: Vec<Wire>,
    /// Requests in flight, or transactions over the stream; may be given several times.
    #[arg(long, default_values_t = [1, 64, 256])]
    in_flight: Vec<usize>,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

/// Measures the selected bounds, or all.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let all = !(options.stream || options.unary || options.sync) && options.wire.is_empty();
    let wants = |wire: Wire| all || options.wire.contains(&wire);
    let mut report = Report::new("bound");
    if all || options.sync {
        report.push(sync(&options.measure, &options.place).await?);
    }
    for &in_flight in &options.in_flight {
        for wire in [Wire::Stream, Wire::Seata] {
            if wants(wire) || (options.stream && wire == Wire::Stream) {
                let load = options.load(wire, in_flight);
                report.push(echoed(&load, &options.measure, None).await?);
                report.push(echoed(&load, &options.measure, Some(&options.place)).await?);
            }
        }
        if options.unary || wants(Wire::Unary) {
            let load = options.load(Wire::Unary, in_flight);
            report.push(unary(&load, &options.measure).await?);
        }
    }
    Ok(report)
}

async fn sync(measure: &Measure, place: &RunDirectory) -> Result<Row> {
    measure.row(SYNC, async || sync_once(measure, place).await).await
}

/// Writes and syncs 4 KiB in place, one write after the other.
pub(crate) async fn sync_once(measure: &Measure, place: &RunDirectory) -> Result<(Sample, f64)> {
    let (directory, time) = (place.directory()?, measure.length());
    let path = directory.path().join("sync");
    tokio::task::spawn_blocking(move || sync::measure(&path, time)).await?
}

async fn echoed(load: &Load, measure: &Measure, place: Option<&RunDirectory>) -> Result<Row> {
    let name = echo_name(load, place.is_some());
    measure.row(&name, async || echo_once(load, measure, place).await).await
}

/// Returns the name of a row of [`echo_once`].
pub(crate) fn echo_name(load: &Load, durable: bool) -> String {
    let durable = if durable { "durable" } else { "volatile" };
    format!("echo, {}, {durable}, {}", load.wire.name(), load.pace)
}

/// Measures transactions echoed over a connection of the load's wire. They are durable if there is
/// a place for a log.
pub(crate) async fn echo_once(
    load: &Load,
    measure: &Measure,
    place: Option<&RunDirectory>,
) -> Result<(Sample, f64)> {
    let directory = place.map(RunDirectory::directory).transpose()?;
    let log = directory.as_ref().map(|directory| directory.path().join("log"));
    let log = log.map(|log| vec!["--log".to_owned(), log.display().to_string()]);
    let wire = if load.wire == Wire::Seata { "seata" } else { "stream" };
    let flags = [log.unwrap_or_default(), vec!["--wire".to_owned(), wire.to_owned()]].concat();
    let server = Server::echo(&flags).await?;
    load::measure(server.target()?, load, measure.warm_up(), measure.length()).await
}

async fn unary(load: &Load, measure: &Measure) -> Result<Row> {
    let name = unary_name(load);
    measure.row(&name, async || unary_once(load, measure).await).await
}

/// Returns the name of a row of [`unary_once`].
pub(crate) fn unary_name(load: &Load) -> String {
    format!("echo, unary, {}", load.pace)
}

/// Measures registrations echoed by unary calls.
pub(crate) async fn unary_once(load: &Load, measure: &Measure) -> Result<(Sample, f64)> {
    let server = Server::echo(&[]).await?;
    unary_echo::measure(&server, load, (measure.warm_up(), measure.length())).await
}

impl Options {
    fn load(&self, wire: Wire, in_flight: usize) -> Load {
        let pace = Pace::Closed { in_flight };
        Load { wire, connections: self.connections, shape: self.shape, pace, behind_max: None }
    }
}

//! `peers`: Handfast beside other programs that do the same, each job in turns in one run on one
//! machine.
//!
//! The programs are those that package registries have: Seata Server and Seata's Java client,
//! Redisson, Curator. Everything is started here but the database server.

mod wire;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use handfast_interop::{LockClient, seata_server};

use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::{at, locks};

/// How many times as fast as a peer Handfast is.
pub(crate) const TIMES: &str = "Handfast ÷ this";
/// A JVM that has run for so long gets no faster.
const JVM_WARM_UP_MAX: Duration = Duration::from_secs(600);

/// `handfast-bench peers`.
#[derive(Debug, Args)]
#[command(mut_arg("seconds", |argument| argument.default_value("5")))]
pub(crate) struct Options {
    /// A job; may be given several times. Without any, all.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// The MySQL or MariaDB server for `at`, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The program that Redis servers are started with.
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis_server: PathBuf,
    /// Clients of `at`; may be given several times.
    #[arg(long, default_values_t = [1, 8, 32])]
    clients: Vec<usize>,
    /// Seconds that a program in Java gets in place of the warm-up when it has just started: a JVM
    /// is slow until it has compiled what is run often. At most 600.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    jvm_warm_up: f64,
    /// Branches of `at` keep their connections, as the pool in Java does. Plain transactions in
    /// Rust give theirs back.
    #[arg(long)]
    keep_connections: bool,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Coordinators over Seata's wire, with 64 globals in flight.
    SeataWire,
    /// Globals of one update in AT mode, end to end.
    At,
    /// Locks on Redis and ZooKeeper.
    Locks,
}

/// Measures the selected parts.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let parts = match &options.part[..] {
        [] => Part::value_variants(),
        parts => parts,
    };
    // Before anything is measured: a build keeps the machine busy, and may fail.
    parts.iter().try_for_each(|part| part.build())?;
    let mut report = Report::new("peers");
    for part in parts {
        let rows = match part {
            Part::SeataWire => options.seata_wire().await,
            Part::At => options.at().await,
            Part::Locks => options.locks().await,
        };
        // The other parts took long, and are reported all the same.
        let rows = rows.unwrap_or_else(|error| vec![Row::failed(&format!("{part:?}"), &error)]);
        rows.into_iter().for_each(|row| report.push_to(part.title(), row));
    }
    Ok(report)
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Self::SeataWire => "Coordinators over Seata's wire: globals of two branches of one row",
            Self::At => "AT end to end: globals of one update by its key",
            Self::Locks => "Locks: pairs of acquire and release, hand-overs of one lock",
        }
    }

    /// Fetches and builds the programs of others.
    fn build(self) -> Result<()> {
        match self {
            Self::SeataWire => seata_server::build(),
            Self::At => at::build_peers(),
            Self::Locks => LockClient::build(),
        }
    }
}

impl Options {
    async fn seata_wire(&self) -> Result<Vec<Row>> {
        wire::rows(&self.measure, &self.place, self.jvm_warm_up()).await
    }

    async fn at(&self) -> Result<Vec<Row>> {
        let url = self.mysql.as_deref().context("--mysql names no server")?;
        let (measure, place) = (&self.measure, &self.place);
        let keep_connections = self.keep_connections;
        let options = at::ProductOptions { url, measure, place, keep_connections };
        options.peers(&self.clients, self.jvm_warm_up()).await
    }

    async fn locks(&self) -> Result<Vec<Row>> {
        let (measure, place) = (&self.measure, &self.place);
        locks::peers(&self.redis_server, measure, place, self.jvm_warm_up()).await
    }

    fn jvm_warm_up(&self) -> Duration {
        // A time that is none, such as a negative one, is no warm-up.
        let asked = Duration::try_from_secs_f64(self.jvm_warm_up).unwrap_or_default();
        asked.min(JVM_WARM_UP_MAX)
    }
}

/// Sets how many times as fast as a peer Handfast is.
pub(crate) fn set_times(handfast_per_second: f64, peer: &mut Row) {
    peer.set_figure(TIMES, handfast_per_second / peer.per_second.median);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jvm_warms_up_for_a_time_within_limits() {
        let parse = |seconds: &str| {
            #[derive(clap::Parser)]
            struct Line {
                #[command(flatten)]
                options: Options,
            }
            let line = ["peers", "--jvm-warm-up", seconds];
            <Line as clap::Parser>::try_parse_from(line).unwrap().options
        };
        assert_eq!(parse("3").jvm_warm_up(), Duration::from_secs(3));
        assert_eq!(parse("1e9").jvm_warm_up(), Duration::from_secs(600));
        assert_eq!(parse("NaN").jvm_warm_up(), Duration::ZERO);
        assert_eq!(parse("3").measure.length(), Duration::from_secs(5));
    }
}

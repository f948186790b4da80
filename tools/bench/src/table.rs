//! `table`: every goal of this project beside its bound, measured in turns in the same run, in one
//! command.

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::goal::Goal;
use crate::load::{Load, Pace, Shape, Wire};
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};
use crate::{at, bound, child, recovery, tc};

/// `handfast-bench table`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A part of the table; may be given several times. Without any, the whole table.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// The MySQL or MariaDB server; without one its rows are left out.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The PostgreSQL server; without one its rows are left out.
    #[arg(long, env = "HANDFAST_TEST_POSTGRES")]
    postgres: Option<String>,
    /// Unfinished globals of the recovery and open ones of the core.
    #[arg(long, default_value_t = 1_000_000)]
    globals: u64,
    /// Clients of hot rows.
    #[arg(long, default_value_t = 32)]
    hot_clients: usize,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput over the stream and by unary calls.
    Load,
    /// The same over Seata's wire.
    Seata,
    /// One durable global alone.
    Alone,
    /// Deciding and encoding, memory of open globals.
    Core,
    /// From `kill -9` to the first transaction.
    Recovery,
    /// Branches and globals over databases.
    At,
    /// Hot rows.
    Hot,
}

const ALL: [Part; 7] =
    [Part::Load, Part::Seata, Part::Alone, Part::Core, Part::Recovery, Part::At, Part::Hot];

/// Measures the selected parts.
pub(crate) async fn run(options: &Options) -> Report {
    let mut report = Report::new("table");
    let parts = if options.part.is_empty() { &ALL[..] } else { &options.part };
    for part in parts {
        let rows = match part {
            Part::Load => options.loads().await,
            Part::Seata => options.seata().await,
            Part::Alone => options.alone().await,
            Part::Core => options.core(),
            Part::Recovery => options.recovery().await,
            Part::At => options.at().await,
            Part::Hot => options.hot().await,
        };
        match rows {
            Ok(rows) => rows.into_iter().for_each(|row| report.push(row)),
            // The other parts took long, and are reported all the same.
            Err(error) => report.push(Row::failed(&format!("{part:?}"), &error)),
        }
    }
    report
}

fn load(wire: Wire, in_flight: usize) -> Load {
    let pace = Pace::Closed { in_flight };
    Load { wire, connections: 1, shape: Shape::of_one_row(), pace, behind_max: None }
}

impl Options {
    async fn loads(&self) -> Result<Vec<Row>> {
        let (stream, wide) = (load(Wire::Stream, 64), load(Wire::Stream, 256));
        let unary = load(Wire::Unary, 64);
        let names = [
            bound::echo_name(&stream, true),
            tc::name(&stream),
            bound::echo_name(&wide, true),
            tc::name(&wide),
            bound::unary_name(&unary),
            tc::name(&unary),
        ];
        let (measure, place) = (&self.measure, &self.place);
        let run = async |which| match which {
            0 => bound::echo_once(&stream, measure, Some(place)).await,
            1 => tc::once(&stream, measure, place, &[]).await,
            2 => bound::echo_once(&wide, measure, Some(place)).await,
            3 => tc::once(&wide, measure, place, &[]).await,
            4 => bound::unary_once(&unary, measure).await,
            _ => tc::once(&unary, measure, place, &[]).await,
        };
        let mut rows = measure.rows(&names, run).await?;
        set_load_goals(&mut rows);
        Ok(rows)
    }

    async fn seata(&self) -> Result<Vec<Row>> {
        let (narrow, wide) = (load(Wire::Seata, 64), load(Wire::Seata, 256));
        let names = [
            bound::echo_name(&narrow, true),
            tc::name(&narrow),
            bound::echo_name(&wide, true),
            tc::name(&wide),
        ];
        let (measure, place) = (&self.measure, &self.place);
        let run = async |which| match which {
            0 => bound::echo_once(&narrow, measure, Some(place)).await,
            1 => tc::once(&narrow, measure, place, &[]).await,
            2 => bound::echo_once(&wide, measure, Some(place)).await,
            _ => tc::once(&wide, measure, place, &[]).await,
        };
        let mut rows = measure.rows(&names, run).await?;
        set_seata_goals(&mut rows);
        Ok(rows)
    }

    async fn alone(&self) -> Result<Vec<Row>> {
        let one = load(Wire::Stream, 1);
        let (measure, place) = (&self.measure, &self.place);
        let names = [bound::SYNC.to_owned(), bound::echo_name(&one, false), tc::name(&one)];
        let run = async |which| match which {
            0 => bound::sync_once(measure, place).await,
            1 => bound::echo_once(&one, measure, None).await,
            _ => tc::once(&one, measure, place, &[]).await,
        };
        let mut rows = measure.rows(&names, run).await?;
        if let [sync, echo, alone] = &mut rows[..] {
            // The echo of a transaction is four round trips: begin, two branches, the end.
            let bound_us = 3.0 * sync.p50_us.median + 5.0 * echo.p50_us.median / 4.0;
            let bound = format!("3 fdatasync + 5 round trips = {bound_us:.0} µs");
            let reached = alone.p50_us.median / bound_us;
            alone.goals.push(Goal::at_most("p50 beside the bound", 1.4, reached, bound));
        }
        Ok(rows)
    }

    /// Runs a part in a process of its own, whose memory nothing else has used.
    fn core(&self) -> Result<Vec<Row>> {
        let globals = self.globals.to_string();
        let output = child::own_program()?
            .args(["core", "--json", "--open", "64", "--open", &globals])
            .args(self.measure.flags())
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("running the core's benchmark")?;
        ensure!(output.status.success(), "the core's benchmark failed");
        let report: Report = serde_json::from_slice(&output.stdout).context("its report")?;
        let mut rows = report.rows;
        if let Some(row) = rows.last_mut() {
            let rate = row.per_second.median;
            row.goals.push(Goal::at_least("globals a second", 800_000.0, rate, "none"));
            let filled = row.figure("resident MB when filled").unwrap_or(f64::NAN);
            row.goals.push(Goal::at_most("resident MB", 400.0, filled, "none"));
        }
        Ok(rows)
    }

    async fn recovery(&self) -> Result<Vec<Row>> {
        let mut row = recovery::measure(self.globals, 2, &self.place).await?;
        let seconds = row.figure("seconds to the first transaction").unwrap_or(f64::NAN);
        let read = row.figure("seconds to read the same bytes").unwrap_or(f64::NAN);
        let bound = format!("reading the same bytes took {read:.2} s");
        row.goals.push(Goal::at_most("seconds to the first transaction", 10.0, seconds, bound));
        let idle = row.figure("resident MB idle").unwrap_or(f64::NAN) / 1.048_576;
        row.goals.push(Goal::at_most("resident MiB idle", 20.0, idle, "none"));
        Ok(vec![row])
    }

    async fn at(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (product, url) in self.databases() {
            let (measure, place) = (&self.measure, &self.place);
            let options = at::ProductOptions { url, measure, place, keep_connections: false };
            rows.extend(options.goals(product).await?);
        }
        Ok(rows)
    }

    async fn hot(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let with_rows = |product: &at::Product| *product != at::Product::Sqlite;
        for (product, url) in self.databases().into_iter().filter(|(it, _)| with_rows(it)) {
            let (measure, place) = (&self.measure, &self.place);
            let options = at::ProductOptions { url, measure, place, keep_connections: false };
            rows.extend(options.hot_goals(product, self.hot_clients).await?);
        }
        Ok(rows)
    }

    fn databases(&self) -> Vec<(at::Product, &str)> {
        let servers = [(at::Product::Mysql, &self.mysql), (at::Product::Postgres, &self.postgres)];
        let known =
            servers.into_iter().filter_map(|(product, url)| Some((product, url.as_deref()?)));
        known.chain([(at::Product::Sqlite, "")]).collect()
    }
}

/// Returns the goals of the rows of [`Options::loads`], in their order.
fn set_load_goals(rows: &mut [Row]) {
    let [echo, stream, wide_echo, wide, unary_echo, unary] = rows else { return };
    let rate = |row: &Row| row.per_second.median;
    let beside = |row: &Row| format!("{}: {:.0}/s", row.name, rate(row));
    let p99 = |row: &Row| row.latency.map_or(f64::NAN, |all| all.p99_us / 1e3);
    let server = |row: &Row| row.cpu_us.map_or(f64::NAN, |cpu| cpu.server);
    let share = rate(stream) / rate(echo);
    stream.goals = vec![
        Goal::at_least("share of the echo", 0.7, share, beside(echo)),
        Goal::at_least("times unary", 4.0, rate(stream) / rate(unary), beside(unary)),
        Goal::at_least("globals a second", 57_000.0, rate(stream), "for orientation"),
        Goal::at_most("p99 ms", 2.0, p99(stream), "for orientation"),
        Goal::at_most("server CPU µs", 14.0, server(stream), "for orientation"),
    ];
    let share = rate(wide) / rate(wide_echo);
    wide.goals = vec![
        Goal::at_least("share of the echo", 0.7, share, beside(wide_echo)),
        Goal::at_least("globals a second", 125_000.0, rate(wide), "for orientation"),
    ];
    let share = rate(unary) / (rate(unary_echo) / 5.0);
    unary.goals = vec![
        Goal::at_least("share of a fifth of the echo", 0.75, share, beside(unary_echo)),
        Goal::at_least("globals a second", 11_000.0, rate(unary), "for orientation"),
    ];
}

/// Returns the goals of the rows of [`Options::seata`], in their order.
fn set_seata_goals(rows: &mut [Row]) {
    let [echo, narrow, wide_echo, wide] = rows else { return };
    let rate = |row: &Row| row.per_second.median;
    let beside = |row: &Row| format!("{}: {:.0}/s", row.name, rate(row));
    let p99 = |row: &Row| row.latency.map_or(f64::NAN, |all| all.p99_us / 1e3);
    let share = rate(narrow) / rate(echo);
    narrow.goals = vec![
        Goal::at_least("share of the echo", 0.6, share, beside(echo)),
        Goal::at_least("globals a second", 65_000.0, rate(narrow), "for orientation"),
        Goal::at_most("p99 ms", 1.5, p99(narrow), "for orientation"),
    ];
    let share = rate(wide) / rate(wide_echo);
    wide.goals = vec![
        Goal::at_least("share of the echo", 0.6, share, beside(wide_echo)),
        Goal::at_least("globals a second", 150_000.0, rate(wide), "for orientation"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    #[test]
    fn loads_are_held_against_their_own_bounds() {
        let row = |median| Row {
            per_second: Spread { median, min: median, max: median },
            ..Row::default()
        };
        let mut rows = [100.0, 80.0, 300.0, 150.0, 50.0, 10.0].map(row);
        set_load_goals(&mut rows);
        let met = |at: usize, goal: usize| rows[at].goals[goal].met();
        assert!(met(1, 0) && met(1, 1), "80 of 100, and 8 times 10");
        assert!(!met(1, 3), "a latency that was not measured meets no goal");
        assert!(!met(3, 0), "150 of 300");
        assert!(met(5, 0), "10 of 50 / 5");
        assert!(rows[0].goals.is_empty() && rows[2].goals.is_empty());
    }
}

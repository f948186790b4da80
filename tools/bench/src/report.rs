//! The report of every subcommand: rows of the same columns, as a table, as JSON, as a plot.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};

use crate::goal::Goal;
use crate::idle::Disturbance;
use crate::sample::{PerOperation, Sample};
use crate::statistics::{Percentiles, Spread};

/// The result of a subcommand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The subcommand.
    pub(crate) name: String,
    /// The whole command line.
    pub(crate) command: Vec<String>,
    pub(crate) cores: usize,
    pub(crate) rows: Vec<Row>,
    /// Figures over the time of a run, if the subcommand records them.
    pub(crate) series: Vec<Series>,
}

/// One measured thing, over all its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The table that it belongs to, if the report has several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) runs: usize,
    /// Operations a second.
    pub(crate) per_second: Spread,
    /// The latency of the median run; `None` if there is no latency to measure.
    pub(crate) latency: Option<Percentiles>,
    /// The medians of all runs, whose spread the latency does not show.
    pub(crate) p50_us: Spread,
    pub(crate) cpu_us: Option<PerOperation>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) figures: BTreeMap<String, Spread>,
    pub(crate) disturbance: Disturbance,
    /// The goals that it is compared with.
    pub(crate) goals: Vec<Goal>,
    /// Latency in microseconds at growing shares of the operations.
    pub(crate) curve: Vec<(f64, f64)>,
}

/// A figure over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Seconds and value.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Report {
    /// Creates a report with this process's command line.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            command: std::env::args().collect(),
            cores: crate::idle::cores().unwrap_or(0),
            rows: Vec::new(),
            series: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, row: Row) {
        eprint_progress(&row);
        self.rows.push(row);
    }

    /// Adds a row to a table of its own name. Rows of a table are added one after the other.
    pub(crate) fn push_to(&mut self, table: &str, row: Row) {
        self.push(Row { table: table.to_owned(), ..row });
    }

    /// Returns the errors of all rows.
    pub(crate) fn errors_total(&self) -> u64 {
        self.rows.iter().flat_map(|row| row.errors.values()).sum()
    }
}

impl Row {
    /// Sums up runs, with their disturbances.
    pub(crate) fn of(name: &str, runs: Vec<(Sample, Disturbance)>) -> Self {
        let per_second = Spread::of(runs.iter().map(|(sample, _)| sample.per_second));
        let p50s = runs.iter().filter_map(|(sample, _)| sample.latencies.percentiles());
        let p50_us = Spread::of(p50s.map(|percentiles| percentiles.p50_us));
        let mut row =
            Self { name: name.to_owned(), runs: runs.len(), per_second, p50_us, ..Self::default() };
        row.take_middle(&runs);
        row.figures = figures(&runs);
        for (sample, disturbance) in &runs {
            for (code, count) in &sample.errors {
                *row.errors.entry(code.clone()).or_default() += count;
            }
            row.disturbance.take_in(disturbance);
        }
        row
    }

    /// Creates a row of figures alone.
    pub(crate) fn of_figures(name: &str, figures: &[(&str, f64)]) -> Self {
        let spread = |value| Spread::of([value]);
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), spread(*value)));
        Self { name: name.to_owned(), runs: 1, figures: figures.collect(), ..Self::default() }
    }

    /// Creates a row for what could not be measured, with the reason.
    pub(crate) fn failed(name: &str, error: &anyhow::Error) -> Self {
        let errors = BTreeMap::from([(format!("{error:#}"), 1)]);
        Self { name: format!("{name}: failed"), errors, ..Self::default() }
    }

    /// Returns the median of a figure.
    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|spread| spread.median)
    }

    /// Adds a figure that is derived from several runs. Without a measurement none is added.
    pub(crate) fn set_figure(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), Spread::of([value]));
        }
    }

    /// Takes latency, processor time and memory from the run with the median throughput, because
    /// they belong together.
    fn take_middle(&mut self, runs: &[(Sample, Disturbance)]) {
        let mut order: Vec<&Sample> = runs.iter().map(|(sample, _)| sample).collect();
        order.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let Some(middle) = order.get((order.len().max(1) - 1) / 2) else { return };
        self.latency = middle.latencies.percentiles();
        self.curve = if self.latency.is_some() { middle.latencies.curve() } else { Vec::new() };
        self.cpu_us = middle.cpu_us;
        self.resident_bytes = middle.resident_bytes;
    }
}

impl Disturbance {
    /// Returns the worst of several runs.
    fn take_in(&mut self, other: &Self) {
        self.busy_before = self.busy_before.max(other.busy_before);
        self.foreign_cores = self.foreign_cores.max(other.foreign_cores);
        self.repeated += other.repeated;
    }
}

fn figures(runs: &[(Sample, Disturbance)]) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(|(sample, _)| &sample.figures) {
        values.entry(name.clone()).or_default().push(*value);
    }
    values.into_iter().map(|(name, values)| (name, Spread::of(values))).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} cores; {}", self.name, self.cores, self.command.join(" "))?;
        for rows in self.rows.chunk_by(|a, b| a.table == b.table) {
            if let [Row { table, .. }, ..] = rows
                && !table.is_empty()
            {
                writeln!(f, "\n{table}")?;
            }
            writeln!(f, "{}", table_of(rows))?;
            rows.iter().try_for_each(|row| write_goals(f, row))?;
        }
        Ok(())
    }
}

fn table_of(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "what",
        "per second",
        "p50 µs",
        "p90",
        "p99",
        "p99.9",
        "CPU µs c+s",
        "resident",
        "errors",
        "foreign cores",
        "more",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in 1..10 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn write_goals(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    row.goals.iter().try_for_each(|goal| {
        let verdict = if goal.met() { "met   " } else { "MISSED" };
        let (reached, wanted, bound) = (short(goal.reached), goal.wanted(), &goal.bound);
        writeln!(f, "{verdict} {}: {}: {reached} ({wanted}); {bound}", row.name, goal.what)
    })
}

fn cells(row: &Row) -> Vec<String> {
    let latency = |of: fn(&Percentiles) -> f64| {
        row.latency.as_ref().map_or_else(String::new, |all| short(of(all)))
    };
    vec![
        row.name.clone(),
        rate(row),
        latency(|all| all.p50_us),
        latency(|all| all.p90_us),
        latency(|all| all.p99_us),
        latency(|all| all.p999_us),
        row.cpu_us
            .map_or_else(String::new, |cpu| format!("{}+{}", short(cpu.client), short(cpu.server))),
        row.resident_bytes.map_or_else(String::new, |bytes| format!("{} MiB", bytes >> 20)),
        errors(&row.errors),
        disturbance(&row.disturbance),
        row.figures
            .iter()
            .map(|(name, of)| format!("{name}: {}", spread(of)))
            .collect::<Vec<_>>()
            .join("\n"),
    ]
}

fn errors(errors: &BTreeMap<String, u64>) -> String {
    if errors.is_empty() {
        return "0".to_owned();
    }
    let all: Vec<String> = errors.iter().map(|(code, count)| format!("{count} {code}")).collect();
    all.join("\n")
}

fn disturbance(of: &Disturbance) -> String {
    let again = if of.repeated > 0 { format!(", {} again", of.repeated) } else { String::new() };
    format!("{:.2}{again}", of.foreign_cores)
}

/// Formats how often an operation was done. A row of another kind has none.
fn rate(row: &Row) -> String {
    if row.per_second.max == 0.0 { String::new() } else { spread(&row.per_second) }
}

/// Formats the median, and the extremes if there are several values.
fn spread(of: &Spread) -> String {
    if of.min.total_cmp(&of.max).is_eq() {
        return short(of.median);
    }
    format!("{} ({}–{})", short(of.median), short(of.min), short(of.max))
}

/// Formats with at least three significant digits, and separated thousands.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1_000.0 => thousands(value.round()),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text.replace("-,", "-")
}

/// Prints intermediate results of long subcommands to standard error.
#[expect(clippy::print_stderr, reason = "progress belongs on standard error")]
fn eprint_progress(row: &Row) {
    let p50 = row.latency.map_or_else(String::new, |all| format!(", p50 {} µs", short(all.p50_us)));
    let rate = rate(row);
    let rate = if rate.is_empty() { "measured".to_owned() } else { format!("{rate}/s") };
    eprintln!("{}: {rate}{p50}", row.name);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::statistics::Latencies;

    fn run(per_second: f64, latency_us: u64) -> (Sample, Disturbance) {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_micros(latency_us));
        let mut sample = Sample::new(per_second, latencies);
        sample.errors.insert("HF-TC-BUSY".to_owned(), 1);
        sample.figure("behind", per_second);
        (sample, Disturbance { busy_before: 0.1, foreign_cores: 0.2, repeated: 1 })
    }

    #[test]
    fn a_row_is_the_run_in_the_middle_and_the_spread_of_all() {
        let row = Row::of("x", vec![run(3.0, 30), run(1.0, 10), run(2.0, 20)]);
        assert_eq!(row.per_second, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert!((row.latency.unwrap().p50_us - 20.0).abs() < 0.1);
        assert_eq!(row.errors.get("HF-TC-BUSY"), Some(&3));
        assert_eq!(row.disturbance.repeated, 3);
        assert!((row.figure("behind").unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_table_names_rows_errors_and_goals() {
        let mut row = Row::of("the row", vec![run(1_234_567.0, 30)]);
        row.goals.push(Goal::at_least("share of the echo", 0.7, 0.617, "echo 2,000,000/s"));
        let mut report = Report::new("tc");
        report.rows.push(row);
        let text = report.to_string();
        for part in ["the row", "1,234,567", "1 HF-TC-BUSY", "MISSED", "0.62", "0.20, 1 again"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(report.errors_total(), 1);
    }

    #[test]
    fn rows_of_different_tables_are_apart() {
        let mut report = Report::new("peers");
        for (table, name) in [("one", "a"), ("one", "b"), ("other", "c")] {
            report.push_to(table, Row::of(name, vec![run(1.0, 30)]));
        }
        let text = report.to_string();
        assert_eq!(text.matches("per second").count(), 2, "{text}");
        assert!(text.find("\none\n").unwrap() < text.find("\nother\n").unwrap(), "{text}");
    }

    #[test]
    fn a_report_survives_json() {
        let mut report = Report::new("tc");
        report.rows.push(Row::of("x", vec![run(1.5, 30)]));
        let json = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(read.rows[0].per_second, report.rows[0].per_second);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(0.123), "0.12");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(123.4), "123");
        assert_eq!(short(1_234.4), "1,234");
        assert_eq!(short(123_456.0), "123,456");
        assert_eq!(short(-123_456.0), "-123,456");
        assert_eq!(spread(&Spread { median: 2.0, min: 1.0, max: 3.0 }), "2.00 (1.00–3.00)");
    }
}

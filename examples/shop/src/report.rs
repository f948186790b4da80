//! The report of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::{OrderOutcome, Placed};
use crate::money::Money;
use crate::proof::{Check, Holdings, Leftovers, checks};
use crate::services::BusinessRefusal;

/// Latencies beyond an hour count as an hour.
const LATENCY_MICROS_MAX: u64 = 3_600_000_000;

/// Counts of the ends of orders, kept while they end.
#[derive(Debug)]
pub(crate) struct Tally {
    committed: usize,
    out_of_stock: usize,
    no_funds: usize,
    /// Why orders failed, and how many did for each reason.
    failures: BTreeMap<String, usize>,
    resubmissions: u64,
    /// In microseconds.
    latencies: Histogram<u64>,
}

/// The report of a run.
#[derive(Debug)]
pub(crate) struct Report {
    numbers: Numbers,
    failures: BTreeMap<String, usize>,
    resubmissions: u64,
    away_max: Duration,
    proof: Vec<Check>,
}

/// The part for scripts.
#[derive(Debug, Serialize)]
struct Numbers {
    orders: usize,
    committed: usize,
    out_of_stock: usize,
    no_funds: usize,
    failed: usize,
    revenue_cents: i64,
    stock_left: i64,
    undo_rows_left: i64,
    locks_left: u64,
    unfinished: u64,
    coordinator_restarts: u32,
    seconds: f64,
    orders_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Measurements around the orders.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) before: Holdings,
    pub(crate) after: Holdings,
    pub(crate) left: Leftovers,
    pub(crate) took: Duration,
    pub(crate) coordinator_restarts: u32,
    /// The longest time in which no coordinator led.
    pub(crate) away_max: Duration,
}

impl Tally {
    /// Returns the counts before the first order.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            committed: 0,
            out_of_stock: 0,
            no_funds: 0,
            failures: BTreeMap::new(),
            resubmissions: 0,
            latencies: Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3)
                .context("three significant digits are allowed")?,
        })
    }

    /// Counts an order.
    pub(crate) fn add(&mut self, placed: Placed) {
        self.resubmissions += u64::from(placed.resubmissions);
        let micros = u64::try_from(placed.took.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
        match placed.verdict {
            OrderOutcome::Committed => self.committed += 1,
            OrderOutcome::Refused(BusinessRefusal::OutOfStock) => self.out_of_stock += 1,
            OrderOutcome::Refused(BusinessRefusal::NoFunds) => self.no_funds += 1,
            OrderOutcome::Failed(reason) => *self.failures.entry(reason).or_default() += 1,
        }
    }

    fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    fn millis_at(&self, percentile: f64) -> f64 {
        Duration::from_micros(self.latencies.value_at_percentile(percentile)).as_secs_f64() * 1e3
    }

    /// Combines the counts with the measurements into a report.
    pub(crate) fn into_report(self, measured: Measured) -> Report {
        let Measured { before, after, left, took, coordinator_restarts, away_max } = measured;
        let failed = self.failed();
        let orders = self.committed + self.out_of_stock + self.no_funds + failed;
        let seconds = took.as_secs_f64();
        let numbers = Numbers {
            orders,
            committed: self.committed,
            out_of_stock: self.out_of_stock,
            no_funds: self.no_funds,
            failed,
            revenue_cents: after.revenue_cents(),
            stock_left: after.stock(),
            undo_rows_left: left.undo_rows,
            locks_left: left.locks,
            unfinished: left.unfinished,
            coordinator_restarts,
            seconds: rounded(seconds),
            orders_per_second: rounded(count(orders) / seconds.max(f64::MIN_POSITIVE)),
            p50_ms: rounded(self.millis_at(50.0)),
            p99_ms: rounded(self.millis_at(99.0)),
        };
        let proof = checks(&before, &after, &left, self.committed);
        let (failures, resubmissions) = (self.failures, self.resubmissions);
        Report { numbers, failures, resubmissions, away_max, proof }
    }
}

impl Report {
    /// Returns whether nothing was lost and no order failed.
    pub(crate) fn holds(&self) -> bool {
        self.numbers.failed == 0 && self.proof.iter().all(|check| check.holds)
    }

    /// Formats the report as one JSON object.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.numbers)?)
    }

    /// Formats the report for a terminal.
    pub(crate) fn to_tables(&self) -> String {
        let verdict = if self.holds() { "the proof holds" } else { "THE PROOF DOES NOT HOLD" };
        let mut parts = vec![self.orders_table(), self.speed_table(), self.proof_table()];
        for (reason, times) in &self.failures {
            parts.push(format!("{times} failed: {reason}"));
        }
        parts.push(verdict.to_owned());
        parts.join("\n")
    }

    fn orders_table(&self) -> String {
        let numbers = &self.numbers;
        let reasons = if self.failures.is_empty() { "" } else { "reasons at the end" };
        table(
            ["orders", "count", "outcome"],
            [
                ("committed", numbers.committed, "bought"),
                ("out of stock", numbers.out_of_stock, "rolled back"),
                ("not enough funds", numbers.no_funds, "rolled back"),
                ("failed", numbers.failed, reasons),
                ("all", numbers.orders, ""),
            ]
            .map(|(what, count, outcome)| [what.into(), count.to_string(), outcome.into()]),
        )
    }

    fn speed_table(&self) -> String {
        let numbers = &self.numbers;
        table(
            ["speed", "value", "unit"],
            [
                ("time", numbers.seconds.to_string(), "s"),
                ("throughput", numbers.orders_per_second.to_string(), "orders/s"),
                ("latency, half of the orders", numbers.p50_ms.to_string(), "ms"),
                ("latency, 99 of 100 orders", numbers.p99_ms.to_string(), "ms"),
                ("orders sent again", self.resubmissions.to_string(), "times"),
                ("coordinator killed", numbers.coordinator_restarts.to_string(), "times"),
                ("no coordinator, at most", rounded(self.away_max.as_secs_f64()).to_string(), "s"),
                ("revenue", Money(numbers.revenue_cents).to_string(), "money"),
            ]
            .map(|(what, value, unit)| [what.into(), value, unit.into()]),
        )
    }

    fn proof_table(&self) -> String {
        let row = |check: &Check| {
            let verdict = if check.holds { "holds" } else { "BROKEN" };
            [check.what.into(), format!("{} = {}", check.expected, check.found), verdict.into()]
        };
        table(["proof", "expected = found", ""], self.proof.iter().map(row))
    }
}

fn table(header: [&str; 3], rows: impl IntoIterator<Item = [String; 3]>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Rounds to three decimals, which is as precise as the numbers are.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Exact up to four thousand million.
fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_is_counted_once() {
        let mut tally = Tally::new().unwrap();
        let verdicts = [
            OrderOutcome::Committed,
            OrderOutcome::Refused(BusinessRefusal::OutOfStock),
            OrderOutcome::Refused(BusinessRefusal::NoFunds),
            OrderOutcome::Failed("a".to_owned()),
            OrderOutcome::Failed("a".to_owned()),
        ];
        for verdict in verdicts {
            tally.add(Placed { verdict, took: Duration::from_millis(2), resubmissions: 1 });
        }
        let counts = (tally.committed, tally.out_of_stock, tally.no_funds, tally.failed());
        assert_eq!(counts, (1, 1, 1, 2));
        assert_eq!(tally.resubmissions, 5);
        assert!((1.9..2.1).contains(&tally.millis_at(50.0)));
    }
}

//! The results of the sales, for people and for scripts.

use std::time::Duration;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::crowd::Outcome;
use crate::proof::Check;
use crate::way::SaleMethod;

/// The results of all ways.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    holds: bool,
    sales: Vec<Sale>,
}

/// The result of one way.
#[derive(Debug, Serialize)]
pub(crate) struct Sale {
    way: &'static str,
    #[serde(skip)]
    description: &'static str,
    buyers: u32,
    bought: u32,
    sold_out: u32,
    failed: u32,
    #[serde(skip)]
    failure: Option<String>,
    /// Attempts that failed and were repeated.
    again: u32,
    /// Until the last unit was sold.
    selling_seconds: f64,
    sales_per_second: f64,
    /// Until the last buyer had its answer.
    seconds: f64,
    /// The latencies of the successful buyers.
    p50_ms: f64,
    p99_ms: f64,
    holds: bool,
    #[serde(skip)]
    checks: Vec<Check>,
}

impl Sale {
    pub(crate) fn new(way: SaleMethod, buyers: u32, outcome: &Outcome, checks: Vec<Check>) -> Self {
        let selling = outcome.selling.as_secs_f64();
        let millis = |took: Duration| rounded(took.as_secs_f64() * 1e3);
        Self {
            way: way.name(),
            description: way.description(),
            buyers,
            bought: outcome.bought,
            sold_out: outcome.sold_out,
            failed: outcome.failed,
            failure: outcome.failure.clone(),
            again: outcome.again,
            selling_seconds: rounded(selling),
            sales_per_second: rounded(f64::from(outcome.bought) / selling.max(1e-6)),
            seconds: rounded(outcome.all.as_secs_f64()),
            p50_ms: millis(outcome.percentile(50)),
            p99_ms: millis(outcome.percentile(99)),
            holds: checks.iter().all(Check::holds),
            checks,
        }
    }

    fn row(&self) -> [String; 9] {
        [
            self.description.to_owned(),
            self.bought.to_string(),
            self.sold_out.to_string(),
            self.again.to_string(),
            self.selling_seconds.to_string(),
            self.sales_per_second.to_string(),
            self.p50_ms.to_string(),
            self.p99_ms.to_string(),
            if self.holds { "holds" } else { "BROKEN" }.to_owned(),
        ]
    }

    /// Returns what is wrong, if anything is.
    fn complaints(&self) -> Vec<String> {
        let broken = self.checks.iter().filter(|check| !check.holds()).map(|check| {
            let Check { what, expected, found } = check;
            format!("{}: {what}: expected {expected}, found {found}", self.description)
        });
        let failure = self.failure.iter().map(|why| format!("{}: {why}", self.description));
        broken.chain(failure).collect()
    }
}

impl Report {
    pub(crate) fn new(sales: Vec<Sale>) -> Self {
        Self { holds: sales.iter().all(|sale| sale.holds), sales }
    }

    /// Returns whether every way has sold exactly what there was.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Formats the report as one JSON object.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Formats the report for a terminal.
    pub(crate) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([
            "sold by", "bought", "sold out", "again", "seconds", "sales/s", "p50 ms", "p99 ms",
            "proof",
        ]);
        for sale in &self.sales {
            table.add_row(sale.row());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let verdict = if self.holds { "every proof holds" } else { "A PROOF DOES NOT HOLD" };
        let mut parts = vec![table.to_string()];
        parts.extend(self.sales.iter().flat_map(Sale::complaints));
        parts.push(verdict.to_owned());
        parts.join("\n")
    }
}

/// Rounds to two decimals, which is as precise as the numbers are.
fn rounded(number: f64) -> f64 {
    (number * 1e2).round() / 1e2
}

//! The invariants that must hold after the last buyer, read from the database.

use anyhow::Result;
use serde::Serialize;

use crate::cli::Options;
use crate::crowd::Outcome;
use crate::stock::Stock;

/// An invariant.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) expected: i64,
    pub(crate) found: i64,
}

impl Check {
    pub(crate) fn holds(&self) -> bool {
        self.expected == self.found
    }
}

pub(crate) async fn checks(
    options: &Options,
    stock: &Stock,
    outcome: &Outcome,
) -> Result<Vec<Check>> {
    let (units, sales) = (stock.look().await?, stock.sales().await?);
    let sold = i64::from(options.sold());
    let amiss = (0..).zip(&units).map(|(segment, left)| {
        let sales = sales.iter().filter(|(_, from)| *from == i64::from(segment)).count();
        let sales = i64::try_from(sales).unwrap_or(i64::MAX);
        i64::from(*left < 0) + (i64::from(stock.share(segment)) - left - sales).abs()
    });
    let check = |what, expected, found| Check { what, expected, found };
    Ok(vec![
        check("units sold, in the database", sold, i64::try_from(sales.len())?),
        check("units left, in the database", i64::from(options.units) - sold, units.iter().sum()),
        check("units missing, doubled or owed in any row", 0, amiss.sum()),
        check("buyers told that they have one", sold, i64::from(outcome.bought)),
        check(
            "buyers told that it is sold out",
            i64::from(options.buyers) - sold,
            i64::from(outcome.sold_out),
        ),
        check("buyers who were not served", 0, i64::from(outcome.failed)),
    ])
}

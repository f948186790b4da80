//! Counters: one hot row that is added to by globals which hold it together, beside the same
//! globals holding it one after the other, and beside plain statements without any global.
//!
//! In the database the row is changed by one local transaction after the other in any case. So the
//! bound of the first two is the plain statement.

use std::time::Duration;

use anyhow::Result;
use handfast::{AtResource, Counter};
use tokio::time::sleep;

use super::database::{BenchDatabase, Statement};
use super::setup::AtSetup;
use crate::measure::Measure;
use crate::report::Row;
use crate::sample::Sample;
use crate::workers::{OperationEnd, work};

/// The hot row.
const HOT: i64 = 1;
/// The time of the application between two branches.
const BUSINESS: Duration = Duration::from_millis(5);

/// One way to add to the hot row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A statement without a global, which commits by itself.
    Plain,
    /// A global of one statement.
    One(Held),
    /// A global of a statement on the hot row, 5 ms of work, and a branch in another database.
    Two(Held),
}

/// How globals hold the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Alone,
    Together,
}

const ALL: [Way; 5] = [
    Way::Plain,
    Way::One(Held::Alone),
    Way::One(Held::Together),
    Way::Two(Held::Alone),
    Way::Two(Held::Together),
];

/// Measures a hot counter with each number of clients.
pub(crate) async fn measure<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    clients: &[usize],
    measure: &Measure,
) -> Result<Vec<Row>> {
    let counted = setup.handfast.at(setup.first.pool.clone());
    let counted = counted.counter("item", "cnt", Counter::at_least(0)).await?;
    let mut measured = Vec::new();
    for &clients in clients {
        let name =
            |way: &Way| format!("{}, hot counter, {clients} clients: {}", DB::PRODUCT, way.name());
        let names: Vec<String> = ALL.iter().map(name).collect();
        let times = (measure.warm_up(), measure.length());
        let run = async |which: usize| add(setup, &counted, ALL[which], clients, times).await;
        let mut rows = measure.rows(&names, run).await?;
        compare(&mut rows);
        measured.extend(rows);
    }
    Ok(measured)
}

fn compare(rows: &mut [Row]) {
    let speeds: Vec<f64> = rows.iter().map(|row| row.per_second.median).collect();
    let [plain, one_alone, _, two_alone, _] = speeds[..] else { return };
    rows[2].set_figure("times held alone", speeds[2] / one_alone);
    rows[2].set_figure("plain statement / this", plain / speeds[2]);
    rows[4].set_figure("times held alone", speeds[4] / two_alone);
}

async fn add<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    counted: &AtResource<DB>,
    way: Way,
    clients: usize,
    times: (Duration, Duration),
) -> Result<(Sample, f64)> {
    work(clients, times, &setup.servers()?, async |client, _| {
        match way {
            Way::Plain => DB::update_plain(&setup.first.pool, HOT).await?,
            Way::One(held) => {
                let global = setup.handfast.transaction("count").begin().await?;
                global.scope(DB::update_alone(held.resource(setup, counted), HOT)).await?;
                global.commit().await?;
            }
            Way::Two(held) => {
                let own = 100 + i64::try_from(client).unwrap_or(0);
                let global = setup.handfast.transaction("count").begin().await?;
                let work = async {
                    DB::update_alone(held.resource(setup, counted), HOT).await?;
                    sleep(BUSINESS).await;
                    super::branch(&setup.second_resource, Statement::Point, own).await
                };
                global.scope(work).await?;
                global.commit().await?;
            }
        }
        Ok(OperationEnd::Well)
    })
    .await
}

impl Held {
    fn resource<'s, DB: BenchDatabase>(
        self,
        setup: &'s AtSetup<DB>,
        counted: &'s AtResource<DB>,
    ) -> &'s AtResource<DB> {
        match self {
            Self::Alone => &setup.first_resource,
            Self::Together => counted,
        }
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "no global",
            Self::One(Held::Alone) => "1 branch, held alone",
            Self::One(Held::Together) => "1 branch, counter",
            Self::Two(Held::Alone) => "2 branches, 5 ms between, held alone",
            Self::Two(Held::Together) => "2 branches, 5 ms between, counter",
        }
    }
}

//! Hot rows: the library's queue in the coordinator beside polling.
//!
//! The bound is the reciprocal of the time for which a global holds the row: a single client's time
//! from the row's lock to the decision. Two rows locked in opposite orders deadlock. A refused
//! global is rolled back and tried again, and its time counts.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use handfast::{AtError, AtResource, TransactionError};

use super::caller::Caller;
use super::database::{BenchDatabase, Statement};
use super::polling::{self, Policy, Target};
use super::setup::{AtSetup, branch};
use crate::measure::Measure;
use crate::report::Row;
use crate::sample::Sample;
use crate::statistics::Latencies;
use crate::workers::{OperationEnd, work};

/// The rows that the globals lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// Row 1 of the first database.
    One,
    /// The same, then a row of the client's own in the second database.
    OneAndAnother,
    /// Rows 1 and 2 of the first database, half of the clients the other way round.
    Crossing,
}

/// How the globals wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With the library: queued in the coordinator, either with the database's row lock held, or
    /// after a rollback and before the local transaction is repeated.
    Queue(Policy),
    Polling(Policy),
}

/// The numbers of resources that no process of the library serves.
const FIRST: usize = 9_001;
const SECOND: usize = 9_002;

const ALL_ROWS: [Rows; 3] = [Rows::One, Rows::OneAndAnother, Rows::Crossing];
const ALL_WAYS: [Way; 4] = [
    Way::Queue(Policy::Hold),
    Way::Queue(Policy::Back),
    Way::Polling(Policy::Hold),
    Way::Polling(Policy::Back),
];

/// Measures hot rows with each number of clients.
pub(crate) async fn measure<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    clients: &[usize],
    measure: &Measure,
) -> Result<Vec<Row>> {
    polling::require_row_locks::<DB>()?;
    polling::prepare(&setup.first).await?;
    polling::prepare(&setup.second).await?;
    let mut measured = Vec::new();
    for rows in ALL_ROWS {
        let hold_us = hold_us(setup, rows, measure).await?;
        for &clients in clients {
            let name = |way: &Way| {
                format!("{}, {}, {clients} clients: {}", DB::PRODUCT, rows.name(), way.name())
            };
            let names: Vec<String> = ALL_WAYS.iter().map(name).collect();
            let times = (measure.warm_up(), measure.length());
            let run = async |which: usize| ways(setup, ALL_WAYS[which], rows, clients, times).await;
            let mut found = measure.rows(&names, run).await?;
            compare(&mut found, hold_us, measure.length());
            measured.extend(found);
        }
    }
    Ok(measured)
}

/// Compares the queues with their bound and with polling. Polling that committed nothing counts as
/// one global in the run.
fn compare(rows: &mut [Row], hold_us: f64, run: Duration) {
    let speeds: Vec<f64> = rows.iter().map(|row| row.per_second.median).collect();
    let [_, _, hold, back] = speeds[..] else { return };
    let one = run.as_secs_f64().recip();
    for (row, queue) in rows.iter_mut().zip(&speeds).take(2) {
        row.set_figure("hold time µs, one client", hold_us);
        row.set_figure("share of 1 / hold time", queue * hold_us / 1e6);
        row.set_figure("times polling, holding", queue / hold.max(one));
        row.set_figure("times polling, rolled back", queue / back.max(one));
    }
}

/// Measures how long a single client holds its first row: all of a global but its begin.
async fn hold_us<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    rows: Rows,
    measure: &Measure,
) -> Result<f64> {
    let held = RefCell::new(Latencies::default());
    let times = (measure.warm_up(), measure.length());
    work(1, times, &setup.servers()?, async |client, _| {
        let global = setup.handfast.transaction("hot").begin().await?;
        let begun = Instant::now();
        for spot in rows.spots(client) {
            global.scope(branch(spot.resource(setup), Statement::Point, spot.item)).await?;
        }
        global.commit().await?;
        held.borrow_mut().record(begun.elapsed());
        Ok(OperationEnd::Well)
    })
    .await?;
    Ok(held.into_inner().percentiles().unwrap_or_default().p50_us)
}

async fn ways<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    way: Way,
    rows: Rows,
    clients: usize,
    times: (Duration, Duration),
) -> Result<(Sample, f64)> {
    let servers = setup.servers()?;
    match way {
        Way::Queue(policy) => {
            work(clients, times, &servers, async |client, _| {
                queued(setup, policy, rows.spots(client)).await
            })
            .await
        }
        Way::Polling(policy) => {
            let caller = Caller::connect(&setup.coordinator, &[FIRST, SECOND]).await?;
            work(clients, times, &servers, async |client, random| {
                let targets: Vec<Target<'_, DB>> =
                    rows.spots(client).into_iter().map(|spot| spot.target(setup)).collect();
                let committed = polling::global(&caller, policy, &targets, random).await?;
                Ok(if committed { OperationEnd::Well } else { OperationEnd::Expected("given up") })
            })
            .await
        }
    }
}

/// Runs one global with the library.
async fn queued<DB: BenchDatabase>(
    setup: &AtSetup<DB>,
    policy: Policy,
    spots: Vec<Spot>,
) -> Result<OperationEnd> {
    let ran = setup.handfast.transaction("hot").run(async |_| {
        for spot in spots {
            let (resource, item) = (spot.resource(setup), spot.item);
            match policy {
                Policy::Hold => branch(resource, Statement::Point, item).await?,
                Policy::Back => {
                    resource
                        .transaction(async |mut local| {
                            DB::update_branch(&mut local, Statement::Point, item).await
                        })
                        .await?;
                }
            }
        }
        Ok::<_, sqlx::Error>(())
    });
    match ran.await {
        Ok(()) => Ok(OperationEnd::Well),
        Err(error) => match code(&error).as_deref() {
            Some("HF-TC-DEADLOCK") => Ok(OperationEnd::Expected("deadlocks refused")),
            // A branch that waits with database locks for a global that rolls back is refused: the
            // rollback may need those locks.
            Some("HF-TC-ROW-LOCKED") => Ok(OperationEnd::Expected("refused beside a rollback")),
            _ => Err(error.into()),
        },
    }
}

/// A row of one of the two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    second: bool,
    item: i64,
}

impl Spot {
    fn resource<DB: BenchDatabase>(self, setup: &AtSetup<DB>) -> &AtResource<DB> {
        if self.second { &setup.second_resource } else { &setup.first_resource }
    }

    fn target<DB: BenchDatabase>(self, setup: &AtSetup<DB>) -> Target<'_, DB> {
        let (database, number) =
            if self.second { (&setup.second, SECOND) } else { (&setup.first, FIRST) };
        Target { database, number, item: self.item }
    }
}

impl Rows {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one hot row",
            Self::OneAndAnother => "one hot row and another branch",
            Self::Crossing => "two hot rows in opposite order",
        }
    }

    /// Returns the rows of a client, in order.
    fn spots(self, client: usize) -> Vec<Spot> {
        let hot = |item| Spot { second: false, item };
        match self {
            Self::One => vec![hot(1)],
            Self::OneAndAnother => {
                let own = 100 + i64::try_from(client).unwrap_or(0);
                vec![hot(1), Spot { second: true, item: own }]
            }
            Self::Crossing if client.is_multiple_of(2) => vec![hot(1), hot(2)],
            Self::Crossing => vec![hot(2), hot(1)],
        }
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Queue(Policy::Hold) => "queued, row lock held",
            Self::Queue(Policy::Back) => "queued, rolled back first",
            Self::Polling(Policy::Hold) => "polling, row lock held",
            Self::Polling(Policy::Back) => "polling, rolled back first",
        }
    }
}

/// Returns the coordinator's or the library's code of a global's failure.
fn code(error: &TransactionError<sqlx::Error>) -> Option<String> {
    error.application().and_then(AtError::of).map(|error| error.code().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossing_clients_take_the_rows_the_other_way_round() {
        let items = |client| -> Vec<i64> {
            Rows::Crossing.spots(client).iter().map(|spot| spot.item).collect()
        };
        assert_eq!((items(0), items(1)), (vec![1, 2], vec![2, 1]));
    }

    #[test]
    fn the_other_branch_is_on_a_row_of_the_clients_own() {
        let other = |client| Rows::OneAndAnother.spots(client)[1];
        assert!(other(3).second);
        assert_ne!(other(3), other(4));
    }

    #[test]
    fn the_queue_is_compared_with_its_bound_and_with_polling() {
        let row = |median| {
            let per_second = crate::statistics::Spread { median, ..Default::default() };
            Row { per_second, ..Row::default() }
        };
        let mut rows = [row(1_000.0), row(0.0), row(100.0), row(0.0)];
        compare(&mut rows, 800.0, Duration::from_secs(2));
        let figure = |name| rows[0].figure(name).unwrap();
        assert!((figure("share of 1 / hold time") - 0.8).abs() < 1e-9);
        assert!((figure("times polling, holding") - 10.0).abs() < 1e-9);
        let one_in_two_seconds = 1_000.0 / 0.5;
        assert!((figure("times polling, rolled back") - one_in_two_seconds).abs() < 1e-9);
        assert_eq!(rows[1].figure("times polling, rolled back"), Some(0.0));
    }
}

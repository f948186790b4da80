//! `modes`: the same business action in every mode, in turns in one run.
//!
//! The action takes one unit from a row of one database and gives it to a row of another. An
//! operation ends when its caller may rely on it. In AT, TCC and two-phase commit that is the
//! decision, and phase two runs in the background; in a saga it is the last step; with an event it
//! is its effect in the other database. All are compared with plain local transactions, which may
//! lose the unit.

mod actions;
mod database;
mod events;
mod setup;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::Product;
use crate::measure::{Measure, RunDirectory};
use crate::report::{Report, Row};

use database::ModesDatabase;
use setup::ModesSetup;

/// `handfast-bench modes`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A database product; may be given several times. Without any, all with a known server.
    #[arg(long, value_enum)]
    database: Vec<Product>,
    /// The MySQL or MariaDB server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_MYSQL")]
    mysql: Option<String>,
    /// The PostgreSQL server, with the right to create databases.
    #[arg(long, env = "HANDFAST_TEST_POSTGRES")]
    postgres: Option<String>,
    /// A mode; may be given several times. Without any, all that the product supports.
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Concurrent clients; may be given several times.
    #[arg(long, default_values_t = [1, 16])]
    clients: Vec<usize>,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

/// One way to do the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// A local transaction in each database, one after the other.
    Local,
    At,
    Tcc,
    Xa,
    Saga,
    Outbox,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Local => "plain local transactions",
            Self::At => "AT",
            Self::Tcc => "TCC",
            Self::Xa => "XA",
            Self::Saga => "saga",
            Self::Outbox => "outbox",
        }
    }
}

/// Measures the selected products and modes.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("modes");
    for product in options.products() {
        let rows = match product {
            Product::Mysql => options.rows::<MySql>(url(&options.mysql, "--mysql")?).await,
            Product::Postgres => {
                options.rows::<Postgres>(url(&options.postgres, "--postgres")?).await
            }
            Product::Sqlite => options.rows::<Sqlite>("").await,
        };
        let rows = rows.with_context(|| format!("{product:?}"))?;
        rows.into_iter().for_each(|row| report.push(row));
    }
    Ok(report)
}

fn url<'o>(url: &'o Option<String>, flag: &str) -> Result<&'o str> {
    url.as_deref().with_context(|| format!("{flag} names the server"))
}

impl Options {
    fn products(&self) -> Vec<Product> {
        if !self.database.is_empty() {
            return self.database.clone();
        }
        let known = |product: &Product| match product {
            Product::Mysql => self.mysql.is_some(),
            Product::Postgres => self.postgres.is_some(),
            Product::Sqlite => true,
        };
        Product::value_variants().iter().copied().filter(known).collect()
    }

    async fn rows<DB: ModesDatabase>(&self, url: &str) -> Result<Vec<Row>> {
        let all = if self.mode.is_empty() { Mode::value_variants() } else { &self.mode[..] };
        let has = |mode: &Mode| *mode != Mode::Xa || DB::HAS_XA;
        let modes: Vec<Mode> = all.iter().copied().filter(has).collect();
        let most = self.clients.iter().copied().max().unwrap_or(1);
        let setup = ModesSetup::<DB>::open(url, &self.place, most).await?;
        let times = (self.measure.warm_up(), self.measure.length());
        let mut rows = Vec::new();
        for &clients in &self.clients {
            let name = |mode: &Mode| format!("{}, {clients} clients: {}", DB::PRODUCT, mode.name());
            let names: Vec<String> = modes.iter().map(name).collect();
            let run = async |which: usize| setup.measure(modes[which], clients, times).await;
            let mut measured = self.measure.rows(&names, run).await?;
            compare(&modes, &mut measured);
            rows.extend(measured);
        }
        setup.close(url).await?;
        Ok(rows)
    }
}

/// Compares every mode with plain local transactions.
fn compare(modes: &[Mode], rows: &mut [Row]) {
    let Some(local) = modes.iter().position(|mode| *mode == Mode::Local) else { return };
    let plain = rows[local].per_second.median;
    for (mode, row) in modes.iter().zip(rows) {
        if *mode != Mode::Local {
            row.set_figure("times slower than local", plain / row.per_second.median);
        }
    }
}

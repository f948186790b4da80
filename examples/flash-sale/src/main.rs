//! A flash sale: many buyers, few units, sold in four ways: under a single lock, under a lock in
//! segments, by a guarded UPDATE, in a global transaction in AT mode.
//!
//! Each way must sell exactly what there was, and the program proves it from the database: the
//! counters in memory decide nothing. A unit that was sold is never put back, so a buyer that has
//! seen nothing left gets the answer "sold out".

mod cli;
mod crowd;
mod proof;
mod report;
mod stock;
mod way;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use handfast::Handfast;
use handfast_locks::Locks;
use handfast_server::embedded::{RunningServer, Server as Coordinator};

use handfast_example_shop::database::{Pool, Server, run_name};
use handfast_example_shop::with_pool;

use crate::cli::Options;
use crate::report::Report;
use crate::stock::{Product, Stock};
use crate::way::{SaleMethod, Shop};

/// The sale went through, but it did not sell exactly what there was.
const EXIT_DISPROVED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let ended = handfast_example_shop::observed(Box::pin(sell(&options)));
    match Box::pin(ended).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DISPROVED),
        Err(error) => {
            // If standard error is closed, the error cannot be reported.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Sells in each way, prints the results, and returns whether the proofs hold.
async fn sell(options: &Options) -> Result<bool> {
    let server = Server::parse(&options.database)?;
    let folder = tempfile::TempDir::with_prefix("handfast-flash-sale-")?;
    let coordinator = EmbeddedOrNot::start(options, folder.path()).await?;
    let name = format!("handfast_sale_{}", run_name()?);
    let pool = server.create(&name, folder.path(), options.concurrency).await?;
    let sold = Box::pin(sell_from(options, &pool, &coordinator.url, &name)).await;
    with_pool!(&pool, |pool, _text| pool.close().await);
    let removed = server.remove(&name).await.context(name);
    let stopped = coordinator.stop().await;
    let report = sold?;
    removed?;
    stopped?;
    let text = if options.json { report.to_json()? } else { report.to_table() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.holds())
}

async fn sell_from(options: &Options, pool: &Pool, url: &str, run: &str) -> Result<Report> {
    let handfast = Handfast::connect(url).application("flash-sale").await?;
    pool.make_tables(&handfast, stock::TABLES).await?;
    let sales = match pool {
        Pool::Postgres(inner) => Box::pin(each_way(options, pool, inner, &handfast, run)).await,
        Pool::MySql(inner) => Box::pin(each_way(options, pool, inner, &handfast, run)).await,
        Pool::Sqlite(inner) => Box::pin(each_way(options, pool, inner, &handfast, run)).await,
    };
    handfast.close().await;
    Ok(Report::new(sales?))
}

/// One sale after the other, on the same tables.
async fn each_way<DB: Product>(
    options: &Options,
    pool: &Pool,
    inner: &sqlx::Pool<DB>,
    handfast: &Handfast,
    run: &str,
) -> Result<Vec<report::Sale>> {
    let locks = Locks::over(handfast.locks()).label("flash-sale").start()?;
    let mut sales = Vec::new();
    for way in options.ways() {
        let segments = if way == SaleMethod::Segments { options.segments } else { 1 };
        let stock = Stock { pool: pool.clone(), units: options.units, segments };
        stock.fill().await?;
        let name = format!("{run}/{}", way.name());
        let shop = Shop::open(way, &stock, inner, handfast, &locks, &name).await?;
        let outcome = crowd::sell_to(options, shop).await?;
        locks.settle().await?;
        let checks = proof::checks(options, &stock, &outcome).await?;
        sales.push(report::Sale::new(way, options.buyers, &outcome, checks));
    }
    Ok(sales)
}

/// A coordinator in this process, or a running one.
struct EmbeddedOrNot {
    url: String,
    embedded: Option<RunningServer>,
}

impl EmbeddedOrNot {
    async fn start(options: &Options, folder: &Path) -> Result<Self> {
        if let Some(url) = &options.coordinator {
            return Ok(Self { url: url.clone(), embedded: None });
        }
        let builder = Coordinator::builder().directory(folder.join("coordinator"));
        let server = builder.listen("127.0.0.1:0").start().await?;
        let url = format!("http://{}", server.address());
        Ok(Self { url, embedded: Some(server) })
    }

    async fn stop(self) -> Result<()> {
        if let Some(server) = self.embedded {
            server.stop().await?;
        }
        Ok(())
    }
}

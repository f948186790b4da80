//! `views`: what operators see while a coordinator holds many globals: how soon the first page of
//! each list is there, for how long a view keeps the engine, and what an open console costs a load.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::future::try_join_all;
use handfast_proto::v1;
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_rustls::rustls;

use crate::child::Server;
use crate::load::{self, Load, Pace, Shape, Wire, resource_id};
use crate::measure::{Measure, RunDirectory};
use crate::recovery;
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::statistics::Latencies;

/// The length of one piece of the load that fills the history.
const FILL_FOR: Duration = Duration::from_secs(5);
/// The globals at a time of that load.
const FILLERS: usize = 256;
/// The metric of how long a view keeps the engine.
const HELD: &str = "handfast_view_seconds";
/// The longest that it may, in the bounds of the metric's buckets.
const HELD_MAX: &str = "0.005";
/// The paths that three screens of the console follow: *Needs you*, *Transactions* and *Locks*.
const SCREENS: [&str; 5] = [
    "/api/v1/status",
    "/api/v1/transactions?status=needs_operator&limit=50",
    "/api/v1/transactions?limit=50",
    "/api/v1/locks?limit=50",
    "/api/v1/locks/graph?limit=200",
];

/// `handfast-bench views`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Globals that are open.
    #[arg(long, default_value_t = 100_000)]
    open: u64,
    /// Globals that have ended and are remembered.
    #[arg(long, default_value_t = 1_000_000)]
    finished: u64,
    /// How often the first page of each list is asked for.
    #[arg(long, default_value_t = 50)]
    asks: u32,
    /// Globals at a time of the load beside which a console is open.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    place: RunDirectory,
}

/// Fills a coordinator, and measures the lists and the load.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("views");
    let directory = options.place.directory()?;
    let server = Server::coordinator(directory.path(), &options.settings()).await?;
    let admin = Admin::of(&server)?;
    recovery::fill(&server, options.open, begin).await?;
    admin.fill_history(&server, options.finished).await?;
    for (name, path) in lists() {
        let ask = async || admin.get(&path).await;
        report.push(first_pages(name, ask, options.asks).await?);
    }
    for (name, body) in dry_runs() {
        let ask = async || admin.post("/api/v1/transactions/bulk", &body).await;
        report.push(first_pages(name, ask, options.asks).await?);
    }
    for row in options.console(&server, &admin).await? {
        report.push(row);
    }
    report.push(admin.held().await?);
    Ok(report)
}

/// Begins a global that can be searched by label.
fn begin(number: u64) -> v1::BeginRequest {
    let labels = [("order".to_owned(), number.to_string())].into();
    v1::BeginRequest { labels, ..Shape::begin() }
}

/// Returns what the lists are called, and their paths.
fn lists() -> Vec<(&'static str, String)> {
    let transactions = |query: &str| format!("/api/v1/transactions?limit=50&{query}");
    vec![
        ("newest first", transactions("")),
        ("oldest first", transactions("order=oldest")),
        ("active", transactions("status=active")),
        ("committed", transactions("status=committed")),
        ("rolled back, of which there are none", transactions("status=rolled_back")),
        ("in need of an operator", transactions("status=needs_operator")),
        ("by a label", transactions("label=order=42")),
        ("by a resource", transactions(&format!("resource={}", resource_id(0)))),
        ("by a table", transactions("table=public.stock_item")),
        ("by a text that one has", transactions("text=99999")),
        ("by a text that none has", transactions("text=nowhere")),
        ("by another application", transactions("application=nothing")),
        ("older than 30 s, committing", transactions("status=committing&older_than=30s")),
        ("locks", "/api/v1/locks?limit=50".to_owned()),
        ("locks of a table that has none", "/api/v1/locks?limit=50&table=nothing".to_owned()),
        ("wait graph", "/api/v1/locks/graph?limit=200".to_owned()),
        ("deadlocks", "/api/v1/locks/deadlocks".to_owned()),
        ("sagas", "/api/v1/sagas?limit=50".to_owned()),
        ("named locks", "/api/v1/named-locks?limit=50".to_owned()),
        ("resources", "/api/v1/resources".to_owned()),
        ("processes", "/api/v1/processes".to_owned()),
        ("the last 15 minutes", "/api/v1/recent".to_owned()),
        ("status", "/api/v1/status".to_owned()),
    ]
}

/// Returns what the dry runs of actions on several transactions are called, and their requests.
fn dry_runs() -> Vec<(&'static str, serde_json::Value)> {
    let rollback = |filter| json!({"action": "rollback", "filter": filter});
    vec![
        ("dry run of a rollback of 100", rollback(json!({"status": "active"}))),
        ("dry run of a rollback of 1,000", rollback(json!({"status": "active", "limit": 1_000}))),
        ("dry run by a text that none has", rollback(json!({"text": "nowhere"}))),
    ]
}

impl Options {
    fn settings(&self) -> Vec<String> {
        vec![
            format!("limits.globals_max={}", self.open + 10_000),
            format!("limits.history_max={}", self.finished),
            "limits.retention_ms=86400000".to_owned(),
            // One connection of one application leaves all open globals.
            "limits.share_per_connection=100".to_owned(),
            "limits.share_per_application=100".to_owned(),
        ]
    }

    /// Measures a load without and with a console, in turns.
    async fn console(&self, server: &Server, admin: &Admin) -> Result<Vec<Row>> {
        let load = load(self.in_flight);
        let target = server.target()?;
        let (warm_up, length) = (self.measure.warm_up(), self.measure.length());
        let names =
            ["without", "with"].map(|it| format!("{} at a time, {it} a console", self.in_flight));
        let run = async |with: usize| {
            let console = if with == 1 { Some(admin.open_console().await?) } else { None };
            let (mut sample, foreign) = load::measure(target, &load, warm_up, length).await?;
            if let Some(percentiles) = sample.latencies.percentiles() {
                sample.figure("p99 µs", percentiles.p99_us);
            }
            drop(console);
            Ok::<(Sample, f64), anyhow::Error>((sample, foreign))
        };
        self.measure.rows(&names, run).await
    }
}

/// Returns a load of globals of two branches of one row.
fn load(in_flight: usize) -> Load {
    Load {
        wire: Wire::Stream,
        connections: 1,
        shape: Shape::of_one_row(),
        pace: Pace::Closed { in_flight: in_flight.max(1) },
        behind_max: None,
    }
}

/// Asks for the first page of a list, one time after the other.
async fn first_pages(name: &str, ask: impl AsyncFn() -> Result<String>, asks: u32) -> Result<Row> {
    let mut latencies = Latencies::default();
    let started = Instant::now();
    let mut bytes = 0;
    for _ in 0..asks.max(1) {
        let asked = Instant::now();
        bytes = ask().await?.len();
        latencies.record(asked.elapsed());
    }
    let per_second = f64::from(asks) / started.elapsed().as_secs_f64();
    let mut sample = Sample::new(per_second, latencies);
    if let Some(percentiles) = sample.latencies.percentiles() {
        sample.figure("longest ms", percentiles.max_us / 1e3);
    }
    sample.figure("bytes", bytes as f64);
    Ok(Row::of(name, vec![(sample, crate::idle::Disturbance::default())]))
}

/// A client of the admin API.
struct Admin {
    client: Client,
    url: String,
}

impl Admin {
    fn of(server: &Server) -> Result<Self> {
        let url = server.admin_url().context("the server is a coordinator")?;
        // Another part of the program may have chosen one, which does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { client: Client::builder().no_proxy().build()?, url })
    }

    async fn get(&self, path: &str) -> Result<String> {
        self.answer(path, self.client.get(format!("{}{path}", self.url))).await
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> Result<String> {
        let request = self.client.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.answer(path, request).await
    }

    async fn answer(&self, path: &str, request: RequestBuilder) -> Result<String> {
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("{path}: {status}: {text}");
        }
        Ok(text)
    }

    /// Runs globals until as many are remembered.
    async fn fill_history(&self, server: &Server, finished: u64) -> Result<()> {
        while self.remembered().await? < finished {
            let target = server.target()?;
            load::measure(target, &load(FILLERS), Duration::ZERO, FILL_FOR).await?;
        }
        Ok(())
    }

    async fn remembered(&self) -> Result<u64> {
        let status: serde_json::Value = serde_json::from_str(&self.get("/api/v1/status").await?)?;
        status["remembered"].as_u64().context("the status says how many are remembered")
    }

    /// Follows what three screens show, until the value is dropped. Returns when each has shown
    /// something.
    async fn open_console(&self) -> Result<JoinSet<()>> {
        let open = SCREENS.map(async |path| {
            let live =
                self.client.get(format!("{}/api/v1/live", self.url)).query(&[("path", path)]);
            let mut events = live.send().await?.error_for_status()?;
            events.chunk().await?.context("a live view ended at once")?;
            Ok::<_, anyhow::Error>(events)
        });
        let mut screens = JoinSet::new();
        for mut events in try_join_all(open).await? {
            screens.spawn(async move { while let Ok(Some(_)) = events.chunk().await {} });
        }
        Ok(screens)
    }

    /// Returns for how long views have kept the engine since the server's start.
    async fn held(&self) -> Result<Row> {
        let metrics = self.get("/metrics").await?;
        let value = |name: &str| -> Result<f64> {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            Ok(line.with_context(|| format!("/metrics has no {name}"))?.trim().parse()?)
        };
        let all = value(&format!("{HELD}_count"))?;
        let within = value(&format!("{HELD}_bucket{{le=\"{HELD_MAX}\"}}"))?;
        let within_1_ms = value(&format!("{HELD}_bucket{{le=\"0.001\"}}"))?;
        let figures = [
            ("views", all),
            ("mean µs", value(&format!("{HELD}_sum"))? / all.max(1.0) * 1e6),
            ("longer than 1 ms", all - within_1_ms),
            ("longer than 5 ms", all - within),
        ];
        Ok(Row::of_figures("the engine kept by a view", &figures))
    }
}

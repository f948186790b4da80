//! `recovery`: from `kill -9` to the first new transaction, with unfinished globals in the store.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ClientFrame, ClientMessage};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::child::Server;
use crate::load::{Connection, Shape, connect, hello, resource_id};
use crate::measure::RunDirectory;
use crate::report::{Report, Row};
use crate::soak::disk_bytes;

/// The timeout of the globals: they must not time out while the store is filled.
const TIMEOUT_MS: u64 = 24 * 60 * 60 * 1_000;
/// The number of globals that are filled at a time.
const AT_A_TIME: u64 = 500;

/// `handfast-bench recovery`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Unfinished globals in the store; may be given several times.
    #[arg(long, default_values_t = [1_000, 100_000, 1_000_000])]
    globals: Vec<u64>,
    /// Branches of each global, with one locked row each.
    #[arg(long, default_value_t = 2)]
    branches: u32,
    #[command(flatten)]
    place: RunDirectory,
}

/// Measures each selected number of globals.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("recovery");
    for &globals in &options.globals {
        report.push(measure(globals, options.branches, &options.place).await?);
    }
    Ok(report)
}

/// Measures one row: a number of unfinished globals, each with a number of branches.
pub(crate) async fn measure(globals: u64, branches: u32, place: &RunDirectory) -> Result<Row> {
    let directory = place.directory()?;
    let settings = [
        format!("limits.globals_max={}", globals + 1_000),
        // One connection of one application leaves all globals here, more than its default share.
        "limits.share_per_connection=100".to_owned(),
        "limits.share_per_application=100".to_owned(),
    ];
    let mut server = Server::coordinator(directory.path(), &settings).await?;
    let idle_bytes = server.process()?.resident_bytes()?;
    let mut client = Client::connect(&server, 0).await?;
    let filled_in = client.fill(globals, branches, |_| Shape::begin()).await?;
    let full_bytes = server.process()?.resident_bytes()?;
    let keys_used = client.last_key;
    drop(client);

    let killed_at = Instant::now();
    server.kill()?;
    let server = Server::coordinator(directory.path(), &settings).await?;
    let mut client = Client::connect(&server, keys_used).await?;
    client.fill(1, branches, |_| Shape::begin()).await?;
    let recovered_in = killed_at.elapsed();
    let recovered_bytes = server.process()?.resident_bytes()?;
    // A coordinator that goes on would change the files while they are measured.
    drop((client, server));

    let files = disk_bytes(directory.path());
    // The files are in the page cache, as they were for the restart.
    let read_in = read_all(directory.path())?;
    let each = |bytes: u64| bytes.saturating_sub(idle_bytes) as f64 / globals as f64;
    let locks = f64::from(branches);
    let figures = [
        ("seconds to the first transaction", recovered_in.as_secs_f64()),
        ("seconds to read the same bytes", read_in.as_secs_f64()),
        ("disk MB", files as f64 / 1e6),
        ("resident MB idle", idle_bytes as f64 / 1e6),
        ("resident MB full", full_bytes as f64 / 1e6),
        ("resident MB recovered", recovered_bytes as f64 / 1e6),
        ("resident bytes a global", each(full_bytes)),
        ("resident bytes a global, by locks", each(full_bytes) / locks),
        ("globals filled a second", globals as f64 / filled_in.as_secs_f64()),
    ];
    Ok(Row::of_figures(&format!("recovery, {globals} unfinished globals"), &figures))
}

/// Fills a coordinator with unfinished globals of one branch, begun as `begin` says of the first,
/// the second and so on.
pub(crate) async fn fill(
    server: &Server,
    globals: u64,
    begin: impl Fn(u64) -> v1::BeginRequest,
) -> Result<()> {
    Client::connect(server, 0).await?.fill(globals, 1, begin).await.map(drop)
}

/// A client that begins and registers, and never ends anything.
struct Client {
    connection: Connection,
    random: SmallRng,
    /// The next row to lock. Each row is locked once: of millions of random rows some would be
    /// equal.
    last_key: u64,
}

impl Client {
    async fn connect(server: &Server, last_key: u64) -> Result<Self> {
        let mut connection = connect(server.endpoint(), hello(0)).await?;
        let greeted = connection.incoming.message().await?;
        greeted.context("the coordinator ended the stream instead of greeting")?;
        let random = SmallRng::from_rng(&mut rand::rng());
        Ok(Self { connection, random, last_key })
    }

    /// Begins globals and registers their branches.
    async fn fill(
        &mut self,
        globals: u64,
        branches: u32,
        begin: impl Fn(u64) -> v1::BeginRequest,
    ) -> Result<Duration> {
        let started = Instant::now();
        let mut left = globals;
        while left > 0 {
            let count = left.min(AT_A_TIME);
            let first = globals - left;
            let begins = (first..first + count)
                .map(|number| v1::BeginRequest { timeout_ms: TIMEOUT_MS, ..begin(number) })
                .map(Ask::Begin)
                .collect();
            let mut xids = Vec::new();
            for answer in self.ask(begins).await? {
                let Answer::Begin(reply) = answer else { bail!("not begun: {answer:?}") };
                xids.push(reply.xid);
            }
            for _ in 0..branches {
                self.register(&xids).await?;
            }
            left -= count;
        }
        Ok(started.elapsed())
    }

    async fn register(&mut self, xids: &[String]) -> Result<()> {
        let resource = resource_id(0);
        let branch = |xid: &String| {
            self.last_key += 1;
            Shape::registration_of(xid, &resource, &[self.last_key], &mut self.random)
        };
        let asks = xids.iter().map(branch).map(Ask::RegisterBranch).collect();
        for answer in self.ask(asks).await? {
            let Answer::RegisterBranch(_) = answer else { bail!("not registered: {answer:?}") };
        }
        Ok(())
    }

    /// Sends all requests in one frame, and returns the replies as they arrive.
    async fn ask(&mut self, asks: Vec<Ask>) -> Result<Vec<Answer>> {
        let wanted = asks.len();
        let messages = (1..).zip(asks).map(|(id, ask)| ClientMessage { id, body: Some(ask) });
        self.connection.outgoing.send(ClientFrame { messages: messages.collect() })?;
        let mut answers = Vec::new();
        while answers.len() < wanted {
            let frame = self.connection.incoming.message().await?;
            let frame = frame.context("the coordinator ended the stream")?;
            let to_us = frame.messages.into_iter().filter(|message| message.id > 0);
            answers.extend(to_us.filter_map(|message| message.body));
        }
        Ok(answers)
    }
}

/// Measures how long it takes to read every file below a folder.
fn read_all(directory: &Path) -> Result<Duration> {
    let started = Instant::now();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                std::hint::black_box(std::fs::read(&path)?);
            }
        }
    }
    Ok(started.elapsed())
}

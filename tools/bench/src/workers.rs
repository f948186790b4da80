//! Clients that repeat the same operation, each with a connection of its own.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::join_all;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::idle::IdleWatch;
use crate::load::Window;
use crate::sample::{PerOperation, Sample};
use crate::statistics::Latencies;
use crate::usage::Process;

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) enum OperationEnd {
    Well,
    /// It succeeded. The value is the length of the part that is measured.
    Took(Duration),
    /// It failed as the workload expects sometimes. It is counted by this name, not as an error.
    Expected(&'static str),
}

/// The counts of all clients together.
#[derive(Debug, Default)]
struct Counted {
    latencies: Latencies,
    by_client: Vec<u64>,
    errors: std::collections::BTreeMap<String, u64>,
    expected: std::collections::BTreeMap<&'static str, u64>,
}

impl Counted {
    fn done(&mut self, client: usize, latency: Duration) {
        self.latencies.record(latency);
        self.by_client[client] += 1;
    }

    fn failed(&mut self, error: &anyhow::Error) {
        *self.errors.entry(format!("{error:#}")).or_default() += 1;
    }
}

/// Runs clients for the time of a window. `servers` are the processes that work for them. An
/// operation that fails as expected is not counted as done.
///
/// The window opens when each client has run its operation once, so that neither connecting nor
/// reading a table's description counts, however long it takes on a busy machine.
pub(crate) async fn work(
    clients: usize,
    times: (Duration, Duration),
    servers: &[Process],
    operation: impl AsyncFn(usize, &mut SmallRng) -> Result<OperationEnd>,
) -> Result<(Sample, f64)> {
    let by_client = vec![0; clients];
    let counted = RefCell::new(Counted { by_client, ..Counted::default() });
    join_all((0..clients).map(|client| first(client, &counted, &operation))).await;
    let window = Window::after(times.0, times.1);
    let loops = (0..clients).map(|client| one(client, window, &counted, &operation));
    let (_, cost) = tokio::join!(join_all(loops), cost_within(window, servers));
    let (client_cpu, server_cpu, foreign) = cost?;
    let counted = counted.into_inner();
    let ended: u64 = counted.by_client.iter().sum();
    let mut sample = Sample::new(ended as f64 / window.seconds(), counted.latencies);
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / ended.max(1) as f64;
    sample.cpu_us = Some(PerOperation { client: each(client_cpu), server: each(server_cpu) });
    sample.resident_bytes = Some(Process::own().resident_bytes()?);
    sample.errors = counted.errors;
    for (name, count) in counted.expected {
        sample.figure(name, count as f64);
    }
    let slowest = counted.by_client.iter().min().copied().unwrap_or(0);
    let mean = ended as f64 / clients.max(1) as f64;
    sample.figure("slowest client, share of the mean", slowest as f64 / mean.max(1.0));
    Ok((sample, foreign))
}

/// Runs a client's first operation, of which only an error counts.
async fn first(
    client: usize,
    counted: &RefCell<Counted>,
    operation: &impl AsyncFn(usize, &mut SmallRng) -> Result<OperationEnd>,
) {
    let mut random = SmallRng::from_rng(&mut rand::rng());
    if let Err(error) = operation(client, &mut random).await {
        counted.borrow_mut().failed(&error);
    }
}

async fn one(
    client: usize,
    window: Window,
    counted: &RefCell<Counted>,
    operation: &impl AsyncFn(usize, &mut SmallRng) -> Result<OperationEnd>,
) {
    // The seed differs between runs: branch ids are unique in a database.
    let mut random = SmallRng::from_rng(&mut rand::rng());
    let mut begun = Instant::now();
    while begun < window.until {
        let ended = operation(client, &mut random).await;
        let now = Instant::now();
        let mut counted = counted.borrow_mut();
        match ended {
            // An expected failure is tried again, and its time counts.
            Ok(OperationEnd::Expected(name)) => {
                *counted.expected.entry(name).or_default() += 1;
                if now < window.until {
                    continue;
                }
            }
            Ok(OperationEnd::Well) if window.holds(now) => counted.done(client, now - begun),
            Ok(OperationEnd::Took(latency)) if window.holds(now) => counted.done(client, latency),
            Ok(OperationEnd::Well | OperationEnd::Took(_)) => {}
            Err(error) => counted.failed(&error),
        }
        begun = now;
    }
}

async fn cost_within(window: Window, servers: &[Process]) -> Result<(Duration, Duration, f64)> {
    let own = Process::own();
    // A database server may end processes by itself, and their cost is not known.
    let all = || servers.iter().map(|server| server.cpu().ok()).collect::<Vec<_>>();
    tokio::time::sleep_until(window.from.into()).await;
    let (own_before, before, watch) = (own.cpu()?, all(), IdleWatch::start()?);
    tokio::time::sleep_until(window.until.into()).await;
    let client = own.cpu()? - own_before;
    let spent = all().into_iter().zip(before).map(|(after, before)| Some(after? - before?));
    let server = spent.flatten().sum();
    Ok((client, server, watch.foreign_cores(client + server)?))
}

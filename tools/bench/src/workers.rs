//! Clients that repeat the same operation, each with a connection of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
#[derive(Debug)]
pub(crate) struct Counted {
    latencies: Latencies,
    by_client: Vec<u64>,
    errors: BTreeMap<String, u64>,
    expected: BTreeMap<&'static str, u64>,
}

impl Counted {
    pub(crate) fn new(clients: usize) -> Self {
        Self {
            latencies: Latencies::default(),
            by_client: vec![0; clients],
            errors: BTreeMap::new(),
            expected: BTreeMap::new(),
        }
    }

    /// Counts an operation of a client that was done.
    pub(crate) fn done(&mut self, client: usize, latency: Duration) {
        self.latencies.record(latency);
        self.by_client[client] += 1;
    }

    /// Counts operations that failed as the workload expects.
    pub(crate) fn expected(&mut self, name: &'static str, count: u64) {
        *self.expected.entry(name).or_default() += count;
    }

    /// Counts operations that failed otherwise.
    pub(crate) fn failed(&mut self, error: String, count: u64) {
        *self.errors.entry(error).or_default() += count;
    }

    /// Sums up what the clients in a process did within the window.
    pub(crate) fn into_sample(self, window: Window, cost: WindowCost) -> Result<Sample> {
        let ended: u64 = self.by_client.iter().sum();
        let mut sample = Sample::new(ended as f64 / window.seconds(), self.latencies);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / ended.max(1) as f64;
        let (client, server) = (each(cost.client_cpu), each(cost.server_cpu));
        sample.cpu_us = Some(PerOperation { client, server });
        sample.resident_bytes = Some(cost.clients.resident_bytes()?);
        sample.errors = self.errors;
        for (name, count) in self.expected {
            sample.figure(name, count as f64);
        }
        let slowest = self.by_client.iter().min().copied().unwrap_or(0);
        let mean = ended as f64 / self.by_client.len().max(1) as f64;
        sample.figure("slowest client, share of the mean", slowest as f64 / mean.max(1.0));
        Ok(sample)
    }
}

/// The cost of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowCost {
    /// The process of the clients.
    clients: Process,
    client_cpu: Duration,
    server_cpu: Duration,
    /// The cores that other processes took.
    pub(crate) foreign_cores: f64,
}

/// Runs clients for the time of a window. `servers` are the processes that work for them. An
/// operation that fails as expected is not counted as done, but by its name.
///
/// The window opens when each client has run its operation once, so that neither connecting nor
/// reading a table's description counts, however long it takes on a busy machine.
pub(crate) async fn work(
    clients: usize,
    times: (Duration, Duration),
    servers: &[Process],
    operation: impl AsyncFn(usize, &mut SmallRng) -> Result<OperationEnd>,
) -> Result<(Sample, f64)> {
    let counted = RefCell::new(Counted::new(clients));
    join_all((0..clients).map(|client| first(client, &counted, &operation))).await;
    let window = Window::after(times.0, times.1);
    let loops = (0..clients).map(|client| one(client, window, &counted, &operation));
    let (_, cost) = tokio::join!(join_all(loops), cost_within(window, Process::own(), servers));
    let cost = cost?;
    Ok((counted.into_inner().into_sample(window, cost)?, cost.foreign_cores))
}

/// Runs a client's first operation, of which only an error counts.
async fn first(
    client: usize,
    counted: &RefCell<Counted>,
    operation: &impl AsyncFn(usize, &mut SmallRng) -> Result<OperationEnd>,
) {
    let mut random = SmallRng::from_rng(&mut rand::rng());
    if let Err(error) = operation(client, &mut random).await {
        counted.borrow_mut().failed(format!("{error:#}"), 1);
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
                if window.holds(now) {
                    counted.expected(name, 1);
                }
                if now < window.until {
                    continue;
                }
            }
            Ok(OperationEnd::Well) if window.holds(now) => counted.done(client, now - begun),
            Ok(OperationEnd::Took(latency)) if window.holds(now) => counted.done(client, latency),
            Ok(OperationEnd::Well | OperationEnd::Took(_)) => {}
            Err(error) => counted.failed(format!("{error:#}"), 1),
        }
        begun = now;
    }
}

/// Measures the cost of a window, of the process with the clients and of those that work for them.
pub(crate) async fn cost_within(
    window: Window,
    clients: Process,
    servers: &[Process],
) -> Result<WindowCost> {
    // A database server may end processes by itself, and their cost is not known.
    let all = || servers.iter().map(|server| server.cpu().ok()).collect::<Vec<_>>();
    tokio::time::sleep_until(window.from.into()).await;
    let (clients_before, before, watch) = (clients.cpu()?, all(), IdleWatch::start()?);
    tokio::time::sleep_until(window.until.into()).await;
    let client_cpu = clients.cpu()? - clients_before;
    let spent = all().into_iter().zip(before).map(|(after, before)| Some(after? - before?));
    let server_cpu = spent.flatten().sum();
    let foreign_cores = watch.foreign_cores(client_cpu + server_cpu)?;
    Ok(WindowCost { clients, client_cpu, server_cpu, foreign_cores })
}

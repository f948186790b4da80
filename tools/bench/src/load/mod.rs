//! The coordinator's load: globals of one shape, over the stream or by unary calls, closed or open
//! loop.
//!
//! The stream's client is one state machine for each connection and has no task for a transaction,
//! so that the server and the wire are measured rather than the wake-ups of the load generator. It
//! does not know which server answers: the coordinator, or the echo that measures its bound.

mod alarm;
mod carry;
mod counters;
mod lent;
mod pace;
mod seata;
mod shape;
mod stream;
mod stream_client;
mod unary;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::try_join_all;

use crate::idle::IdleWatch;
use crate::sample::Sample;
use crate::usage::Process;

pub(crate) use alarm::Alarm;
pub(crate) use counters::Counters;
pub(crate) use pace::{Arrivals, Pace};
pub(crate) use shape::{Shape, done, hello, resource, resource_id};
pub(crate) use stream::{Connection, connect};

/// The protocol between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// One long stream for each connection, with requests multiplexed.
    Stream,
    /// One call for each request.
    Unary,
    /// Seata's own protocol, as its Java clients use it.
    Seata,
}

impl Wire {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Unary => "unary",
            Self::Seata => "Seata's wire",
        }
    }
}

/// A server as a load sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Its process, to measure its cost. Without one the cost is not known.
    pub(crate) process: Option<Process>,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) wire: Wire,
    pub(crate) connections: usize,
    pub(crate) shape: Shape,
    /// The pace of all connections together.
    pub(crate) pace: Pace,
    /// No transaction begins while phase two is behind by this many branches, over all connections.
    /// The throughput is then what the server keeps up with, and not what it defers.
    pub(crate) behind_max: Option<u64>,
}

impl Load {
    /// Returns the load of one of its connections.
    fn share(&self) -> Self {
        let connections = self.connections as u64;
        let behind_max = self.behind_max.map(|all| all.div_ceil(connections));
        Self { pace: self.pace.share_of(self.connections), behind_max, ..*self }
    }
}

/// The time within which events count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Window {
    /// Returns a window of a length, after a warm-up.
    pub(crate) fn after(warm_up: Duration, length: Duration) -> Self {
        let from = Instant::now() + warm_up;
        Self { from, until: from + length }
    }

    /// Returns whether a transaction that ended at a point in time counts.
    pub(crate) fn holds(&self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.until - self.from).as_secs_f64()
    }
}

/// Puts a load on a server, and measures both within the window. Also returns the cores that other
/// processes took meanwhile.
pub(crate) async fn measure(
    target: Target,
    load: &Load,
    warm_up: Duration,
    length: Duration,
) -> Result<(Sample, f64)> {
    let window = Window::after(warm_up, length);
    let share = load.share();
    let runs = (0..load.connections).map(|number| {
        let task = tokio::spawn(connection(target.address, share, window, number));
        async { task.await.context("a connection's task panicked")? }
    });
    let (all, cost) = tokio::join!(try_join_all(runs), cost_within(target, window));
    let (cost, all) = (cost?, all?);
    let mut counters = Counters::default();
    all.iter().for_each(|of| counters.add(of));
    Ok((counters.into_sample(window.seconds(), &cost), cost.foreign_cores))
}

/// Runs one connection's part of a load.
async fn connection(
    address: SocketAddr,
    share: Load,
    window: Window,
    number: usize,
) -> Result<Counters> {
    let endpoint = format!("http://{address}");
    match share.wire {
        Wire::Stream => {
            let stream = connect(endpoint, hello(number)).await?;
            carry::run(stream, share, window, number).await
        }
        Wire::Seata => {
            let client = seata::SeataClient::connect(address, &resource_id(number)).await?;
            carry::run(client, share, window, number).await
        }
        Wire::Unary => unary::run(endpoint, share, window, number).await,
    }
}

/// The cost of client and server within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) client_cpu: Duration,
    /// The cost of the server, if its process is known.
    pub(crate) server: Option<ServerCost>,
    pub(crate) foreign_cores: f64,
}

/// The cost of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerCost {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

/// Waits for the window to pass, and returns its cost.
pub(crate) async fn cost_within(target: Target, window: Window) -> Result<Cost> {
    let (own, other) = (Process::own(), target.process);
    tokio::time::sleep_until(window.from.into()).await;
    let own_before = own.cpu()?;
    let other_before = other.map(Process::cpu).transpose()?.unwrap_or_default();
    let watch = IdleWatch::start()?;
    tokio::time::sleep_until(window.until.into()).await;
    let client_cpu = own.cpu()? - own_before;
    let of_server = |other: Process| {
        let (cpu, resident_bytes) = (other.cpu()? - other_before, other.resident_bytes()?);
        Ok::<_, anyhow::Error>(ServerCost { cpu, resident_bytes })
    };
    let server = other.map(of_server).transpose()?;
    let ours = client_cpu + server.unwrap_or_default().cpu;
    Ok(Cost { client_cpu, server, foreign_cores: watch.foreign_cores(ours)? })
}

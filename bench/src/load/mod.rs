//! The coordinator's load: globals of one shape, over the stream or by unary calls, closed or open
//! loop.
//!
//! The stream's client is one state machine a connection and no task a transaction, so that what is
//! measured is the server and the wire rather than the wake-ups of the load generator. It knows
//! nothing of which server answers: the coordinator, or the echo that its bound is measured with.

mod alarm;
mod pace;
mod shape;
mod stream;
mod talk;
mod tally;
mod unary;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::try_join_all;

use crate::child::Server;
use crate::idle::Watch;
use crate::sample::Sample;
use crate::usage::Process;

pub(crate) use alarm::Alarm;
pub(crate) use pace::{Arrivals, Pace};
pub(crate) use shape::{Shape, done, hello, resource, resource_id};
pub(crate) use stream::{Connection, connect};
pub(crate) use tally::Tally;

/// How the client speaks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// One long stream a connection, requests multiplexed.
    Stream,
    /// One call a request.
    Unary,
}

impl Wire {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Unary => "unary",
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) wire: Wire,
    pub(crate) connections: usize,
    pub(crate) shape: Shape,
    /// Of all connections together.
    pub(crate) pace: Pace,
}

/// When what happens counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Window {
    /// So long, after a warm-up.
    pub(crate) fn after(warm_up: Duration, length: Duration) -> Self {
        let from = Instant::now() + warm_up;
        Self { from, until: from + length }
    }

    /// Whether a transaction that ended at this point counts.
    pub(crate) fn holds(&self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.until - self.from).as_secs_f64()
    }
}

/// Puts a load on a server and measures both within the window. Gives the cores that other
/// processes took meanwhile, too.
pub(crate) async fn measure(
    server: &Server,
    load: &Load,
    warm_up: Duration,
    length: Duration,
) -> Result<(Sample, f64)> {
    let window = Window::after(warm_up, length);
    let endpoint = server.endpoint();
    let share = load.pace.share_of(load.connections);
    let runs = (0..load.connections).map(|number| {
        let (endpoint, shape) = (endpoint.clone(), load.shape);
        let task = match load.wire {
            Wire::Stream => tokio::spawn(stream::run(endpoint, shape, share, window, number)),
            Wire::Unary => tokio::spawn(unary::run(endpoint, shape, share, window, number)),
        };
        async { task.await.context("a connection's task panicked")? }
    });
    let (tallies, cost) = tokio::join!(try_join_all(runs), cost_within(server, window));
    let (cost, tallies) = (cost?, tallies?);
    let mut tally = Tally::default();
    tallies.iter().for_each(|of| tally.add(of));
    Ok((tally.into_sample(window.seconds(), &cost), cost.foreign_cores))
}

/// What client and server spent within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) client_cpu: Duration,
    pub(crate) server_cpu: Duration,
    pub(crate) server_resident_bytes: u64,
    pub(crate) foreign_cores: f64,
}

/// Waits for the window to pass and tells what it cost.
pub(crate) async fn cost_within(server: &Server, window: Window) -> Result<Cost> {
    let (own, other) = (Process::own(), server.process()?);
    tokio::time::sleep_until(window.from.into()).await;
    let (own_before, other_before, watch) = (own.cpu()?, other.cpu()?, Watch::start()?);
    tokio::time::sleep_until(window.until.into()).await;
    let (client_cpu, server_cpu) = (own.cpu()? - own_before, other.cpu()? - other_before);
    Ok(Cost {
        client_cpu,
        server_cpu,
        server_resident_bytes: other.resident_bytes()?,
        foreign_cores: watch.foreign_cores(client_cpu + server_cpu)?,
    })
}

//! The coordinator's load: globals of one shape, over the stream or by unary calls, closed or open
//! loop.
//!
//! The stream's client is one state machine a connection and no task a transaction, so that what is
//! measured is the server and the wire rather than the wake-ups of the load generator. It knows
//! nothing of which server answers: the coordinator, or the echo that its bound is measured with.

mod alarm;
mod carry;
mod pace;
mod seata;
mod shape;
mod stream;
mod talk;
mod tally;
mod unary;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::try_join_all;

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
    /// Seata's own protocol, as its Java clients speak it.
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
    /// Its process, to see what it costs; without one that is not known.
    pub(crate) process: Option<Process>,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) wire: Wire,
    pub(crate) connections: usize,
    pub(crate) shape: Shape,
    /// Of all connections together.
    pub(crate) pace: Pace,
    /// Nothing begins while phase two is behind by so many branches, over all connections: what is
    /// measured then is what the server keeps up with, not what it puts off.
    pub(crate) behind_max: Option<u64>,
}

impl Load {
    /// What one of its connections has to do.
    fn share(&self) -> Self {
        let connections = self.connections as u64;
        let behind_max = self.behind_max.map(|all| all.div_ceil(connections));
        Self { pace: self.pace.share_of(self.connections), behind_max, ..*self }
    }
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
    let (tallies, cost) = tokio::join!(try_join_all(runs), cost_within(target, window));
    let (cost, tallies) = (cost?, tallies?);
    let mut tally = Tally::default();
    tallies.iter().for_each(|of| tally.add(of));
    Ok((tally.into_sample(window.seconds(), &cost), cost.foreign_cores))
}

/// One connection's part of a load.
async fn connection(
    address: SocketAddr,
    share: Load,
    window: Window,
    number: usize,
) -> Result<Tally> {
    let endpoint = format!("http://{address}");
    match share.wire {
        Wire::Stream => {
            let stream = connect(endpoint, hello(number)).await?;
            carry::run(stream, share, window, number).await
        }
        Wire::Seata => {
            let line = seata::Line::connect(address, &resource_id(number)).await?;
            carry::run(line, share, window, number).await
        }
        Wire::Unary => unary::run(endpoint, share, window, number).await,
    }
}

/// What client and server spent within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) client_cpu: Duration,
    /// Of the server, if it can be seen.
    pub(crate) server: Option<ServerCost>,
    pub(crate) foreign_cores: f64,
}

/// What a server spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerCost {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

/// Waits for the window to pass and tells what it cost.
pub(crate) async fn cost_within(target: Target, window: Window) -> Result<Cost> {
    let (own, other) = (Process::own(), target.process);
    tokio::time::sleep_until(window.from.into()).await;
    let own_before = own.cpu()?;
    let other_before = other.map(Process::cpu).transpose()?.unwrap_or_default();
    let watch = Watch::start()?;
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

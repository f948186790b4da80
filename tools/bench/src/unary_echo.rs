//! Registrations by unary calls to a server that only replies: what gRPC itself allows.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tonic::transport::{Channel, Endpoint};

use crate::child::Server;
use crate::load::{Counters, Load, Pace, Shape, Window, cost_within};
use crate::sample::Sample;

/// Keeps a number of calls in flight.
pub(crate) async fn measure(
    server: &Server,
    load: &Load,
    (warm_up, length): (Duration, Duration),
) -> Result<(Sample, f64)> {
    let Load { shape, connections, pace: Pace::Closed { in_flight }, .. } = *load else {
        bail!("an echo by unary calls is measured in a closed loop");
    };
    let connect = || async {
        Ok::<_, anyhow::Error>(
            Endpoint::from_shared(server.endpoint())?.tcp_nodelay(true).connect().await?,
        )
    };
    let channels = try_join_all((0..connections).map(|_| connect())).await?;
    let window = Window::after(warm_up, length);
    let counters = Arc::<Mutex<Counters>>::default();
    let callers = (0..in_flight).map(|number| {
        let channel = channels[number % channels.len()].clone();
        let task = tokio::spawn(call(channel, shape, window, number, Arc::clone(&counters)));
        async { task.await.context("a caller panicked")? }
    });
    let (ended, cost) = tokio::join!(try_join_all(callers), cost_within(server.target()?, window));
    let (_, cost) = (ended?, cost?);
    let counters =
        std::mem::take(&mut *counters.lock().expect("no holder of the counters's lock panics"));
    Ok((counters.into_sample(window.seconds(), &cost), cost.foreign_cores))
}

async fn call(
    channel: Channel,
    shape: Shape,
    window: Window,
    number: usize,
    counters: Arc<Mutex<Counters>>,
) -> Result<()> {
    let mut client = CoordinatorClient::new(channel);
    let mut random = SmallRng::seed_from_u64(number as u64);
    let mut begun = Instant::now();
    while begun < window.until {
        let request = shape.registration("127.0.0.1:7091:1234567", "postgres:1/shop", &mut random);
        client.register_branch(request).await?;
        let now = Instant::now();
        if window.holds(now) {
            counters.lock().expect("no holder of the counters's lock panics").end(now - begun);
        }
        begun = now;
    }
    Ok(())
}

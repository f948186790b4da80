//! The same globals by unary calls: one task for each global, one call for each request.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{self, Decision};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::shape::{Shape, done, hello, resource_id};
use super::{Alarm, Arrivals, Counters, Load, Pace, Window};

/// How long after the window phase two may take to reach every branch.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The state that the tasks of one connection share.
#[derive(Clone, Debug)]
struct Caller {
    client: CoordinatorClient<Channel>,
    shape: Shape,
    resource: Arc<str>,
    window: Window,
    counters: Arc<Mutex<Counters>>,
}

/// Loads one connection for the time of the window, and returns the counts.
pub(super) async fn run(
    endpoint: String,
    share: Load,
    window: Window,
    number: usize,
) -> Result<Counters> {
    let Load { shape, pace, behind_max, .. } = share;
    ensure!(behind_max.is_none(), "unary calls do not look at how far phase two is behind");
    let channel = Endpoint::from_shared(endpoint)?.tcp_nodelay(true).connect().await?;
    let client = CoordinatorClient::new(channel);
    let resource = resource_id(number).into();
    let caller = Caller { client, shape, resource, window, counters: Arc::default() };
    let calls = caller.subscribe(number).await?;
    let finishing = tokio::spawn(caller.clone().finish_phase_two(calls, hello(number).client_id));
    caller.begin_all(pace, number).await?;
    caller.drained().await;
    finishing.abort();
    let counters = caller.lock().clone();
    Ok(counters)
}

impl Caller {
    async fn subscribe(&self, number: usize) -> Result<tonic::Streaming<v1::PhaseTwoFrame>> {
        Ok(self.client.clone().subscribe(hello(number)).await.context("subscribing")?.into_inner())
    }

    async fn begin_all(&self, pace: Pace, number: usize) -> Result<()> {
        let mut random = SmallRng::seed_from_u64(number as u64);
        let mut arrivals = Arrivals::new(pace, Instant::now(), self.window.until);
        let alarm = Alarm::new()?;
        let mut open = JoinSet::new();
        while !arrivals.over(Instant::now()) {
            while let Some(due) = arrivals.due(Instant::now(), open.len(), &mut random) {
                let random = SmallRng::from_rng(&mut random);
                open.spawn(self.clone().transact(pace, due, random));
            }
            // In a closed loop each task goes on by itself, and none is begun later.
            let Some(next) = arrivals.next() else { break };
            alarm.reach(next).await?;
            while open.try_join_next().is_some() {}
        }
        while let Some(ended) = open.join_next().await {
            ended.context("a transaction's task panicked")?;
        }
        Ok(())
    }

    /// Runs one global, or in a closed loop one after the other.
    async fn transact(mut self, pace: Pace, mut due: Instant, mut random: SmallRng) {
        loop {
            let ended = self.global(&mut random).await;
            let now = Instant::now();
            {
                let mut counters = self.lock();
                match ended {
                    Ok(()) if self.window.holds(now) => counters.end(now - due),
                    Ok(()) => {}
                    Err(status) => counters.error(&code_of(&status)),
                }
            }
            let goes_on = matches!(pace, Pace::Closed { .. }) && now < self.window.until;
            if !goes_on {
                return;
            }
            due = now;
        }
    }

    async fn global(&mut self, random: &mut SmallRng) -> Result<(), Status> {
        let xid = self.client.begin(Shape::begin()).await?.into_inner().xid;
        for registered in 0..self.shape.branches {
            let request = self.shape.registration(&xid, &self.resource, random);
            if let Err(refusal) = self.client.register_branch(request).await {
                self.lock().owe(registered.into());
                self.client.end(Shape::end(&xid, Decision::RollBack)).await?;
                return Err(refusal);
            }
        }
        // The branches are counted before the request: phase two may come before its reply.
        self.lock().owe(self.shape.branches.into());
        let decision = self.shape.decision(random);
        self.client.end(Shape::end(&xid, decision)).await?;
        Ok(())
    }

    async fn finish_phase_two(
        mut self,
        mut calls: tonic::Streaming<v1::PhaseTwoFrame>,
        client_id: String,
    ) {
        loop {
            let frame = match calls.message().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(status) => return self.lock().error(&code_of(&status)),
            };
            let branches: Vec<v1::BranchOutcome> = frame.calls.into_iter().flat_map(done).collect();
            let count = branches.len() as u64;
            let outcome = Some(v1::PhaseTwoOutcome { branches });
            let request = v1::FinishPhaseTwoRequest { outcome, client_id: client_id.clone() };
            let told = self.client.finish_phase_two(request).await;
            let mut counters = self.lock();
            match told {
                Ok(_) => counters.finished += count,
                Err(status) => counters.error(&code_of(&status)),
            }
        }
    }

    async fn drained(&self) {
        let give_up_at = Instant::now() + DRAIN_WITHIN;
        while self.behind() && Instant::now() < give_up_at {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn behind(&self) -> bool {
        let counters = self.lock();
        counters.finished < counters.owed
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().expect("no holder of the counters's lock panics")
    }
}

/// Returns the coordinator's own error code, if there is one.
fn code_of(status: &Status) -> String {
    let own = status.metadata().get("handfast-code").and_then(|code| code.to_str().ok());
    own.map_or_else(|| Code::description(&status.code()).to_owned(), str::to_owned)
}

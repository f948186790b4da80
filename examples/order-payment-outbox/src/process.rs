//! Relays and consumers as processes of their own, and their death.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use handfast_example_shop::database::Pool;
use handfast_example_shop::{Site, Worker};

use crate::broker::Broker;
use crate::work::{PARTS, WorkPart};

/// A relay or a consumer works on few things at a time.
const CONNECTIONS: u32 = 4;

/// The input of a process.
#[derive(Serialize, Deserialize)]
struct ProcessInput {
    part: WorkPart,
    database: String,
    broker: String,
    run: String,
}

/// The processes of a run, if it has them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Processes {
    all: Arc<Mutex<Vec<Worker>>>,
}

impl Processes {
    /// Starts a process for each part of the work.
    pub(crate) async fn start(&self, site: &Site<'_>, broker_url: &str) -> Result<()> {
        let mut all = self.all.lock().await;
        for part in PARTS {
            let input = ProcessInput {
                part,
                database: part.owner().place(site.databases).to_owned(),
                broker: broker_url.to_owned(),
                run: site.databases.run().to_owned(),
            };
            all.push(Worker::start(serde_json::to_string(&input)?).await?);
        }
        Ok(())
    }

    /// Kills a process `times` times: one drawn at random, after a number of orders that is drawn
    /// at random too.
    pub(crate) async fn kill(
        &self,
        times: u32,
        total: usize,
        mut ended: watch::Receiver<usize>,
    ) -> Result<()> {
        let mut after: Vec<usize> =
            (0..times).map(|_| rand::rng().random_range(0..total.max(1))).collect();
        after.sort_unstable();
        for threshold in after {
            ended.wait_for(|ended| *ended >= threshold).await?;
            let mut all = self.all.lock().await;
            let drawn = rand::rng().random_range(0..all.len().max(1));
            all.get_mut(drawn).context("there are processes to kill")?.kill_and_restart().await?;
        }
        Ok(())
    }

    /// Ends them, before the databases go.
    pub(crate) async fn stop(&self) -> Result<()> {
        for mut worker in self.all.lock().await.drain(..) {
            worker.kill().await?;
        }
        Ok(())
    }
}

/// In the process: plays its part, for as long as it lives.
pub(crate) async fn play(input: &str) -> Result<()> {
    let input: ProcessInput =
        serde_json::from_str(input).context("reading the input of a process")?;
    let broker = Broker::connect(&input.broker, &input.run).await?;
    let pool = Pool::open(&input.database, CONNECTIONS).await?;
    input.part.prepare(&broker).await?.run(pool, broker, std::future::pending()).await
}

/// Makes the subscriptions of all consumers, so that nothing is published before them.
pub(crate) async fn announce(broker: &Broker) -> Result<()> {
    ensure!(
        broker.is_shared(),
        "--kill-workers needs a --broker that other processes reach, not in-process"
    );
    for part in PARTS {
        // The subscription is made and closed at once: nothing has been published yet.
        drop(part.prepare(broker).await?);
    }
    Ok(())
}

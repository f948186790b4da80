//! Polls every coordinator for whether it leads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handfast_server::admin::model::NodeStanding;
use handfast_test_services::AdminClient;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::leads::LeadSighting;
use crate::event::now;

/// The admin API has no request that waits for a change, and this bounds how exactly the time
/// without a leader is known.
const ASK_EVERY: Duration = Duration::from_millis(20);

type Sightings = Arc<Mutex<Vec<LeadSighting>>>;

/// A task for each coordinator. Dropping it ends them.
#[derive(Debug)]
pub struct LeadWatch {
    seen: Sightings,
    asking: Vec<JoinHandle<()>>,
}

impl LeadWatch {
    /// Begins to ask these coordinators, which are numbered in this order.
    #[must_use]
    pub fn start(coordinators: impl IntoIterator<Item = AdminClient>) -> Self {
        let seen = Sightings::default();
        let start = |(node, client)| tokio::spawn(ask(node, client, Arc::clone(&seen)));
        let asking = coordinators.into_iter().enumerate().map(start).collect();
        Self { seen, asking }
    }

    /// Returns every sighting so far.
    #[must_use]
    pub fn sightings(&self) -> Vec<LeadSighting> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for LeadWatch {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}

async fn ask(node: usize, client: AdminClient, seen: Sightings) {
    loop {
        // A coordinator that is down does not lead.
        if let Ok(view) = client.cluster().await
            && let (NodeStanding::Leading, Some(epoch)) = (view.standing, view.epoch)
        {
            let sighting = LeadSighting { at: now(), node, epoch };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(sighting);
        }
        sleep(ASK_EVERY).await;
    }
}

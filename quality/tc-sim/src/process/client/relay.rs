//! Relays the events of a database to the broker: the rounds of `outbox/relay`, with the product's
//! rules for lanes, horizon, claims, order and pauses.
//!
//! Not modelled: bells, events that a broker refuses, parking, and the removal of old rows.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use handfast_rm_core::relay::{PublishResult, Round, VisibilityHorizon, Wait, each_key_in_order};

use super::ClientProcess;
use crate::model::database::{ClaimRequest, Database, DatabaseError, Flavour};
use crate::model::values::{Event, Seq};
use crate::world::SECOND;

/// How long a relay keeps its lanes without renewing them.
const LEASE: u64 = 4 * SECOND;
/// The longest pause between two rounds.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// The number of events of one claim.
const BATCH: usize = 8;

/// The state of a relay.
struct Relay {
    name: String,
    lanes: Vec<i64>,
    /// When the last successful renewal of the lanes began.
    renewed_at: Option<u64>,
    horizon: VisibilityHorizon,
    claims: u64,
}

impl ClientProcess {
    /// Relays the events of a database until the workload is closed.
    pub(super) async fn relay(self: Arc<Self>, database: Arc<Database>) {
        let name = format!("relay-{}-{}", self.index, self.life);
        let (lanes, horizon) = (Vec::new(), VisibilityHorizon::default());
        let mut relay = Relay { name, lanes, renewed_at: None, horizon, claims: 0 };
        let mut wait = Wait::new(IDLE_MAX);
        while !self.installation.workload.is_closed() {
            let round = match self.relay_round(&database, &mut relay).await {
                Ok(round) => round,
                Err(error) => {
                    self.world.log(self.owner(), || format!("relay round failed: {error:?}"));
                    Round::Unavailable
                }
            };
            let pause = u64::try_from(wait.after(round).as_micros()).unwrap_or(SECOND);
            self.world.sleep(pause).await;
        }
    }

    async fn relay_round(
        self: &Arc<Self>,
        database: &Arc<Database>,
        relay: &mut Relay,
    ) -> Result<Round, DatabaseError> {
        let now = self.world.now();
        if relay.renewed_at.is_none_or(|renewed_at| now - renewed_at >= LEASE / 4) {
            relay.lanes = database.share_lanes(relay.name.clone(), LEASE).await?;
            relay.renewed_at = Some(now);
        }
        let Some(deadline) = relay.deadline(self.world.now()) else { return Ok(Round::Idle) };
        let horizon = advance_horizon(database, &mut relay.horizon).await?;
        database.release_held_events(&relay.lanes).await?;
        relay.claims += 1;
        let token = format!("{}#{}", relay.name, relay.claims);
        let (lanes, relay) = (relay.lanes.clone(), relay.name.clone());
        let claim = ClaimRequest { relay, token, lanes, horizon, batch: BATCH };
        let claimed = database.claim(&claim).await?;
        if claimed.is_empty() {
            return Ok(Round::Idle);
        }
        self.crash_point("before-publish").await;
        let keys: Vec<i64> = claimed.iter().map(|(_, event)| i64::from(event.key)).collect();
        let publish = |at: usize| self.publish(database.index, claimed[at].1, deadline);
        let results = each_key_in_order(&keys, publish).await;
        self.crash_point("after-publish").await;
        let published: Vec<Seq> = claimed
            .iter()
            .zip(&results)
            .filter(|(_, result)| **result == PublishResult::Published)
            .map(|((seq, _), _)| *seq)
            .collect();
        database.settle_claim(&claim.token, &published).await?;
        let all = published.len() == claimed.len();
        Ok(if all { Round::Busy } else { Round::Unavailable })
    }

    async fn publish(&self, outbox: usize, event: Event, deadline: u64) -> PublishResult {
        let publish = Box::pin(self.installation.broker.publish(outbox, event));
        match select(publish, self.world.sleep_until(deadline)).await {
            Either::Left((Ok(()), _)) => PublishResult::Published,
            Either::Left((Err(_), _)) => PublishResult::Unavailable("broker".to_owned()),
            Either::Right(_) => PublishResult::Unavailable("lease".to_owned()),
        }
    }
}

impl Relay {
    /// Returns the time until which the relay may publish, if it has lanes.
    fn deadline(&self, now: u64) -> Option<u64> {
        let deadline = self.renewed_at? + LEASE * 3 / 4;
        (!self.lanes.is_empty() && now < deadline).then_some(deadline)
    }
}

/// Advances the horizon, and returns the greatest event that may be published.
async fn advance_horizon(
    database: &Arc<Database>,
    horizon: &mut VisibilityHorizon,
) -> Result<Seq, DatabaseError> {
    if database.flavour != Flavour::Postgres {
        return Ok(Seq::MAX);
    }
    let (oldest, seq) = database.read_horizon().await?;
    if horizon.wants_mark(oldest, seq) {
        horizon.mark(seq, database.draw_number().await?);
        // Looked at again: if no earlier writer is left, the events are settled in this round.
        let (oldest, _) = database.read_horizon().await?;
        horizon.pass(oldest);
    }
    Ok(horizon.settled())
}

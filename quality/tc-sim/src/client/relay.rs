//! Takes the events of a database to the broker: the rounds of `outbox/relay`, with the product's
//! rules for lanes, horizon, claims, order and pauses.
//!
//! Left out: bells, what a broker refuses, parking, and the removal of old rows.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use handfast_rm_core::relay::{PublishResult, Round, VisibilityHorizon, Wait, each_key_in_order};

use super::ClientProcess;
use crate::database::{Claim, Database, DatabaseError, Event, Flavour, Seq};
use crate::world::SECOND;

/// How long the lanes of a relay that dies wait for another one.
const LEASE: u64 = 4 * SECOND;
/// The longest pause between two looks.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Events of one claim.
const BATCH: usize = 8;

/// A relay at work.
struct Relay {
    name: String,
    lanes: Vec<i64>,
    /// When the renewal began that the lanes are from.
    renewed: Option<u64>,
    horizon: VisibilityHorizon,
    batches: u64,
}

impl ClientProcess {
    /// Relays from a database until there is no business any more.
    pub(super) async fn relay(self: Arc<Self>, database: Arc<Database>) {
        let name = format!("relay-{}-{}", self.index, self.life);
        let (lanes, horizon) = (Vec::new(), VisibilityHorizon::default());
        let mut relay = Relay { name, lanes, renewed: None, horizon, batches: 0 };
        let mut wait = Wait::new(IDLE_MAX);
        while !self.cluster.closed() {
            let round = match self.round(&database, &mut relay).await {
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

    async fn round(
        self: &Arc<Self>,
        database: &Arc<Database>,
        relay: &mut Relay,
    ) -> Result<Round, DatabaseError> {
        let now = self.world.now();
        if relay.renewed.is_none_or(|renewed| now - renewed >= LEASE / 4) {
            relay.lanes = database.share_lanes(relay.name.clone(), LEASE).await?;
            relay.renewed = Some(now);
        }
        let Some(deadline) = relay.deadline(self.world.now()) else { return Ok(Round::Idle) };
        let horizon = advance(database, &mut relay.horizon).await?;
        database.release_held(&relay.lanes).await?;
        relay.batches += 1;
        let token = format!("{}#{}", relay.name, relay.batches);
        let (lanes, relay) = (relay.lanes.clone(), relay.name.clone());
        let claim = Claim { relay, token, lanes, horizon, batch: BATCH };
        let claimed = database.claim(&claim).await?;
        if claimed.is_empty() {
            return Ok(Round::Idle);
        }
        self.crash_point("before-publish").await;
        let keys: Vec<i64> = claimed.iter().map(|(_, event)| i64::from(event.key)).collect();
        let publish = |at: usize| self.publish(database.index, claimed[at].1, deadline);
        let fates = each_key_in_order(&keys, publish).await;
        self.crash_point("after-publish").await;
        let published: Vec<Seq> = claimed
            .iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate == PublishResult::Published)
            .map(|((seq, _), _)| *seq)
            .collect();
        database.settle_claim(&claim.token, &published).await?;
        let all = published.len() == claimed.len();
        Ok(if all { Round::Busy } else { Round::Unavailable })
    }

    async fn publish(&self, outbox: usize, event: Event, deadline: u64) -> PublishResult {
        let publish = Box::pin(self.cluster.broker.publish(outbox, event));
        match select(publish, self.world.sleep_until(deadline)).await {
            Either::Left((Ok(()), _)) => PublishResult::Published,
            Either::Left((Err(_), _)) => PublishResult::Unavailable("broker".to_owned()),
            Either::Right(_) => PublishResult::Unavailable("lease".to_owned()),
        }
    }
}

impl Relay {
    /// Until when it may publish, if it may.
    fn deadline(&self, now: u64) -> Option<u64> {
        let deadline = self.renewed? + LEASE * 3 / 4;
        (!self.lanes.is_empty() && now < deadline).then_some(deadline)
    }
}

/// Looks again; answers up to where events may be published.
async fn advance(
    database: &Arc<Database>,
    horizon: &mut VisibilityHorizon,
) -> Result<Seq, DatabaseError> {
    if database.flavour != Flavour::Postgres {
        return Ok(Seq::MAX);
    }
    let (oldest, seq) = database.look_at_horizon().await?;
    if horizon.wants_mark(oldest, seq) {
        horizon.mark(seq, database.draw_number().await?);
        let (oldest, _) = database.look_at_horizon().await?;
        horizon.pass(oldest);
    }
    Ok(horizon.settled())
}

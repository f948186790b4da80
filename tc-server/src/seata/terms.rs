//! Where the connections of clients go: to this node while it leads, to the leader while another
//! node does.
//!
//! A connection that arrives while no leader can be reached waits for a while: clients of Seata
//! take a connection that is closed at once for a server that is slow to answer, and wait much
//! longer before they try again.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use handfast_core::Epoch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Leadership;

/// Where connections go until the leader changes.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) way: Way,
    /// Cancelled when the term ends or the port is closed: connections end with it.
    pub(super) ended: CancellationToken,
}

/// Where connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are served: this node leads in this epoch.
    Here(Epoch),
    /// They are passed on to this address: its node leads in this epoch.
    To(Arc<str>, Epoch),
    /// No leader is known that serves clients of Seata.
    Nowhere,
}

/// Since when no leader can be reached.
#[derive(Debug)]
pub(super) struct Outage {
    since: Mutex<Option<Instant>>,
    limit: Duration,
}

impl Way {
    pub(super) fn of(leadership: &Leadership) -> Self {
        if let Some(epoch) = leadership.epoch() {
            return Self::Here(epoch);
        }
        let leader = leadership.leader_elsewhere();
        let address = leader.and_then(|(epoch, node)| Some((node.seata.as_deref()?, epoch)));
        address.map_or(Self::Nowhere, |(address, epoch)| Self::To(address.into(), epoch))
    }
}

impl Outage {
    /// Creates one that begins with the first connection. Connections wait until it has lasted for
    /// the limit.
    pub(super) fn new(limit: Duration) -> Self {
        Self { since: Mutex::new(None), limit }
    }

    /// Returns until when connections wait for a leader. The outage begins with the first call.
    pub(super) fn deadline(&self) -> Instant {
        *self.lock().get_or_insert_with(Instant::now) + self.limit
    }

    /// Notes that a leader was reached.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{CoordinatorNode, Leader};

    fn elsewhere(seata: Option<&str>) -> Leadership {
        let node = CoordinatorNode {
            id: "one".to_owned(),
            version: "1".to_owned(),
            grpc: "one:7091".to_owned(),
            admin: "one:7092".to_owned(),
            seata: seata.map(str::to_owned),
        };
        Leadership::Following(Leader::Elsewhere { epoch: Epoch(7), node })
    }

    #[test]
    fn connections_go_to_the_node_that_leads() {
        for (leadership, expected) in [
            (Leadership::Leading(Epoch(3)), Way::Here(Epoch(3))),
            (elsewhere(Some("one:8091")), Way::To("one:8091".into(), Epoch(7))),
            (elsewhere(None), Way::Nowhere),
            (Leadership::Following(Leader::Unknown), Way::Nowhere),
            (Leadership::Gaining, Way::Nowhere),
        ] {
            assert_eq!(Way::of(&leadership), expected);
        }
    }

    /// Its end does not move with each connection, or a node that is cut off would let every client
    /// wait.
    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_a_leader_is_reached() {
        let outage = Outage::new(Duration::from_secs(10));
        let began = Instant::now();
        for _ in 0..3 {
            assert_eq!(outage.deadline(), began + Duration::from_secs(10));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        outage.end();
        assert_eq!(outage.deadline(), Instant::now() + Duration::from_secs(10));
    }
}

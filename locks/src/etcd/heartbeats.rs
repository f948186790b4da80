//! Heartbeats of the waiters that have a watch, which need send nothing else.
//!
//! Heartbeats that come together are one request, and the waiters do not wait for its answer: a
//! waiter that is woken meanwhile sends its request at once.

use std::sync::Arc;
use std::time::Duration;

use handfast_etcd::{EtcdClient, within};
use tokio::sync::mpsc;

use super::WatchContext;
use crate::backend::WAITER_HEARTBEAT;
use crate::name::AcquisitionId;
use crate::watches::Watches;

/// How many heartbeats are sent at a time, and how many wait for the next time (BOUNDED).
const TOGETHER_MAX: usize = 1024;
/// Heartbeats that come within this time are sent together: far less than what a heartbeat leaves
/// of the waiter's lease.
const GATHERED_FOR: Duration = Duration::from_millis(100);

/// A waiter, with the lease of its key.
#[derive(Clone, Copy, Debug)]
struct Heartbeat {
    id: AcquisitionId,
    lease: i64,
}

/// The channel for heartbeats to a cluster.
#[derive(Debug)]
pub(super) struct Heartbeats(mpsc::Sender<Heartbeat>);

impl Heartbeats {
    /// Forwards heartbeats until this is dropped. A waiter whose lease has ended loses its watch,
    /// so that it reads the queue.
    pub(super) fn start(etcd: EtcdClient, watches: Arc<Watches<WatchContext>>) -> Self {
        let (given, heartbeats) = mpsc::channel(TOGETHER_MAX);
        tokio::spawn(forward(heartbeats, etcd, watches));
        Self(given)
    }

    /// Returns whether the heartbeat will be sent. If there is no room, its waiter reads the queue
    /// instead.
    pub(super) fn send(&self, id: AcquisitionId, lease: i64) -> bool {
        self.0.try_send(Heartbeat { id, lease }).is_ok()
    }
}

async fn forward(
    mut given: mpsc::Receiver<Heartbeat>,
    etcd: EtcdClient,
    watches: Arc<Watches<WatchContext>>,
) {
    let mut heartbeats = Vec::new();
    while given.recv_many(&mut heartbeats, TOGETHER_MAX).await > 0 {
        let leases: Vec<i64> = heartbeats.iter().map(|heartbeat| heartbeat.lease).collect();
        match within(WAITER_HEARTBEAT, etcd.keep_alive(&leases)).await {
            Ok(alive) => {
                let ended = heartbeats.iter().zip(alive).filter(|(_, is_alive)| !is_alive);
                ended.for_each(|(heartbeat, _)| watches.forget(heartbeat.id));
            }
            // The waiters send another heartbeat, and read the queue now and then.
            Err(error) => tracing::debug!(%error, "heartbeats did not reach etcd"),
        }
        heartbeats.clear();
        // The pause comes after the request: a heartbeat that comes alone is sent at once.
        tokio::time::sleep(GATHERED_FOR).await;
    }
}

//! Signs of life of those who wait and have a watch, which is all that they have to send.
//!
//! Those that come together are one request, and nobody waits for its answer: who is woken
//! meanwhile asks at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Seen;
use super::cluster::Cluster;
use crate::backend::WAITER_BEAT;
use crate::name::Token;
use crate::shell::within;
use crate::watches::Watches;

/// How many signs go out at a time, and how many wait for the next time (BOUNDED).
const TOGETHER_MAX: usize = 1024;
/// What comes within this time goes out together: far less than what a waiter's beat leaves of his
/// lease.
const GATHERED_FOR: Duration = Duration::from_millis(100);

/// Somebody waits, by the lease of his key.
#[derive(Clone, Copy, Debug)]
struct Sign {
    token: Token,
    lease: i64,
}

/// The way for signs of life to a cluster.
#[derive(Debug)]
pub(super) struct Signs(mpsc::Sender<Sign>);

impl Signs {
    /// Passes signs on until this is dropped. Whose lease has ended has no watch afterwards, so
    /// that he looks.
    pub(super) fn to(etcd: Cluster, watches: Arc<Watches<Seen>>) -> Self {
        let (given, signs) = mpsc::channel(TOGETHER_MAX);
        tokio::spawn(pass_on(signs, etcd, watches));
        Self(given)
    }

    /// Answers whether it will be passed on: without room, its owner looks by himself.
    pub(super) fn give(&self, token: Token, lease: i64) -> bool {
        self.0.try_send(Sign { token, lease }).is_ok()
    }
}

async fn pass_on(mut given: mpsc::Receiver<Sign>, etcd: Cluster, watches: Arc<Watches<Seen>>) {
    let mut signs = Vec::new();
    while given.recv_many(&mut signs, TOGETHER_MAX).await > 0 {
        let leases: Vec<i64> = signs.iter().map(|sign| sign.lease).collect();
        match within(WAITER_BEAT, etcd.keep_alive(&leases)).await {
            Ok(alive) => {
                let ended = signs.iter().zip(alive).filter(|(_, is_alive)| !is_alive);
                ended.for_each(|(sign, _)| watches.forget(sign.token));
            }
            // They give another sign, and look by themselves now and then.
            Err(error) => tracing::debug!(%error, "signs of life did not reach etcd"),
        }
        signs.clear();
        tokio::time::sleep(GATHERED_FOR).await;
    }
}

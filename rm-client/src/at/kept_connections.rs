//! Connections that stay with a resource between its branches.
//!
//! The pool asks the database whether a connection still works when it comes back, and by default
//! again when it is taken: as many round trips as some branches have themselves.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;

use super::database::Backend;

/// How long a connection stays without being used. Too long: others wait for it at an exhausted
/// pool. Too short: a busy resource asks for connections all the same.
const IDLE_MAX: Duration = Duration::from_millis(10);

/// After this time a connection goes back to the pool, however busy it is: the pool has limits to
/// the lifetime of its connections, which it looks at then.
const KEPT_MAX: Duration = Duration::from_secs(1);

/// The connections that a resource keeps. Without any to keep it is a plain way to the pool.
pub(crate) struct KeptConnections<DB: Backend> {
    pool: Pool<DB>,
    max: usize,
    idle: Arc<Mutex<Idle<DB>>>,
}

struct Idle<DB: Backend> {
    /// The one that was used last is taken first, so that those not needed become old.
    connections: Vec<KeptConnection<DB>>,
    /// Whether a task gives the old ones back.
    is_watched: bool,
}

/// A connection of the pool.
pub(crate) struct KeptConnection<DB: Backend> {
    pub(crate) connection: PoolConnection<DB>,
    taken_at: Instant,
    used_at: Instant,
}

impl<DB: Backend> KeptConnections<DB> {
    pub(crate) fn new(pool: Pool<DB>, max: usize) -> Self {
        let idle = Idle { connections: Vec::new(), is_watched: false };
        Self { pool, max, idle: Arc::new(Mutex::new(idle)) }
    }

    /// Whether any are kept at all.
    pub(crate) fn keep_any(&self) -> bool {
        self.max > 0
    }

    /// Takes one of those kept, or one of the pool.
    pub(crate) async fn acquire(&self) -> Result<KeptConnection<DB>, sqlx::Error> {
        let kept = if self.max == 0 { None } else { lock(&self.idle).connections.pop() };
        // A pool that is closed waits until all of its connections are back.
        if let Some(kept) = kept.filter(|_| !self.pool.is_closed()) {
            return Ok(kept);
        }
        let (connection, now) = (self.pool.acquire().await?, Instant::now());
        Ok(KeptConnection { connection, taken_at: now, used_at: now })
    }

    /// Keeps a connection on which nothing is under way, or gives it back to the pool.
    pub(crate) fn release(&self, mut kept: KeptConnection<DB>) {
        kept.used_at = Instant::now();
        let is_old = kept.used_at.duration_since(kept.taken_at) >= KEPT_MAX;
        if self.max == 0 || is_old || self.pool.is_closed() {
            return;
        }
        // Without a runtime nothing would give it back.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = lock(&self.idle);
        if idle.connections.len() >= self.max {
            return;
        }
        idle.connections.push(kept);
        if !std::mem::replace(&mut idle.is_watched, true) {
            runtime.spawn(give_back(Arc::clone(&self.idle)));
        }
    }
}

/// Gives back what has not been used for a while, until nothing is kept any more.
async fn give_back<DB: Backend>(idle: Arc<Mutex<Idle<DB>>>) {
    loop {
        tokio::time::sleep(IDLE_MAX).await;
        let mut idle = lock(&idle);
        let unused = idle.connections.iter().take_while(|it| it.used_at.elapsed() >= IDLE_MAX);
        let unused = unused.count();
        let unused: Vec<_> = idle.connections.drain(..unused).collect();
        idle.is_watched = !idle.connections.is_empty();
        let is_done = !idle.is_watched;
        drop(idle);
        drop(unused);
        if is_done {
            return;
        }
    }
}

fn lock<DB: Backend>(idle: &Mutex<Idle<DB>>) -> MutexGuard<'_, Idle<DB>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<DB: Backend> fmt::Debug for KeptConnections<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = lock(&self.idle).connections.len();
        f.debug_struct("KeptConnections").field("max", &self.max).field("kept", &kept).finish()
    }
}

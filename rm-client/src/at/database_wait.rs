//! Statements and undos that wait for locks of their database.
//!
//! A local transaction that waits in the coordinator may keep its database locks. If the global
//! that it waits for then needs one of them, neither goes on: the coordinator sees one half of the
//! cycle and the database the other. Work that takes long is therefore reported, and the
//! coordinator refuses the requests that wait for its global with locks of the same database.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::database::Backend;
use super::resource_state::ResourceState;

/// How long work takes before it is reported. Too short: a statement that is merely slow has the
/// requests refused that wait for its global. Too long: a cycle stands for so long.
const FIRST_REPORT: Duration = Duration::from_millis(100);

/// The longest time between two reports. Each refuses only what waits by then, so one is not
/// enough.
const BETWEEN_REPORTS_MAX: Duration = Duration::from_secs(2);

/// Does a global's work in a database, and reports to the coordinator while it takes long.
pub(super) async fn reported<DB: Backend, W: Future>(
    shared: &ResourceState<DB>,
    xid: &str,
    work: W,
) -> W::Output {
    // Where nothing waits with locks, nothing is in the way.
    if !DB::WAITS_WITH_LOCKS {
        return work.await;
    }
    let (mut work, mut pause) = (pin!(work), FIRST_REPORT);
    loop {
        if let Ok(output) = timeout(pause, work.as_mut()).await {
            return output;
        }
        shared.coordinator.report_database_wait(xid, &shared.identity.resource_id);
        pause = (2 * pause).min(BETWEEN_REPORTS_MAX);
    }
}

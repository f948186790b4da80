//! Tasks that hold named locks in turn, and a judge of when each held which.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use handfast_locks::{Guard, LockError, Locks};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::event::now;
use crate::service::connect;

const HOLDERS: usize = 4;
/// Fewer than holders, so that they wait for each other.
const NAMES: usize = 2;
/// Shorter than the longer outages, so that locks are lost as well.
const LEASE: Duration = Duration::from_secs(3);
const LOOKS: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const WAIT: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A time in which a lock was surely held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldSpan {
    /// The lock.
    pub lock: usize,
    /// Its fencing token.
    pub token: i64,
    /// From when it was held, at the latest.
    pub from: u64,
    /// Until when it was held, at the least.
    pub until: u64,
}

/// The tasks.
#[derive(Debug)]
pub struct LockHolders {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<Vec<HeldSpan>>>>,
}

impl LockHolders {
    /// Starts the holders, each with a connection of its own.
    #[must_use]
    pub fn start(endpoints: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hold = |number| tokio::spawn(hold(endpoints.to_vec(), number, Arc::clone(&stop)));
        let tasks = (0..HOLDERS).map(hold).collect();
        Self { stop, tasks }
    }

    /// Stops the holders, and returns when each lock was held.
    ///
    /// # Errors
    /// When locks could not be used at all.
    pub async fn finish(self) -> Result<Vec<HeldSpan>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut spans = Vec::new();
        for task in self.tasks {
            spans.extend(task.await??);
        }
        Ok(spans)
    }
}

/// Returns each pair of grants that breaks a promise: a lock is held by one holder at a time, and a
/// later grant has a greater token.
#[must_use]
pub fn judge(spans: &[HeldSpan]) -> Vec<String> {
    let mut by_lock: BTreeMap<usize, Vec<HeldSpan>> = BTreeMap::new();
    for span in spans {
        by_lock.entry(span.lock).or_default().push(*span);
    }
    let mut violations = Vec::new();
    for of_lock in by_lock.values_mut() {
        of_lock.sort_by_key(|span| (span.token, span.from));
        for pair in of_lock.windows(2) {
            let [earlier, later] = [pair[0], pair[1]];
            if earlier.token == later.token || later.from < earlier.until {
                violations.push(format!("lock granted as {earlier:?}, then as {later:?}"));
            }
        }
    }
    violations
}

async fn hold(
    endpoints: Vec<String>,
    number: usize,
    stop: Arc<AtomicBool>,
) -> Result<Vec<HeldSpan>> {
    let handfast = connect(&endpoints).application(format!("holder-{number}"));
    let handfast =
        handfast.back_off(Duration::from_millis(20), Duration::from_millis(500)).lazy()?;
    let locks = Locks::over(handfast.locks()).lease(LEASE).start()?;
    let mut spans = Vec::new();
    for lock in (0..NAMES).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match locks.lock_timeout(&format!("ledger/{lock}"), WAIT).await {
            Ok(guard) => spans.extend(hold_for_a_moment(lock, guard).await),
            // An outage has these errors.
            Err(LockError::TimedOut { .. } | LockError::Unavailable { .. }) => {
                sleep(RETRY_AFTER).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    handfast.close().await;
    Ok(spans)
}

/// Returns when the lock was held, if it was not lost before the first look.
async fn hold_for_a_moment(lock: usize, guard: Guard) -> Option<HeldSpan> {
    let (token, from) = (guard.fencing_token().number(), now());
    let mut until = None;
    for _ in 0..LOOKS {
        // The time is taken before the look, so that the lock was held at least until then.
        let before = now();
        if !guard.is_held() {
            break;
        }
        until = Some(before);
        // The time for which it is held.
        sleep(LOOK_EVERY).await;
    }
    // A loss since the look does not change the time in which it was surely held.
    let _ = guard.release().await;
    Some(HeldSpan { lock, token, from, until: until? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lock: usize, token: i64, from: u64, until: u64) -> HeldSpan {
        HeldSpan { lock, token, from, until }
    }

    #[test]
    fn grants_one_after_the_other_are_sound() {
        let sound = [span(0, 3, 10, 20), span(1, 4, 12, 30), span(0, 5, 21, 25)];
        assert!(judge(&sound).is_empty());
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        assert_eq!(judge(&[span(0, 3, 10, 20), span(0, 5, 19, 25)]).len(), 1);
    }

    #[test]
    fn a_token_that_goes_back_is_seen() {
        assert_eq!(judge(&[span(0, 5, 10, 20), span(0, 3, 21, 25)]).len(), 1);
        assert_eq!(judge(&[span(0, 5, 10, 20), span(0, 5, 21, 25)]).len(), 1);
    }
}

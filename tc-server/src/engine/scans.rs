//! Scans: views of the coordinator that go through many records.
//!
//! One scan runs at a time, after the requests that have arrived, and is followed by a pause of
//! several times its length: however many scans are requested, most of the engine's time is left to
//! clients (BOUNDED). The sender bounds the number of records that one scan examines; a longer
//! search is many scans.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use handfast_core::Timestamp;

use super::batch_builder::BatchBuilder;
use super::inbox::View;

/// The length of the pause after a scan, as a multiple of the scan's. Smaller: viewers take more of
/// the engine. Larger: searches take longer, even while the engine is idle.
const PAUSE_FACTOR: u64 = 4;

/// The least pause: most scans take less than the clock shows.
const PAUSE_MS_MIN: u64 = 1;

/// A view that keeps the engine for this long is logged.
const LONG_VIEW: Duration = Duration::from_millis(5);

/// Scans that wait for their turn: at most one per caller.
#[derive(Default)]
pub(super) struct Scans {
    waiting: VecDeque<View>,
    next_at: Timestamp,
}

impl Scans {
    pub(super) fn push(&mut self, scan: View) {
        self.waiting.push_back(scan);
    }

    /// When the next one may begin, if one waits.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.waiting.front().map(|_| self.next_at)
    }

    /// The next one, if it may begin.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<View> {
        if now < self.next_at { None } else { self.waiting.pop_front() }
    }

    /// Notes that a scan has run, and sets the pause.
    pub(super) fn ran(&mut self, from: Timestamp, now: Timestamp) {
        let took_ms = now.0.saturating_sub(from.0);
        self.next_at = now.after_ms(PAUSE_MS_MIN.saturating_add(took_ms * PAUSE_FACTOR));
    }
}

impl std::fmt::Debug for Scans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { waiting, next_at } = self;
        f.debug_struct("Scans").field("waiting", &waiting.len()).field("next_at", next_at).finish()
    }
}

/// Looks something up, and records for how long nothing else was done.
pub(super) fn look(batch: &mut BatchBuilder, view: View) {
    let (started, worked) = (Instant::now(), own_time());
    batch.view(view);
    let held = started.elapsed();
    crate::metrics::record_view(held);
    if held >= LONG_VIEW {
        // Where it has worked for less, the machine had no core for it.
        let worked_us = own_time().saturating_sub(worked).as_micros();
        tracing::debug!(held_us = held.as_micros(), worked_us, "a view kept the engine");
    }
}

/// Returns the processor time of this thread.
fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_waits_for_several_times_as_long_as_the_one_before_took() {
        let mut scans = Scans::default();
        assert_eq!(scans.due(), None);
        (0..3).for_each(|_| scans.push(Box::new(|_| Box::new(|| {}))));
        assert!(scans.take_due(Timestamp(100)).is_some());
        scans.ran(Timestamp(100), Timestamp(110));
        assert_eq!(scans.due(), Some(Timestamp(151)));
        assert!(scans.take_due(Timestamp(150)).is_none());
        assert!(scans.take_due(Timestamp(151)).is_some());
        scans.ran(Timestamp(151), Timestamp(151));
        assert_eq!(scans.due(), Some(Timestamp(152)));
    }
}

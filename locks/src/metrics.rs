//! The metrics of a client, for whichever recorder of the crate `metrics` the program has installed
//! before its locks were started. Without a recorder nothing is kept.
//!
//! Each client makes its set once: counting is an addition, not a search by name.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, Unit, counter, histogram};

use crate::backend::Backend;
use crate::error::{LockError, LossReason};
use crate::machine::Event;

const ACQUIRED: &str = "handfast_client_lock_acquired_total";
const REFUSED: &str = "handfast_client_lock_refused_total";
const LOST: &str = "handfast_client_lock_lost_total";
const RENEWALS: &str = "handfast_client_lock_renewals_total";
const ERRORS: &str = "handfast_client_lock_errors_total";
const WAIT: &str = "handfast_client_lock_wait_seconds";
const HOLD: &str = "handfast_client_lock_hold_seconds";

/// The metrics of one client.
#[derive(Clone)]
pub(crate) struct ClientMetrics {
    backend: &'static str,
    acquired: Counter,
    wait: Histogram,
    hold: Histogram,
    renewed: Counter,
}

impl ClientMetrics {
    pub(crate) fn of(backend: &Arc<dyn Backend>) -> Self {
        describe();
        let backend = backend.name();
        Self {
            backend,
            acquired: counter!(ACQUIRED, "backend" => backend),
            wait: histogram!(WAIT, "backend" => backend),
            hold: histogram!(HOLD, "backend" => backend),
            renewed: counter!(RENEWALS, "backend" => backend, "result" => "held"),
        }
    }

    /// Counts a lock that was acquired after waiting for this long.
    pub(crate) fn acquired(&self, waited: Duration) {
        self.acquired.increment(1);
        self.wait.record(waited);
    }

    /// Records how long a lock was held, whether it was released or lost.
    pub(crate) fn held(&self, held: Duration) {
        self.hold.record(held);
    }

    pub(crate) fn refused(&self, reason: &LockError) {
        counter!(REFUSED, "backend" => self.backend, "code" => reason.code()).increment(1);
    }

    pub(crate) fn lost(&self, reason: LossReason) {
        let reason = match reason {
            LossReason::Deadline => "deadline",
            LossReason::Taken => "taken",
            LossReason::MaxHold => "max hold",
        };
        counter!(LOST, "backend" => self.backend, "reason" => reason).increment(1);
    }

    /// Counts the result of a request.
    pub(crate) fn observe(&self, event: &Event) {
        match event {
            Event::AcquireAnswered { answer: Err(_), .. } => self.failed("ask"),
            Event::ReleaseAnswered { answer: Err(_), .. } => self.failed("leave"),
            Event::RenewAnswered { numbers, answer: Err(_) } => {
                self.failed("renew");
                self.renewals("unknown", numbers.len());
            }
            Event::RenewAnswered { answer: Ok(held), .. } => self.renewed(held),
            Event::AcquireAnswered { .. }
            | Event::ReleaseAnswered { .. }
            | Event::Acquire { .. }
            | Event::WokenUp(_)
            | Event::SeenAsLost { .. }
            | Event::Downgrade { .. }
            | Event::Release { .. }
            | Event::Tick => {}
        }
    }

    /// Counts a connection for wake-ups that failed.
    pub(crate) fn interrupted(&self) {
        self.failed("listen");
    }

    fn renewed(&self, held: &[bool]) {
        let kept = held.iter().filter(|held| **held).count();
        self.renewed.increment(as_count(kept));
        if kept < held.len() {
            self.renewals("lost", held.len() - kept);
        }
    }

    fn failed(&self, request: &'static str) {
        counter!(ERRORS, "backend" => self.backend, "request" => request).increment(1);
    }

    fn renewals(&self, result: &'static str, count: usize) {
        let renewals = counter!(RENEWALS, "backend" => self.backend, "result" => result);
        renewals.increment(as_count(count));
    }
}

fn as_count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn describe() {
    for (name, meaning) in [
        (ACQUIRED, "locks that were acquired"),
        (REFUSED, "acquisitions that ended without the lock, by code"),
        (LOST, "locks that were lost while they were held, by reason"),
        (RENEWALS, "renewals of single leases, by result"),
        (ERRORS, "requests to the backend that failed or were not answered, by request"),
    ] {
        metrics::describe_counter!(name, Unit::Count, meaning);
    }
    metrics::describe_histogram!(WAIT, Unit::Seconds, "request for a lock, to its grant");
    metrics::describe_histogram!(HOLD, Unit::Seconds, "grant of a lock, to its release or loss");
}

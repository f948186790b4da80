//! The client's side of locks as a state machine: which requests to send, when to renew a lease,
//! when a lock counts as lost, how it is released.
//!
//! Pure: events and the present go in, effects come out. There is no clock, no IO and no
//! randomness, so that the simulation in `tests/` drives it through lost, doubled and late messages
//! on virtual time. The driver (`driver.rs`) executes the effects.
//!
//! It relies on these rules, by name:
//! - **ONE-CALL**: an acquisition has at most one request for it under way, so that its release is
//!   never overtaken by one of its requests, other than one that went unanswered. In that case the
//!   release asks the backend to refuse late requests.
//! - **SENT-TIME**: a lease counts from when its request was sent, never from its answer. It counts
//!   from later only where the backend says how long the request waited before it was granted.
//! - **LOST-FIRST**: a lock counts as lost before its lease can end at the backend, whatever the
//!   network does, and a lost lock never comes back.

mod acquisition;
mod held;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::backend::{
    AcquireRequest, AcquireResponse, LockMode, LockRef, ReleaseRequest, ReleaseResponse, WakeUp,
};
use crate::clock::Moment;
use crate::error::{BackendError, LockError, LossReason, ReleaseOutcome};
use crate::name::{FencingToken, LockName};

use self::acquisition::AcquisitionState;

/// How many leases are renewed by one request (BOUNDED).
const BATCH_MAX: usize = 100;

/// The client waits for a backend that restarts for at least this long, however short the lease is.
const GIVE_UP_MIN: Duration = Duration::from_secs(10);

/// The settings that all locks of a client have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) client: u128,
    pub(crate) label: Arc<str>,
    pub(crate) lease: Duration,
    pub(crate) hold_max: Option<Duration>,
}

impl Settings {
    /// How much the client shortens a lease: the backend's clock may run one per cent faster, and a
    /// notification of a loss needs a moment.
    fn safety_margin(&self) -> Duration {
        self.lease / 100 + Duration::from_millis(5)
    }

    /// How long the requests for a lock may fail in a row.
    fn give_up_after(&self) -> Duration {
        self.lease.max(GIVE_UP_MIN)
    }

    /// The pause before a request is repeated that failed for the n-th time in a row.
    fn retry_pause(&self, failures: u32) -> Duration {
        // At most an eighth of the lease, so that a request is repeated several times before its
        // lease ends.
        (self.lease / 256 * 2_u32.saturating_pow(failures.min(5))).min(Duration::from_secs(2))
    }
}

/// How long a caller waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitPolicy {
    /// It does not wait.
    NoWait,
    /// It waits until this time.
    Until(Moment),
    /// It waits as long as it takes.
    Forever,
}

/// An event of the machine. Numbers are those of acquisition ids.
#[derive(Debug)]
pub(crate) enum Event {
    /// A caller requests a lock.
    Acquire { number: u64, name: LockName, mode: LockMode, wait: WaitPolicy },
    /// The answer to [`Effect::Acquire`].
    AcquireAnswered { number: u64, answer: Result<AcquireResponse, BackendError> },
    /// The answer to [`Effect::Renew`].
    RenewAnswered { numbers: Vec<u64>, answer: Result<Vec<bool>, BackendError> },
    /// A wake-up came.
    WokenUp(WakeUp),
    /// The lease ended, for its guard, before [`Effect::Extended`] was executed.
    SeenAsLost { number: u64, reason: LossReason },
    /// A writer becomes a reader.
    Downgrade { number: u64 },
    /// The lock is not wanted any more, whether it is held or not.
    Release { number: u64 },
    /// The answer to [`Effect::Release`].
    ReleaseAnswered { number: u64, answer: Result<ReleaseResponse, BackendError> },
    /// Time has passed.
    Tick,
}

/// An effect for the driver to execute.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send the backend a request for a lock.
    Acquire(AcquireRequest),
    /// Renew leases.
    Renew { numbers: Vec<u64>, lock_refs: Vec<LockRef> },
    /// End an acquisition at the backend.
    Release(ReleaseRequest),
    /// Report that the lock is held.
    Granted { number: u64, fencing_token: FencingToken, expiry: Expiry },
    /// Report that the lock will not be held.
    Refused { number: u64, reason: LockError },
    /// Report that its lease is renewed.
    Extended { number: u64, expiry: Expiry },
    /// Report that the backend knows of the downgrade, or that the lock is lost.
    Downgraded { number: u64 },
    /// Report that the backend refuses the downgrade for good. The lock is held as before.
    DowngradeRefused { number: u64, reason: LockError },
    /// Report that the lock is lost.
    Lost { number: u64, reason: LossReason },
    /// Report that the acquisition has ended.
    Ended { number: u64, outcome: Result<ReleaseOutcome, BackendError> },
}

/// Until when a lock is surely held, and why it is lost then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) deadline: Moment,
    pub(crate) loss: LossReason,
}

/// The state of all locks of a client.
#[derive(Debug)]
pub(crate) struct Machine {
    settings: Settings,
    /// Iterated only in the order of their numbers.
    acquisitions: HashMap<u64, AcquisitionState>,
    /// Exactly the acquisitions that have something to do at some time, ordered by it.
    timers: BTreeSet<(Moment, u64)>,
}

impl Machine {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, acquisitions: HashMap::new(), timers: BTreeSet::new() }
    }

    /// Decides one event. The effects must be executed in order.
    pub(crate) fn decide(&mut self, now: Moment, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Acquire { number, name, mode, wait } => {
                let mut acquisition = AcquisitionState::new(number, name, mode, wait, now);
                acquisition.acquire(now, &self.settings, out);
                self.set_timer(number, None, acquisition.timer());
                self.acquisitions.insert(number, acquisition);
            }
            Event::AcquireAnswered { number, answer } => {
                self.change(number, |acquisition, settings| {
                    acquisition.acquire_answered(now, answer, settings, out)
                });
            }
            Event::RenewAnswered { numbers, answer } => self.renewed(now, &numbers, answer, out),
            Event::WokenUp(wake) => self.woken(now, wake, out),
            Event::SeenAsLost { number, reason } => {
                self.change(number, |acquisition, _| acquisition.seen_as_lost(reason, out));
            }
            Event::Downgrade { number } => {
                self.change(number, |acquisition, settings| {
                    acquisition.downgrade(now, settings, out)
                });
            }
            Event::Release { number } => {
                self.change(number, |acquisition, settings| {
                    acquisition.request_release(now, settings, out)
                });
            }
            Event::ReleaseAnswered { number, answer } => {
                self.change(number, |acquisition, settings| {
                    acquisition.release_answered(now, answer, settings, out)
                });
            }
            Event::Tick => self.tick(now, out),
        }
    }

    /// Returns when the next [`Event::Tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns whether no acquisition is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.acquisitions.is_empty()
    }

    /// Returns whether nothing is left of what was released.
    pub(crate) fn is_settled(&self) -> bool {
        self.acquisitions.values().all(|acquisition| acquisition.is_wanted())
    }

    fn tick(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let mut due = Vec::new();
        while let Some((_, number)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.change(number, |acquisition, settings| {
                let goes_on = acquisition.tick(now, settings, out);
                // It is marked at once, which moves its timer: otherwise this loop would find it
                // again.
                if acquisition.is_due(now) {
                    due.push(number);
                    acquisition.mark_renewing(now);
                }
                goes_on
            });
        }
        if !due.is_empty() {
            self.add_nearly_due(now, &mut due);
            self.renew(&due, out);
        }
    }

    /// Adds the leases that are due soon: fewer requests for many locks.
    fn add_nearly_due(&mut self, now: Moment, due: &mut Vec<u64>) {
        let soon = now + self.settings.lease / 12;
        let numbers: Vec<u64> =
            self.timers.range(..=(soon, u64::MAX)).map(|(_, number)| *number).collect();
        for number in numbers {
            self.change(number, |acquisition, _| {
                if acquisition.is_due(soon) {
                    due.push(number);
                    acquisition.mark_renewing(now);
                }
                true
            });
        }
    }

    /// Sends the renewals. A lease that could not be renewed before goes alone: one lock whose row
    /// or server does not answer must not take the others with it.
    fn renew(&self, due: &[u64], out: &mut Vec<Effect>) {
        let has_failed = |number: &&u64| {
            self.acquisitions.get(*number).is_some_and(AcquisitionState::has_failed)
        };
        let (failed, sound): (Vec<u64>, Vec<u64>) = due.iter().partition(has_failed);
        for numbers in sound.chunks(BATCH_MAX).chain(failed.chunks(1)) {
            let acquisitions = numbers.iter().filter_map(|number| self.acquisitions.get(number));
            let lock_refs =
                acquisitions.map(|acquisition| acquisition.lock_ref(&self.settings)).collect();
            out.push(Effect::Renew { numbers: numbers.to_vec(), lock_refs });
        }
    }

    fn renewed(
        &mut self,
        now: Moment,
        numbers: &[u64],
        answer: Result<Vec<bool>, BackendError>,
        out: &mut Vec<Effect>,
    ) {
        // Whatever went wrong, the renewal is repeated until the deadline.
        let held = answer.ok().filter(|held| held.len() == numbers.len());
        for (at, number) in numbers.iter().enumerate() {
            let is_held = held.as_ref().map(|held| held[at]);
            self.change(*number, |acquisition, settings| {
                acquisition.renewed(now, is_held, settings, out);
                true
            });
        }
    }

    fn woken(&mut self, now: Moment, wake: WakeUp, out: &mut Vec<Effect>) {
        let numbers: Vec<u64> = match wake {
            WakeUp::One(id) => vec![id.number],
            WakeUp::All => {
                // The order is that of the numbers: that of a hash map would differ between two
                // runs.
                let mut all: Vec<u64> = self.acquisitions.keys().copied().collect();
                all.sort_unstable();
                all
            }
        };
        for number in numbers {
            self.change(number, |acquisition, settings| {
                acquisition.woken(now, settings, out);
                true
            });
        }
    }

    /// Changes an acquisition and its timer together. A late message may name an acquisition that
    /// has ended.
    fn change(&mut self, number: u64, step: impl FnOnce(&mut AcquisitionState, &Settings) -> bool) {
        let Some(acquisition) = self.acquisitions.get_mut(&number) else { return };
        let before = acquisition.timer();
        let goes_on = step(acquisition, &self.settings);
        let after = acquisition.timer().filter(|_| goes_on);
        if !goes_on {
            self.acquisitions.remove(&number);
        }
        self.set_timer(number, before, after);
    }

    fn set_timer(&mut self, number: u64, before: Option<Moment>, after: Option<Moment>) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.timers.remove(&(at, number));
        }
        if let Some(at) = after {
            self.timers.insert((at, number));
        }
    }
}

//! One acquisition, from its first request until nothing of it is left at the backend.
//!
//! ```text
//! Acquiring ⇄ Waiting        released, timed out, given up
//!    │           └───────────────────────┐
//!    ▼                                   ▼
//!  Held ──── released ───────────────▶ Releasing ─▶ (gone)
//!    └─▶ Lost ─── released ──────────────┘
//! ```

mod downgrade;

use std::sync::Arc;

use super::held::{Downgrade, HeldState, expiry};
use super::{Effect, Settings, WaitPolicy};
use crate::backend::{
    AcquireRequest, AcquireResponse, LockMode, LockRef, QueueMode, ReleaseRequest, ReleaseResponse,
    WAITER_TIMEOUT,
};
use crate::clock::Moment;
use crate::error::{BackendError, LockError, LossReason, ReleaseOutcome};
use crate::name::{AcquisitionId, FencingToken, Holder, LockName};

#[derive(Debug)]
pub(super) struct AcquisitionState {
    pub(super) number: u64,
    name: LockName,
    mode: LockMode,
    wait: WaitPolicy,
    queue: QueueMode,
    /// A request went unanswered and may still arrive.
    has_unanswered_request: bool,
    /// How many requests failed in a row, and since when.
    failures: u32,
    failing_since: Moment,
    /// Why the last request failed, until one is answered.
    trouble: Option<BackendError>,
    /// The holder at the last request.
    holder: Option<Holder>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// A request is under way.
    Acquiring { sent_at: Moment, is_woken: bool, is_wanted: bool },
    /// The request is repeated then, or at a wake-up.
    Waiting { retry_at: Moment },
    /// Held until the deadline at least.
    Held(HeldState),
    /// It was held, and its guard is still alive.
    Lost,
    /// The release is under way, or is repeated then.
    Releasing {
        prior: PriorState,
        repeat_at: Option<Moment>,
        give_up_at: Moment,
        is_repeated: bool,
    },
}

/// The state of an acquisition when it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PriorState {
    NotHeld,
    Held,
    Lost,
}

impl AcquisitionState {
    pub(super) fn new(
        number: u64,
        name: LockName,
        mode: LockMode,
        wait: WaitPolicy,
        now: Moment,
    ) -> Self {
        let queue = if wait == WaitPolicy::NoWait { QueueMode::NoWait } else { QueueMode::Join };
        let phase = Phase::Waiting { retry_at: now };
        Self {
            number,
            name,
            mode,
            wait,
            queue,
            has_unanswered_request: false,
            failures: 0,
            failing_since: now,
            trouble: None,
            holder: None,
            phase,
        }
    }

    /// Returns when the acquisition has something to do by itself.
    pub(super) fn timer(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Acquiring { is_wanted: true, .. } => self.limit(),
            Phase::Waiting { retry_at } => {
                Some(self.limit().map_or(*retry_at, |at| at.min(*retry_at)))
            }
            Phase::Held(held) => Some(held.timer()),
            Phase::Releasing { repeat_at, .. } => *repeat_at,
            // The answer needs no timer: the driver or the backend times each request out. A lost
            // lock waits for its guard alone.
            Phase::Acquiring { is_wanted: false, .. } | Phase::Lost => None,
        }
    }

    /// Returns whether a caller waits for it or has its guard.
    pub(super) fn is_wanted(&self) -> bool {
        match self.phase {
            Phase::Acquiring { is_wanted, .. } => is_wanted,
            Phase::Waiting { .. } | Phase::Held(_) | Phase::Lost => true,
            Phase::Releasing { .. } => false,
        }
    }

    pub(super) fn lock_ref(&self, settings: &Settings) -> LockRef {
        let id = AcquisitionId { client: settings.client, number: self.number };
        LockRef { name: self.name.clone(), id }
    }

    pub(super) fn acquire(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) {
        self.send_acquire(self.mode, self.queue, settings, out);
        // SENT-TIME.
        self.phase = Phase::Acquiring { sent_at: now, is_woken: false, is_wanted: true };
    }

    fn send_acquire(
        &self,
        mode: LockMode,
        queue: QueueMode,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let LockRef { name, id } = self.lock_ref(settings);
        let (lease, label) = (settings.lease, Arc::clone(&settings.label));
        out.push(Effect::Acquire(AcquireRequest { name, id, mode, lease, label, queue }));
    }

    /// Returns whether the acquisition goes on, as the following functions do.
    pub(super) fn acquire_answered(
        &mut self,
        now: Moment,
        answer: Result<AcquireResponse, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if matches!(self.phase, Phase::Held(_)) {
            self.downgraded(now, answer, settings, out);
            return true;
        }
        // In any other phase this answers a downgrade of a lock that was lost or released
        // meanwhile. Its release asks the backend to refuse that request.
        let Phase::Acquiring { sent_at, is_woken, is_wanted } = self.phase else { return true };
        match answer {
            Ok(AcquireResponse::Granted { .. }) if !is_wanted => {
                self.begin_release(now, PriorState::NotHeld, settings, out);
                true
            }
            Ok(AcquireResponse::Granted { fencing_token, since }) => {
                self.granted(now, since.unwrap_or(sent_at), fencing_token, settings, out);
                true
            }
            Ok(AcquireResponse::Busy { holder, retry_after }) => {
                (self.failures, self.trouble) = (0, None);
                self.holder = holder;
                // A wake-up that came while the request was under way may be for a release that the
                // backend had not seen when it answered.
                let look = if is_woken { None } else { Some(now + retry_after) };
                self.busy(now, look, is_wanted, settings, out)
            }
            Err(error) => {
                self.has_unanswered_request = true;
                // The request may be in the queue already.
                if self.queue == QueueMode::Join {
                    self.queue = QueueMode::KeepPlace;
                }
                self.failed(now, error, is_wanted, settings, out)
            }
        }
    }

    /// The lease counts from `since`: SENT-TIME.
    fn granted(
        &mut self,
        now: Moment,
        since: Moment,
        fencing_token: FencingToken,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let end_at = settings.hold_max.map(|max| since + max);
        let expiry = expiry(since, end_at, settings);
        if expiry.deadline <= now {
            // The answer took as long as the lease. A repeated request finds the same acquisition
            // if no other took the lock meanwhile.
            self.acquire(now, settings, out);
            return;
        }
        (self.failures, self.trouble) = (0, None);
        let renew_at = since + settings.lease / 3;
        let (renewing, downgrade) = (None, Downgrade::None);
        let held = HeldState { fencing_token, end_at, expiry, renew_at, renewing, downgrade };
        self.phase = Phase::Held(held);
        out.push(Effect::Granted { number: self.number, fencing_token, expiry });
    }

    fn busy(
        &mut self,
        now: Moment,
        look: Option<Moment>,
        is_wanted: bool,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.queue == QueueMode::NoWait {
            // Nothing of it is left at the backend.
            if is_wanted {
                let (name, holder) = (self.name.clone(), self.holder.take());
                let reason = LockError::Busy { name, holder };
                out.push(Effect::Refused { number: self.number, reason });
            } else {
                out.push(Effect::Ended {
                    number: self.number,
                    outcome: Ok(ReleaseOutcome::Released),
                });
            }
            return false;
        }
        self.queue = QueueMode::KeepPlace;
        match look {
            _ if !is_wanted => self.begin_release(now, PriorState::NotHeld, settings, out),
            Some(retry_at) => self.phase = Phase::Waiting { retry_at },
            None => self.acquire(now, settings, out),
        }
        true
    }

    fn failed(
        &mut self,
        now: Moment,
        error: BackendError,
        is_wanted: bool,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.failures == 0 {
            self.failing_since = now;
        }
        self.failures += 1;
        let gives_up =
            self.wait == WaitPolicy::NoWait || self.failing_since + settings.give_up_after() <= now;
        let name = self.name.clone();
        let reason = if !is_wanted {
            None
        } else if error.is_final() {
            Some(LockError::refused(error))
        } else if gives_up {
            Some(LockError::Unavailable { name, source: error })
        } else {
            self.trouble = Some(error);
            self.phase = Phase::Waiting { retry_at: now + settings.retry_pause(self.failures) };
            return true;
        };
        if let Some(reason) = reason {
            out.push(Effect::Refused { number: self.number, reason });
        }
        // The failed request may have taken the lock or joined the queue all the same.
        self.begin_release(now, PriorState::NotHeld, settings, out);
        true
    }

    pub(super) fn woken(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Acquiring { is_woken, .. } => *is_woken = true,
            Phase::Waiting { .. } => self.acquire(now, settings, out),
            Phase::Held(_) | Phase::Lost | Phase::Releasing { .. } => {}
        }
    }

    pub(super) fn request_release(
        &mut self,
        now: Moment,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        match &mut self.phase {
            // ONE-CALL: the answer of the request comes first.
            Phase::Acquiring { is_wanted, .. } => *is_wanted = false,
            Phase::Waiting { .. } => self.begin_release(now, PriorState::NotHeld, settings, out),
            Phase::Held(held) => {
                // The clock decides (LOST-FIRST): the tick that reports the loss may be yet to
                // come.
                let prior =
                    if held.expiry.deadline <= now { PriorState::Lost } else { PriorState::Held };
                // The request for it may still arrive.
                self.has_unanswered_request |= held.downgrade.is_sent();
                self.begin_release(now, prior, settings, out);
            }
            Phase::Lost => self.begin_release(now, PriorState::Lost, settings, out),
            Phase::Releasing { .. } => {}
        }
        true
    }

    fn begin_release(
        &mut self,
        now: Moment,
        prior: PriorState,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        // By then nothing of it can be left at the backend: the lease and the place in the queue
        // have ended.
        let give_up_at = now + settings.lease.max(WAITER_TIMEOUT);
        self.failures = 0;
        self.phase = Phase::Releasing { prior, repeat_at: None, give_up_at, is_repeated: false };
        self.send_release(settings, out);
    }

    fn send_release(&self, settings: &Settings, out: &mut Vec<Effect>) {
        let (lock_ref, refuse_late_requests) =
            (self.lock_ref(settings), self.has_unanswered_request);
        let is_uncontended = self.mode == LockMode::Exclusive && self.queue != QueueMode::KeepPlace;
        out.push(Effect::Release(ReleaseRequest {
            lock_ref,
            refuse_late_requests,
            is_uncontended,
        }));
    }

    pub(super) fn release_answered(
        &mut self,
        now: Moment,
        answer: Result<ReleaseResponse, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Phase::Releasing { prior, repeat_at, give_up_at, is_repeated } = &mut self.phase else {
            return true;
        };
        let outcome = match answer {
            Ok(left) => Ok(outcome(*prior, left, *is_repeated)),
            Err(error) if !error.is_final() && now < *give_up_at => {
                self.failures += 1;
                *is_repeated = true;
                *repeat_at = Some(now + settings.retry_pause(self.failures));
                return true;
            }
            Err(error) => Err(error),
        };
        out.push(Effect::Ended { number: self.number, outcome });
        false
    }

    pub(super) fn tick(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) -> bool {
        let has_timed_out = self.limit().is_some_and(|limit| limit <= now);
        match &mut self.phase {
            Phase::Acquiring { is_wanted, .. } if *is_wanted && has_timed_out => {
                // ONE-CALL: the caller is answered at once, and the release follows the request's
                // answer.
                *is_wanted = false;
                self.time_out(out);
            }
            Phase::Waiting { .. } if has_timed_out => {
                self.time_out(out);
                self.begin_release(now, PriorState::NotHeld, settings, out);
            }
            Phase::Waiting { retry_at } if *retry_at <= now => self.acquire(now, settings, out),
            // LOST-FIRST.
            Phase::Held(held) if held.expiry.deadline <= now => {
                let reason = held.expiry.loss;
                self.mark_lost(reason, out);
            }
            Phase::Held(HeldState { downgrade: Downgrade::At(at), .. }) if *at <= now => {
                self.send_downgrade(settings, out);
            }
            Phase::Releasing { repeat_at, .. } if repeat_at.is_some_and(|at| at <= now) => {
                *repeat_at = None;
                self.send_release(settings, out);
            }
            Phase::Acquiring { .. }
            | Phase::Waiting { .. }
            | Phase::Held(_)
            | Phase::Lost
            | Phase::Releasing { .. } => {}
        }
        true
    }

    /// Reports that the time limit has passed. A failing backend is reported as such, and not as a
    /// holder that keeps the lock.
    fn time_out(&mut self, out: &mut Vec<Effect>) {
        let (name, holder) = (self.name.clone(), self.holder.clone());
        let reason = match self.trouble.take() {
            Some(source) => LockError::Unavailable { name, source },
            None => LockError::TimedOut { name, holder },
        };
        out.push(Effect::Refused { number: self.number, reason });
    }

    fn mark_lost(&mut self, reason: LossReason, out: &mut Vec<Effect>) {
        // The request for it may still arrive.
        self.has_unanswered_request |=
            matches!(&self.phase, Phase::Held(held) if held.downgrade.is_sent());
        self.phase = Phase::Lost;
        out.push(Effect::Lost { number: self.number, reason });
    }

    /// LOST-FIRST: a renewal does not bring back what a guard has seen as lost.
    pub(super) fn seen_as_lost(&mut self, reason: LossReason, out: &mut Vec<Effect>) -> bool {
        if matches!(self.phase, Phase::Held(_)) {
            self.mark_lost(reason, out);
        }
        true
    }

    /// Returns whether the lease must be renewed by `then`.
    pub(super) fn is_due(&self, then: Moment) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.renewing.is_none() && held.renew_at <= then)
    }

    /// Returns whether the last renewal failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn mark_renewing(&mut self, now: Moment) {
        if let Phase::Held(held) = &mut self.phase {
            held.renewing = Some(now);
        }
    }

    /// Takes the answer to a renewal. `is_held` is none if the renewal failed.
    pub(super) fn renewed(
        &mut self,
        now: Moment,
        is_held: Option<bool>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let Phase::Held(held) = &mut self.phase else { return };
        let Some(sent_at) = held.renewing.take() else { return };
        // LOST-FIRST: no answer brings it back.
        if held.expiry.deadline <= now {
            return;
        }
        match is_held {
            Some(true) => {
                self.failures = 0;
                held.expiry = expiry(sent_at, held.end_at, settings);
                held.renew_at = match held.expiry.loss {
                    // The limit of holding allows no further renewal.
                    LossReason::MaxHold => held.expiry.deadline,
                    LossReason::Deadline | LossReason::Taken => sent_at + settings.lease / 3,
                };
                out.push(Effect::Extended { number: self.number, expiry: held.expiry });
            }
            Some(false) => self.mark_lost(LossReason::Taken, out),
            None => {
                self.failures += 1;
                held.renew_at = now + settings.retry_pause(self.failures);
            }
        }
    }

    fn limit(&self) -> Option<Moment> {
        match self.wait {
            WaitPolicy::Until(limit) => Some(limit),
            WaitPolicy::NoWait | WaitPolicy::Forever => None,
        }
    }
}

fn outcome(prior: PriorState, left: ReleaseResponse, is_repeated: bool) -> ReleaseOutcome {
    match (prior, left) {
        (PriorState::NotHeld, _) | (PriorState::Held, ReleaseResponse::Released) => {
            ReleaseOutcome::Released
        }
        // The first request may have freed the lock, and its answer was lost.
        (PriorState::Held, ReleaseResponse::NotHeld { .. }) if is_repeated => {
            ReleaseOutcome::Released
        }
        (PriorState::Lost, ReleaseResponse::Released) => ReleaseOutcome::WasLost,
        (PriorState::Held | PriorState::Lost, ReleaseResponse::NotHeld { current: None }) => {
            ReleaseOutcome::WasLost
        }
        (
            PriorState::Held | PriorState::Lost,
            ReleaseResponse::NotHeld { current: Some(current) },
        ) => ReleaseOutcome::NotOwner { current },
    }
}

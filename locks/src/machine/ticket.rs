//! One acquisition from its first request until nothing of it is left at the backend.
//!
//! ```text
//! Asking ⇄ Waiting           let go, out of patience, given up
//!    │        └──────────────────────────┐
//!    ▼                                   ▼
//!  Held ──── let go ─────────────────▶ Leaving ─▶ (gone)
//!    └─▶ Lost ─── let go ────────────────┘
//! ```

use std::sync::Arc;

use super::held::{Downgrade, Held, until};
use super::{Effect, Patience, Settings};
use crate::backend::{Answer, Ask, Hold, Leave, Left, Place, Share, WAITER_ALIVE};
use crate::clock::Moment;
use crate::error::{BackendError, LockError, Lost, Outcome};
use crate::name::{Fence, Holder, LockName, Token};

#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    name: LockName,
    share: Share,
    patience: Patience,
    place: Place,
    /// Some request of ours went unanswered and may still arrive.
    is_doubtful: bool,
    /// Requests that failed in a row, and since when.
    failures: u32,
    failing_since: Moment,
    /// Why the last request for it failed, until one is answered.
    trouble: Option<BackendError>,
    /// Who held the lock when it was last asked for.
    holder: Option<Holder>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// A request is under way.
    Asking { sent_at: Moment, is_woken: bool, is_wanted: bool },
    /// To ask again then, or when woken.
    Waiting { ask_at: Moment },
    /// Held until the deadline at least.
    Held(Held),
    /// It was held, and its guard is still alive.
    Lost,
    /// Its end is under way, or to be repeated then.
    Leaving { was: Was, repeat_at: Option<Moment>, give_up_at: Moment, is_repeated: bool },
}

/// What an acquisition was when it was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    NotHeld,
    Held,
    Lost,
}

impl Ticket {
    pub(super) fn new(
        number: u64,
        name: LockName,
        share: Share,
        patience: Patience,
        now: Moment,
    ) -> Self {
        let place = if patience == Patience::None { Place::None } else { Place::Join };
        let phase = Phase::Waiting { ask_at: now };
        Self {
            number,
            name,
            share,
            patience,
            place,
            is_doubtful: false,
            failures: 0,
            failing_since: now,
            trouble: None,
            holder: None,
            phase,
        }
    }

    /// When it has something to do by itself.
    pub(super) fn timer(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Asking { is_wanted: true, .. } => self.limit(),
            Phase::Waiting { ask_at } => Some(self.limit().map_or(*ask_at, |at| at.min(*ask_at))),
            Phase::Held(held) => Some(held.timer()),
            Phase::Leaving { repeat_at, .. } => *repeat_at,
            Phase::Asking { is_wanted: false, .. } | Phase::Lost => None,
        }
    }

    /// Whether somebody waits for it or has a guard of it.
    pub(super) fn is_wanted(&self) -> bool {
        match self.phase {
            Phase::Asking { is_wanted, .. } => is_wanted,
            Phase::Waiting { .. } | Phase::Held(_) | Phase::Lost => true,
            Phase::Leaving { .. } => false,
        }
    }

    pub(super) fn hold(&self, settings: &Settings) -> Hold {
        let token = Token { client: settings.client, number: self.number };
        Hold { name: self.name.clone(), token }
    }

    pub(super) fn ask(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) {
        self.send_ask(settings, out);
        // SENT-TIME.
        self.phase = Phase::Asking { sent_at: now, is_woken: false, is_wanted: true };
    }

    fn send_ask(&self, settings: &Settings, out: &mut Vec<Effect>) {
        let Hold { name, token } = self.hold(settings);
        let (share, place, lease) = (self.share, self.place, settings.lease);
        let label = Arc::clone(&settings.label);
        out.push(Effect::Ask(Ask { name, token, share, lease, label, place }));
    }

    /// Answers whether the ticket goes on, as the following do.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        answer: Result<Answer, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if matches!(self.phase, Phase::Held(_)) {
            self.downgraded(now, &answer, settings, out);
        }
        let Phase::Asking { sent_at, is_woken, is_wanted } = self.phase else { return true };
        match answer {
            Ok(Answer::Granted { .. }) if !is_wanted => {
                self.leave(now, Was::NotHeld, settings, out);
                true
            }
            Ok(Answer::Granted { fence, since }) => {
                self.granted(now, since.unwrap_or(sent_at), fence, settings, out);
                true
            }
            Ok(Answer::Busy { holder, look_again }) => {
                (self.failures, self.trouble) = (0, None);
                self.holder = holder;
                let look = if is_woken { None } else { Some(now + look_again) };
                self.busy(now, look, is_wanted, settings, out)
            }
            Err(error) => {
                self.is_doubtful = true;
                // It may be in the queue already.
                if self.place == Place::Join {
                    self.place = Place::Keep;
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
        fence: Fence,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let end_at = settings.hold_max.map(|max| since + max);
        let until = until(since, end_at, settings);
        if until.deadline <= now {
            // Born expired: the answer took as long as the lease. Asking again finds the same
            // acquisition if nobody took it meanwhile.
            self.ask(now, settings, out);
            return;
        }
        (self.failures, self.trouble) = (0, None);
        let renew_at = since + settings.lease / 3;
        let (renewing, downgrade) = (None, Downgrade::None);
        let held = Held { fence, end_at, until, renew_at, renewing, downgrade };
        self.phase = Phase::Held(held);
        out.push(Effect::Granted { number: self.number, fence, until });
    }

    fn busy(
        &mut self,
        now: Moment,
        look: Option<Moment>,
        is_wanted: bool,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.place == Place::None {
            // Nothing of it is left at the backend.
            if is_wanted {
                let (name, holder) = (self.name.clone(), self.holder.take());
                let why = LockError::Busy { name, holder };
                out.push(Effect::Refused { number: self.number, why });
            } else {
                out.push(Effect::Ended { number: self.number, outcome: Ok(Outcome::Released) });
            }
            return false;
        }
        self.place = Place::Keep;
        match look {
            _ if !is_wanted => self.leave(now, Was::NotHeld, settings, out),
            Some(ask_at) => self.phase = Phase::Waiting { ask_at },
            None => self.ask(now, settings, out),
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
            self.patience == Patience::None || self.failing_since + settings.give_up() <= now;
        let name = self.name.clone();
        let why = if !is_wanted {
            None
        } else if error.is_final() {
            Some(LockError::refused(error))
        } else if gives_up {
            Some(LockError::Unavailable { name, source: error })
        } else {
            self.trouble = Some(error);
            self.phase = Phase::Waiting { ask_at: now + settings.pause(self.failures) };
            return true;
        };
        if let Some(why) = why {
            out.push(Effect::Refused { number: self.number, why });
        }
        self.leave(now, Was::NotHeld, settings, out);
        true
    }

    pub(super) fn woken(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Asking { is_woken, .. } => *is_woken = true,
            Phase::Waiting { .. } => self.ask(now, settings, out),
            Phase::Held(_) | Phase::Lost | Phase::Leaving { .. } => {}
        }
    }

    pub(super) fn let_go(
        &mut self,
        now: Moment,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        match &mut self.phase {
            // ONE-CALL: its answer comes first.
            Phase::Asking { is_wanted, .. } => *is_wanted = false,
            Phase::Waiting { .. } => self.leave(now, Was::NotHeld, settings, out),
            Phase::Held(held) => {
                let was = if held.until.deadline <= now { Was::Lost } else { Was::Held };
                // It may arrive yet.
                self.is_doubtful |= held.downgrade == Downgrade::Sent;
                self.leave(now, was, settings, out);
            }
            Phase::Lost => self.leave(now, Was::Lost, settings, out),
            Phase::Leaving { .. } => {}
        }
        true
    }

    fn leave(&mut self, now: Moment, was: Was, settings: &Settings, out: &mut Vec<Effect>) {
        // By then nothing of it can be left at the backend: the lease and the place have ended.
        let give_up_at = now + settings.lease.max(WAITER_ALIVE);
        self.failures = 0;
        self.phase = Phase::Leaving { was, repeat_at: None, give_up_at, is_repeated: false };
        self.send_leave(settings, out);
    }

    fn send_leave(&self, settings: &Settings, out: &mut Vec<Effect>) {
        let (hold, is_doubtful) = (self.hold(settings), self.is_doubtful);
        let is_alone = self.share == Share::All && self.place != Place::Keep;
        out.push(Effect::Leave(Leave { hold, is_doubtful, is_alone }));
    }

    pub(super) fn left(
        &mut self,
        now: Moment,
        answer: Result<Left, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Phase::Leaving { was, repeat_at, give_up_at, is_repeated } = &mut self.phase else {
            return true;
        };
        let outcome = match answer {
            Ok(left) => Ok(outcome(*was, left, *is_repeated)),
            Err(error) if !error.is_final() && now < *give_up_at => {
                self.failures += 1;
                *is_repeated = true;
                *repeat_at = Some(now + settings.pause(self.failures));
                return true;
            }
            Err(error) => Err(error),
        };
        out.push(Effect::Ended { number: self.number, outcome });
        false
    }

    pub(super) fn tick(&mut self, now: Moment, settings: &Settings, out: &mut Vec<Effect>) -> bool {
        let is_out_of_patience = self.limit().is_some_and(|limit| limit <= now);
        match &mut self.phase {
            Phase::Asking { is_wanted, .. } if *is_wanted && is_out_of_patience => {
                *is_wanted = false;
                self.time_out(out);
            }
            Phase::Waiting { .. } if is_out_of_patience => {
                self.time_out(out);
                self.leave(now, Was::NotHeld, settings, out);
            }
            Phase::Waiting { ask_at } if *ask_at <= now => self.ask(now, settings, out),
            // LOST-FIRST.
            Phase::Held(held) if held.until.deadline <= now => {
                let why = held.until.then;
                self.lose(why, out);
            }
            Phase::Held(Held { downgrade: Downgrade::At(at), .. }) if *at <= now => {
                self.send_downgrade(settings, out);
            }
            Phase::Leaving { repeat_at, .. } if repeat_at.is_some_and(|at| at <= now) => {
                *repeat_at = None;
                self.send_leave(settings, out);
            }
            Phase::Asking { .. }
            | Phase::Waiting { .. }
            | Phase::Held(_)
            | Phase::Lost
            | Phase::Leaving { .. } => {}
        }
        true
    }

    /// A backend that fails is no holder who takes his time.
    fn time_out(&mut self, out: &mut Vec<Effect>) {
        let (name, holder) = (self.name.clone(), self.holder.clone());
        let why = match self.trouble.take() {
            Some(source) => LockError::Unavailable { name, source },
            None => LockError::TimedOut { name, holder },
        };
        out.push(Effect::Refused { number: self.number, why });
    }

    fn lose(&mut self, why: Lost, out: &mut Vec<Effect>) {
        // It may arrive yet.
        let is_sent = |held: &Held| held.downgrade == Downgrade::Sent;
        self.is_doubtful |= matches!(&self.phase, Phase::Held(held) if is_sent(held));
        self.phase = Phase::Lost;
        out.push(Effect::Lost { number: self.number, why });
    }

    /// Whether its lease is to be renewed by then.
    pub(super) fn is_due(&self, then: Moment) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.renewing.is_none() && held.renew_at <= then)
    }

    /// Whether its last renewal failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn mark_renewing(&mut self, now: Moment) {
        if let Phase::Held(held) = &mut self.phase {
            held.renewing = Some(now);
        }
    }

    /// `is_held` is none when the renewal failed.
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
        if held.until.deadline <= now {
            return;
        }
        match is_held {
            Some(true) => {
                self.failures = 0;
                held.until = until(sent_at, held.end_at, settings);
                held.renew_at = match held.until.then {
                    // Longer it may not be held.
                    Lost::MaxHold => held.until.deadline,
                    Lost::Deadline | Lost::Taken => sent_at + settings.lease / 3,
                };
                out.push(Effect::Extended { number: self.number, until: held.until });
            }
            Some(false) => self.lose(Lost::Taken, out),
            None => {
                self.failures += 1;
                held.renew_at = now + settings.pause(self.failures);
            }
        }
    }

    /// From the moment of this request its holder is a reader. It is sent to the backend as the
    /// same acquisition that asks for less, so that it can be repeated; until it is known there,
    /// other readers wait in vain, and nothing worse happens.
    pub(super) fn downgrade(
        &mut self,
        now: Moment,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) -> bool {
        if matches!(&self.phase, Phase::Held(held) if now < held.until.deadline) {
            (self.share, self.place) = (Share::READ, Place::None);
            self.send_downgrade(settings, out);
        } else {
            // It is lost, as its guard knows by himself: there is nothing to tell.
            out.push(Effect::Downgraded { number: self.number });
        }
        true
    }

    fn send_downgrade(&mut self, settings: &Settings, out: &mut Vec<Effect>) {
        let Phase::Held(held) = &mut self.phase else { return };
        held.downgrade = Downgrade::Sent;
        self.send_ask(settings, out);
    }

    fn downgraded(
        &mut self,
        now: Moment,
        answer: &Result<Answer, BackendError>,
        settings: &Settings,
        out: &mut Vec<Effect>,
    ) {
        let own = self.hold(settings).token;
        let Phase::Held(held) = &mut self.phase else { return };
        if held.downgrade != Downgrade::Sent {
            return;
        }
        match answer {
            Ok(Answer::Granted { fence, .. }) if *fence == held.fence => {
                held.downgrade = Downgrade::None;
                out.push(Effect::Downgraded { number: self.number });
            }
            // It is known, and the lease ends as before: longer it may not be held.
            Ok(Answer::Busy { holder: Some(holder), .. }) if holder.token == own => {
                held.downgrade = Downgrade::None;
                out.push(Effect::Downgraded { number: self.number });
            }
            // It is somebody else's, or was and has been taken anew.
            Ok(Answer::Granted { .. } | Answer::Busy { .. }) => {
                held.downgrade = Downgrade::None;
                self.lose(Lost::Taken, out);
            }
            Err(_) => {
                self.is_doubtful = true;
                self.failures += 1;
                held.downgrade = Downgrade::At(now + settings.pause(self.failures));
            }
        }
    }

    fn limit(&self) -> Option<Moment> {
        match self.patience {
            Patience::Until(limit) => Some(limit),
            Patience::None | Patience::Endless => None,
        }
    }
}

fn outcome(was: Was, left: Left, is_repeated: bool) -> Outcome {
    match (was, left) {
        (Was::NotHeld, _) | (Was::Held, Left::Freed) => Outcome::Released,
        // Our first request may have freed it, and its answer was lost.
        (Was::Held, Left::NotHeld { .. }) if is_repeated => Outcome::Released,
        (Was::Lost, Left::Freed) => Outcome::WasLost,
        (Was::Held | Was::Lost, Left::NotHeld { current: None }) => Outcome::WasLost,
        (Was::Held | Was::Lost, Left::NotHeld { current: Some(current) }) => {
            Outcome::NotOwner { current }
        }
    }
}

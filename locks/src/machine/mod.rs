//! The client's side of locks as a state machine: what to ask, when to renew, when a lock counts as
//! lost, how it is let go.
//!
//! Pure: events and the present go in, effects come out; no clock, no IO, no randomness, so that
//! the simulation in `tests/` drives it through lost, doubled and late messages on virtual time.
//! The shell (`shell.rs`) carries the effects out.
//!
//! What it relies on, by name:
//! - **ONE-CALL**: an acquisition has at most one request for it under way, so that its end is
//!   never overtaken by a request of ours, other than one that went unanswered. That one is told to
//!   the backend as doubtful.
//! - **SENT-TIME**: a lease counts from when its request was handed out, never from its answer;
//!   from later only where the backend says how long the request waited before it was granted.
//! - **LOST-FIRST**: a lock counts as lost before its lease can end at the backend, whatever the
//!   network does, and never comes back from that.

mod held;
mod ticket;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::backend::{Answer, Ask, Hold, Leave, Left, Share, Wake};
use crate::clock::Moment;
use crate::error::{BackendError, LockError, Lost, Outcome};
use crate::name::{Fence, LockName};

use self::ticket::Ticket;

/// How many leases are renewed by one request (BOUNDED).
const BATCH_MAX: usize = 100;

/// With a lease shorter than this, a backend that restarts is still waited for.
const GIVE_UP_MIN: Duration = Duration::from_secs(10);

/// What all locks of a client have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) client: u128,
    pub(crate) label: Arc<str>,
    pub(crate) lease: Duration,
    pub(crate) hold_max: Option<Duration>,
}

impl Settings {
    /// What a lease is shortened by on this side: the backend's clock may run one per cent faster,
    /// and whoever is told needs a moment.
    fn margin(&self) -> Duration {
        self.lease / 100 + Duration::from_millis(5)
    }

    /// How long requests for a lock may fail in a row.
    fn give_up(&self) -> Duration {
        self.lease.max(GIVE_UP_MIN)
    }

    /// The pause before a request is repeated that failed for the n-th time in a row.
    fn pause(&self, failures: u32) -> Duration {
        (self.lease / 256 * 2_u32.saturating_pow(failures.min(5))).min(Duration::from_secs(2))
    }
}

/// How long somebody wants to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Moment),
    /// As long as it takes.
    Endless,
}

/// What happens to the machine. Numbers are those of tokens.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody wants a lock.
    Ask { number: u64, name: LockName, share: Share, patience: Patience },
    /// The answer to [`Effect::Ask`].
    Answered { number: u64, answer: Result<Answer, BackendError> },
    /// The answer to [`Effect::Renew`].
    Renewed { numbers: Vec<u64>, answer: Result<Vec<bool>, BackendError> },
    /// A wake-up.
    Woken(Wake),
    /// The holder of all of a lock is a reader from here on.
    Downgrade { number: u64 },
    /// Nobody wants the lock any more, whether it is held or not.
    LetGo { number: u64 },
    /// The answer to [`Effect::Leave`].
    Left { number: u64, answer: Result<Left, BackendError> },
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Ask the backend.
    Ask(Ask),
    /// Renew leases.
    Renew { numbers: Vec<u64>, holds: Vec<Hold> },
    /// End an acquisition at the backend.
    Leave(Leave),
    /// Tell that the lock is held.
    Granted { number: u64, fence: Fence, until: Until },
    /// Tell that it will not be.
    Refused { number: u64, why: LockError },
    /// Its lease is renewed.
    Extended { number: u64, until: Until },
    /// The backend knows that its holder is a reader, or the lock is lost.
    Downgraded { number: u64 },
    /// It is lost.
    Lost { number: u64, why: Lost },
    /// It has ended.
    Ended { number: u64, outcome: Result<Outcome, BackendError> },
}

/// Until when a lock is surely held, and how it is lost then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    pub(crate) deadline: Moment,
    pub(crate) then: Lost,
}

/// The state of all locks of a client.
#[derive(Debug)]
pub(crate) struct Machine {
    settings: Settings,
    /// Gone through in no order but that of their numbers.
    tickets: HashMap<u64, Ticket>,
    /// Exactly the tickets that have something to do at a time.
    timers: BTreeSet<(Moment, u64)>,
}

impl Machine {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, tickets: HashMap::new(), timers: BTreeSet::new() }
    }

    /// Decides one event. Effects are to be carried out in order.
    pub(crate) fn decide(&mut self, now: Moment, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Ask { number, name, share, patience } => {
                let mut ticket = Ticket::new(number, name, share, patience, now);
                ticket.ask(now, &self.settings, out);
                self.set_timer(number, None, ticket.timer());
                self.tickets.insert(number, ticket);
            }
            Event::Answered { number, answer } => {
                self.change(number, |ticket, settings| ticket.answered(now, answer, settings, out));
            }
            Event::Renewed { numbers, answer } => self.renewed(now, &numbers, answer, out),
            Event::Woken(wake) => self.woken(now, wake, out),
            Event::Downgrade { number } => {
                self.change(number, |ticket, settings| ticket.downgrade(now, settings, out));
            }
            Event::LetGo { number } => {
                self.change(number, |ticket, settings| ticket.let_go(now, settings, out));
            }
            Event::Left { number, answer } => {
                self.change(number, |ticket, settings| ticket.left(now, answer, settings, out));
            }
            Event::Tick => self.tick(now, out),
        }
    }

    /// When the next [`Event::Tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether nothing is asked for, held, or being let go.
    pub(crate) fn is_idle(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Whether nothing is left of what was let go.
    pub(crate) fn is_settled(&self) -> bool {
        self.tickets.values().all(|ticket| ticket.is_wanted())
    }

    fn tick(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let mut due = Vec::new();
        while let Some((_, number)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.change(number, |ticket, settings| {
                let goes_on = ticket.tick(now, settings, out);
                if ticket.is_due(now) {
                    due.push(number);
                    ticket.mark_renewing(now);
                }
                goes_on
            });
        }
        if !due.is_empty() {
            self.join_soon_due(now, &mut due);
            self.renew(&due, out);
        }
    }

    /// Whoever is to be renewed soon rides along: fewer requests for many locks.
    fn join_soon_due(&mut self, now: Moment, due: &mut Vec<u64>) {
        let soon = now + self.settings.lease / 12;
        let numbers: Vec<u64> =
            self.timers.range(..=(soon, u64::MAX)).map(|(_, number)| *number).collect();
        for number in numbers {
            self.change(number, |ticket, _| {
                if ticket.is_due(soon) {
                    due.push(number);
                    ticket.mark_renewing(now);
                }
                true
            });
        }
    }

    /// Whoever could not be renewed before goes alone: one lock whose row or server does not answer
    /// must not take the others with it.
    fn renew(&self, due: &[u64], out: &mut Vec<Effect>) {
        let has_failed = |number: &&u64| self.tickets.get(*number).is_some_and(Ticket::has_failed);
        let (failed, sound): (Vec<u64>, Vec<u64>) = due.iter().partition(has_failed);
        for numbers in sound.chunks(BATCH_MAX).chain(failed.chunks(1)) {
            let tickets = numbers.iter().filter_map(|number| self.tickets.get(number));
            let holds = tickets.map(|ticket| ticket.hold(&self.settings)).collect();
            out.push(Effect::Renew { numbers: numbers.to_vec(), holds });
        }
    }

    fn renewed(
        &mut self,
        now: Moment,
        numbers: &[u64],
        answer: Result<Vec<bool>, BackendError>,
        out: &mut Vec<Effect>,
    ) {
        // Whatever went wrong, renewal is tried again until the deadline.
        let held = answer.ok().filter(|held| held.len() == numbers.len());
        for (at, number) in numbers.iter().enumerate() {
            let is_held = held.as_ref().map(|held| held[at]);
            self.change(*number, |ticket, settings| {
                ticket.renewed(now, is_held, settings, out);
                true
            });
        }
    }

    fn woken(&mut self, now: Moment, wake: Wake, out: &mut Vec<Effect>) {
        let numbers: Vec<u64> = match wake {
            Wake::One(token) => vec![token.number],
            Wake::All => {
                let mut all: Vec<u64> = self.tickets.keys().copied().collect();
                all.sort_unstable();
                all
            }
        };
        for number in numbers {
            self.change(number, |ticket, settings| {
                ticket.woken(now, settings, out);
                true
            });
        }
    }

    /// Changes a ticket and its timer together. A late message may name a ticket that has ended.
    fn change(&mut self, number: u64, step: impl FnOnce(&mut Ticket, &Settings) -> bool) {
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        let before = ticket.timer();
        let goes_on = step(ticket, &self.settings);
        let after = ticket.timer().filter(|_| goes_on);
        if !goes_on {
            self.tickets.remove(&number);
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

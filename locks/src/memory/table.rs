//! The table of locks, as every backend has one: who holds, who waits, which fence comes next.
//!
//! Pure: the present is an argument. It is the reference for what the other backends do in their
//! own languages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::backend::{Answer, Ask, Hold, Leave, Left, Place, WAITER_ALIVE, WAITER_BEAT};
use crate::clock::Moment;
use crate::name::{Fence, Holder, LockName, Token};

#[derive(Debug, Default)]
pub(crate) struct Table {
    locks: HashMap<LockName, Lock>,
    /// Tokens that were let go while a request of theirs may still arrive.
    barred: HashSet<Token>,
}

#[derive(Debug, Default)]
struct Lock {
    held: Option<Held>,
    /// Of the last acquisition; never goes back, as the lock is never forgotten.
    fence: i64,
    queue: VecDeque<(Token, Moment)>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    label: String,
    expires_at: Moment,
}

impl Table {
    pub(crate) fn ask(&mut self, now: Moment, ask: &Ask) -> Answer {
        if self.barred.contains(&ask.token) {
            return Answer::Busy { holder: None, look_again: WAITER_BEAT };
        }
        let lock = self.locks.entry(ask.name.clone()).or_default();
        lock.drop_dead_waiters(now);
        if lock.is_for(now, ask.token) {
            return Answer::Granted { fence: lock.grant(now, ask) };
        }
        if ask.place != Place::None {
            lock.beat(now, ask.token);
        }
        lock.busy(now)
    }

    pub(crate) fn renew(&mut self, now: Moment, holds: &[Hold], lease: Duration) -> Vec<bool> {
        let renew = |hold: &Hold| {
            let held = self.locks.get_mut(&hold.name).and_then(|lock| lock.held_by(hold.token));
            let held = held.filter(|held| now < held.expires_at);
            held.map(|held| held.expires_at = now + lease).is_some()
        };
        holds.iter().map(renew).collect()
    }

    /// Answers also who is to be woken.
    pub(crate) fn leave(&mut self, now: Moment, leave: &Leave) -> (Left, Option<Token>) {
        let token = leave.hold.token;
        if leave.is_doubtful {
            self.barred.insert(token);
        }
        let Some(lock) = self.locks.get_mut(&leave.hold.name) else {
            return (Left::NotHeld { current: None }, None);
        };
        let was_head = lock.queue.front().is_some_and(|(head, _)| *head == token);
        lock.queue.retain(|(waiter, _)| *waiter != token);
        lock.drop_dead_waiters(now);
        let next = lock.queue.front().map(|(head, _)| *head);
        if lock.held_by(token).is_some_and(|held| now < held.expires_at) {
            lock.held = None;
            return (Left::Freed, next);
        }
        let current = lock.holder(now);
        // Its turn, if it had one, is the next one's.
        let woken = if current.is_none() && was_head { next } else { None };
        (Left::NotHeld { current }, woken)
    }
}

#[cfg(test)]
impl Table {
    pub(crate) fn holder(&self, now: Moment, name: &LockName) -> Option<Token> {
        self.locks.get(name)?.holder(now).map(|holder| holder.token)
    }
}

impl Lock {
    fn held_by(&mut self, token: Token) -> Option<&mut Held> {
        self.held.as_mut().filter(|held| held.token == token)
    }

    fn holder(&self, now: Moment) -> Option<Holder> {
        let held = self.held.as_ref().filter(|held| now < held.expires_at)?;
        Some(Holder { token: held.token, label: held.label.clone() })
    }

    fn drop_dead_waiters(&mut self, now: Moment) {
        self.queue.retain(|(_, alive_until)| now < *alive_until);
    }

    /// Whether a request is to be granted: it was before, or the lock is free and nobody waits
    /// longer.
    fn is_for(&self, now: Moment, token: Token) -> bool {
        match &self.held {
            Some(held) if held.token == token => true,
            Some(held) if now < held.expires_at => false,
            Some(_) | None => self.queue.front().is_none_or(|(head, _)| *head == token),
        }
    }

    fn grant(&mut self, now: Moment, ask: &Ask) -> Fence {
        if self.held_by(ask.token).is_none() {
            self.fence += 1;
        }
        let (token, label, expires_at) = (ask.token, ask.label.clone(), now + ask.lease);
        self.held = Some(Held { token, label, expires_at });
        self.queue.retain(|(waiter, _)| *waiter != token);
        Fence::new(self.fence)
    }

    fn beat(&mut self, now: Moment, token: Token) {
        let alive_until = now + WAITER_ALIVE;
        match self.queue.iter_mut().find(|(waiter, _)| *waiter == token) {
            Some((_, until)) => *until = alive_until,
            None => self.queue.push_back((token, alive_until)),
        }
    }

    /// Whoever is next looks again when the lease ends.
    fn busy(&self, now: Moment) -> Answer {
        let left = self.held.as_ref().map_or(WAITER_BEAT, |held| held.expires_at.left(now));
        let look_again = left.clamp(Duration::from_millis(1), WAITER_BEAT);
        Answer::Busy { holder: self.holder(now), look_again }
    }
}

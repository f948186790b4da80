//! The table of locks, as every backend has one: who holds, who waits, which fence comes next.
//!
//! Pure: the present is an argument. It is the reference for what the other backends do in their
//! own languages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::backend::{Answer, Ask, Hold, Leave, Left, Place, Share, WAITER_ALIVE, WAITER_BEAT};
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
    /// One who holds all, or some who hold parts.
    held: Vec<Held>,
    /// Of the last acquisition; never goes back, as the lock is never forgotten.
    fence: i64,
    /// Whether the last fence was given for a part: those who join get the same.
    is_shared: bool,
    queue: VecDeque<(Token, Moment)>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    label: String,
    share: Share,
    expires_at: Moment,
}

impl Table {
    /// Answers also who is to be woken: after a part was granted, another may be.
    pub(crate) fn ask(&mut self, now: Moment, ask: &Ask) -> (Answer, Option<Token>) {
        if self.barred.contains(&ask.token) {
            return (Answer::Busy { holder: None, look_again: WAITER_BEAT }, None);
        }
        let lock = self.locks.entry(ask.name.clone()).or_default();
        lock.drop_dead_waiters(now);
        // Whoever asks has it still if nobody took it since his lease ended.
        lock.held.retain(|held| now < held.expires_at || held.token == ask.token);
        if lock.is_for(ask) {
            let fence = lock.grant(now, ask);
            return (Answer::granted(fence), lock.next().filter(|_| lock.is_shared));
        }
        if ask.place != Place::None {
            lock.beat(now, ask.token);
        }
        (lock.busy(now), None)
    }

    /// Of how many parts the lock is for those who hold it, if that is another number.
    pub(crate) fn other_parts(&self, now: Moment, ask: &Ask) -> Option<u32> {
        let Share::One { of } = ask.share else { return None };
        let held = self.locks.get(&ask.name)?.held.iter().filter(|held| now < held.expires_at);
        let mut parts = held.filter_map(|held| match held.share {
            Share::One { of } => Some(of),
            Share::All => None,
        });
        parts.find(|other| *other != of)
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
        lock.drop_dead_waiters(now);
        let was_head = lock.next() == Some(token);
        lock.queue.retain(|(waiter, _)| *waiter != token);
        if lock.held_by(token).is_some_and(|held| now < held.expires_at) {
            lock.held.retain(|held| held.token != token);
            return (Left::Freed, lock.next());
        }
        // His turn, if he had one, is the next one's.
        (Left::NotHeld { current: lock.holder(now) }, lock.next().filter(|_| was_head))
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
        self.held.iter_mut().find(|held| held.token == token)
    }

    fn holder(&self, now: Moment) -> Option<Holder> {
        let held = self.held.iter().find(|held| now < held.expires_at)?;
        Some(Holder { token: held.token, label: held.label.clone() })
    }

    fn next(&self) -> Option<Token> {
        self.queue.front().map(|(head, _)| *head)
    }

    fn drop_dead_waiters(&mut self, now: Moment) {
        self.queue.retain(|(_, alive_until)| now < *alive_until);
    }

    /// Whether a request is to be granted: it was before, or there is room and nobody waits longer.
    fn is_for(&self, ask: &Ask) -> bool {
        let is_held = self.held.iter().any(|held| held.token == ask.token);
        let is_next = self.next().is_none_or(|head| head == ask.token);
        is_held || (is_next && self.has_room(ask.share))
    }

    fn has_room(&self, share: Share) -> bool {
        let Share::One { of } = share else { return self.held.is_empty() };
        let is_shared = self.held.iter().all(|held| held.share != Share::All);
        is_shared && self.held.len() < usize::try_from(of).unwrap_or(usize::MAX)
    }

    fn grant(&mut self, now: Moment, ask: &Ask) -> Fence {
        let (token, share, expires_at) = (ask.token, ask.share, now + ask.lease);
        self.queue.retain(|(waiter, _)| *waiter != token);
        if let Some(held) = self.held_by(token) {
            held.expires_at = expires_at;
            // A share never grows: a request may be a late one.
            if share != Share::All {
                held.share = share;
                self.is_shared = true;
            }
            return Fence::new(self.fence);
        }
        if share == Share::All || !self.is_shared {
            self.fence += 1;
        }
        self.is_shared = share != Share::All;
        self.held.push(Held { token, label: ask.label.to_string(), share, expires_at });
        Fence::new(self.fence)
    }

    fn beat(&mut self, now: Moment, token: Token) {
        let alive_until = now + WAITER_ALIVE;
        match self.queue.iter_mut().find(|(waiter, _)| *waiter == token) {
            Some((_, until)) => *until = alive_until,
            None => self.queue.push_back((token, alive_until)),
        }
    }

    /// Whoever is next looks again when the first lease ends.
    fn busy(&self, now: Moment) -> Answer {
        let ends_at = self.held.iter().map(|held| held.expires_at).min();
        let left = ends_at.map_or(WAITER_BEAT, |ends_at| ends_at.left(now));
        let look_again = left.clamp(Duration::from_millis(1), WAITER_BEAT);
        Answer::Busy { holder: self.holder(now), look_again }
    }
}

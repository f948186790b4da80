//! What this side keeps of its nodes. A node lives as long as the session, which outlives what a
//! lease promises whenever this process does: so a lease that is not renewed, and a waiter without
//! a sign of life, end from here.
//!
//! Pure: the present is an argument. If this process dies, the session ends, and all of it too.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{Ask, Hold, WAITER_ALIVE};
use crate::clock::Moment;
use crate::name::{Fence, LockName, Token};

/// How long a token stays refused: longer than any request of it can be under way.
const BARRED: Duration = Duration::from_secs(60);

/// The nodes of all acquisitions that were asked for through one backend.
#[derive(Debug, Default)]
pub(super) struct Kept {
    places: HashMap<Token, Place>,
    /// Tokens that were let go while a request of theirs may still come, until when.
    barred: HashMap<Token, Moment>,
}

/// One of them, from before its node is made until it is surely gone.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: LockName,
    /// Its node, once that is known.
    pub(super) node: Option<Node>,
    /// Its fence, once it is held.
    pub(super) fence: Option<Fence>,
    ends_at: Moment,
    /// Its node is being deleted.
    is_ending: bool,
}

/// A node that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) path: String,
    /// The transaction that made it: the fence.
    pub(super) made_by: i64,
    /// Whose it is. Another one of ours may be over, and its nodes about to go.
    pub(super) session: i64,
}

/// What a request finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: it is the first one.
    Nothing,
    /// An earlier one of the same acquisition.
    Earlier,
    /// An acquisition that has just ended.
    Ending,
    /// It must not be asked for any more.
    Barred,
}

impl Place {
    pub(super) fn is_held(&self) -> bool {
        self.fence.is_some() && !self.is_ending
    }
}

impl Kept {
    /// Notes a request before anything is sent: what comes of it is found, or ends.
    pub(super) fn ask(&mut self, now: Moment, ask: &Ask) -> Found {
        self.barred.retain(|_, until| now < *until);
        if self.barred.contains_key(&ask.token) {
            return Found::Barred;
        }
        let alive_until = now + WAITER_ALIVE.max(ask.lease);
        match self.places.get_mut(&ask.token) {
            Some(place) if place.is_ending => Found::Ending,
            Some(place) => {
                place.ends_at = place.ends_at.max(alive_until);
                Found::Earlier
            }
            None => {
                let (name, ends_at) = (ask.name.clone(), alive_until);
                let place = Place { name, node: None, fence: None, ends_at, is_ending: false };
                self.places.insert(ask.token, place);
                Found::Nothing
            }
        }
    }

    pub(super) fn place(&self, token: Token) -> Option<&Place> {
        self.places.get(&token)
    }

    /// Its node is that one, or none that is of use. What was held with another one is lost.
    pub(super) fn stands(&mut self, token: Token, node: Option<Node>) {
        let place = self.places.get_mut(&token).filter(|place| place.node != node);
        if let Some(place) = place {
            (place.node, place.fence) = (node, None);
        }
    }

    pub(super) fn waits(&mut self, now: Moment, token: Token) {
        if let Some(place) = self.places.get_mut(&token) {
            place.ends_at = now + WAITER_ALIVE;
        }
    }

    /// Answers false if it was given up meanwhile.
    pub(super) fn holds(
        &mut self,
        now: Moment,
        token: Token,
        lease: Duration,
        fence: Fence,
    ) -> bool {
        let place = self.places.get_mut(&token).filter(|place| !place.is_ending);
        let Some(place) = place else { return false };
        (place.fence, place.ends_at) = (Some(fence), now + lease);
        true
    }

    /// The node to look for, of a lock that is still held by that session.
    pub(super) fn held_by(&self, now: Moment, hold: &Hold, session: i64) -> Option<String> {
        let place = self.places.get(&hold.token)?;
        let is_held = place.is_held() && place.name == hold.name && now < place.ends_at;
        let node = place.node.as_ref().filter(|node| is_held && node.session == session)?;
        Some(node.path.clone())
    }

    /// Its node was there after its renewal was asked for. Answers false if it has ended meanwhile.
    pub(super) fn renew(&mut self, now: Moment, token: Token, lease: Duration) -> bool {
        let place = self.places.get_mut(&token).filter(|place| place.is_held());
        place.map(|place| place.ends_at = now + lease).is_some()
    }

    /// What has ended, and is not yet known to be gone.
    pub(super) fn ended(&mut self, now: Moment) -> Vec<(Token, Place)> {
        let ended = self.places.iter_mut().filter(|(_, place)| place.ends_at <= now);
        let mark = |(token, place): (&Token, &mut Place)| {
            place.is_ending = true;
            (*token, place.clone())
        };
        ended.map(mark).collect()
    }

    /// Nothing of it is left.
    pub(super) fn forget(&mut self, token: Token) {
        self.places.remove(&token);
    }

    pub(super) fn bar(&mut self, now: Moment, token: Token) {
        self.barred.insert(token, now + BARRED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Place as Queue, Share};

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn ask() -> Ask {
        let (name, token) = (LockName::new("a").unwrap(), Token { client: 1, number: 1 });
        let (share, label, place) = (Share::All, "".into(), Queue::Join);
        Ask { name, token, share, lease: LEASE, label, place }
    }

    fn held() -> (Kept, Hold) {
        let (mut kept, ask) = (Kept::default(), ask());
        assert_eq!(kept.ask(at(0), &ask), Found::Nothing);
        let node = Node { path: "/a".to_owned(), made_by: 3, session: 5 };
        kept.stands(ask.token, Some(node));
        assert!(kept.holds(at(0), ask.token, LEASE, Fence::new(3)));
        (kept, Hold { name: ask.name, token: ask.token })
    }

    #[test]
    fn a_lease_ends_unless_it_is_renewed() {
        let (mut kept, hold) = held();
        assert!(kept.ended(at(9)).is_empty());
        assert!(kept.renew(at(9), hold.token, LEASE));
        assert!(kept.ended(at(18)).is_empty());
        assert_eq!(kept.ended(at(19)).len(), 1);
        assert!(!kept.renew(at(19), hold.token, LEASE), "what has ended stays so");
        assert_eq!(kept.ask(at(19), &ask()), Found::Ending);
        assert_eq!(kept.ended(at(20)).len(), 1, "until it is known to be gone");
        kept.forget(hold.token);
        assert_eq!(kept.ask(at(20), &ask()), Found::Nothing);
    }

    #[test]
    fn a_lock_is_held_by_the_session_that_made_its_node() {
        let (kept, hold) = held();
        assert_eq!(kept.held_by(at(9), &hold, 5).as_deref(), Some("/a"));
        assert_eq!(kept.held_by(at(9), &hold, 6), None);
        assert_eq!(kept.held_by(at(10), &hold, 5), None);
    }

    #[test]
    fn what_was_held_with_another_node_is_lost() {
        let (mut kept, hold) = held();
        kept.stands(hold.token, Some(Node { path: "/a".to_owned(), made_by: 3, session: 5 }));
        assert_eq!(kept.place(hold.token).and_then(|place| place.fence), Some(Fence::new(3)));
        kept.stands(hold.token, Some(Node { path: "/b".to_owned(), made_by: 4, session: 5 }));
        assert_eq!(kept.held_by(at(1), &hold, 5), None);
    }

    #[test]
    fn a_waiter_without_a_sign_of_life_ends() {
        let (mut kept, ask) = (Kept::default(), ask());
        assert_eq!(kept.ask(at(0), &ask), Found::Nothing);
        kept.waits(at(0), ask.token);
        assert!(kept.ended(at(5)).is_empty());
        assert_eq!(kept.ask(at(5), &ask), Found::Earlier);
        kept.waits(at(5), ask.token);
        assert!(kept.ended(at(10)).is_empty());
        assert_eq!(kept.ended(at(11)).len(), 1);
    }

    #[test]
    fn a_barred_token_is_refused_for_a_while() {
        let (mut kept, ask) = (Kept::default(), ask());
        kept.bar(at(0), ask.token);
        assert_eq!(kept.ask(at(59), &ask), Found::Barred);
        assert_eq!(kept.ask(at(60), &ask), Found::Nothing);
    }
}

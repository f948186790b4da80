//! The search for a coordinator that greets: which targets are dialled, and when.
//!
//! A target is one address of one endpoint. A target that accepts connections and says nothing (a
//! frozen host, a server that does not serve yet) costs a moment and not the whole connect timeout:
//! the next target is dialled beside it, and the first that greets ends the search. A target that
//! fails costs nothing. When every target has been dialled, the failed ones are dialled again after
//! a pause, which doubles from round to round, even while a silent target is still waited for.
//! While coordinators answer that another one leads, the pause stays short for some rounds: the
//! next leader is a matter of seconds then.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::event::{ConnectionId, DialTarget, Moment, RequestId};
use super::settings::Settings;

/// How long a target may be silent before the next one is dialled beside it. Too short: a distant
/// coordinator is dialled at all its addresses each time. Too long: a silent target is noticed
/// late.
const STAGGER: Duration = Duration::from_millis(250);
/// How often the pause doubles in the rounds in which a coordinator has sent the client on. Too
/// seldom: the coordinators that follow are asked by all clients at a time. Too often: the next
/// leader is found late.
const DOUBLINGS_SENT_ON: u32 = 2;
/// How many rounds that holds for, from the first one on.
const ROUNDS_SENT_ON: u32 = 10;
/// How many addresses of one endpoint are dialled (BOUNDED).
const ADDRESSES_MAX: usize = 16;

/// The attempts that are under way, and the targets that come next.
#[derive(Debug)]
pub(super) struct Search {
    connect_timeout: Duration,
    back_off_base: Duration,
    back_off_max: Duration,
    jitter: SmallRng,
    /// How many addresses each endpoint was last found to have.
    addresses: Vec<usize>,
    /// The endpoint that a round begins with.
    first: usize,
    attempts: Vec<Attempt>,
    /// The targets whose turn is still to come.
    waiting: VecDeque<DialTarget>,
    /// When the next of them has its turn.
    dial_at: Moment,
    /// Between two rounds.
    is_resting: bool,
    /// Rounds since a coordinator last greeted.
    rounds: u32,
    /// In this round a coordinator has answered that another one leads.
    is_sent_on: bool,
    last: ConnectionId,
}

#[derive(Debug)]
struct Attempt {
    connection: ConnectionId,
    target: DialTarget,
    give_up_at: Moment,
    is_up: bool,
    hello: Option<RequestId>,
}

/// The remainder of a search after one attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    /// Other attempts are under way, or due.
    Attempts,
    /// Nothing, until the next round.
    Nothing { retry_at: Moment },
}

impl Search {
    /// Makes a search whose first round begins at once.
    pub(super) fn new(settings: &Settings, seed: u64) -> Self {
        let mut search = Self {
            connect_timeout: settings.connect_timeout,
            back_off_base: settings.back_off_base,
            back_off_max: settings.back_off_max,
            jitter: SmallRng::seed_from_u64(seed),
            addresses: vec![1; settings.endpoints.len()],
            first: 0,
            attempts: Vec::new(),
            waiting: VecDeque::new(),
            dial_at: Moment::default(),
            is_resting: true,
            rounds: 0,
            is_sent_on: false,
            last: ConnectionId::default(),
        };
        search.waiting = search.idle_targets().collect();
        search
    }

    /// Searches again after a pause, since the connection to this endpoint was lost, and dials the
    /// endpoint last. Returns the end of the pause.
    pub(super) fn begin_after(&mut self, now: Moment, lost: usize) -> Moment {
        self.first = (lost + 1) % self.addresses.len();
        self.rest(now);
        self.dial_at
    }

    /// Dials this endpoint before others, which are still to come.
    pub(super) fn prefer(&mut self, endpoint: usize) {
        self.first = endpoint;
        self.waiting.make_contiguous().sort_by_key(|target| target.endpoint != endpoint);
    }

    /// Takes note that a coordinator answers, and does not lead.
    pub(super) fn sent_on(&mut self) {
        self.is_sent_on = true;
    }

    /// Ends the pause before the next target.
    pub(super) fn dial_at_once(&mut self, now: Moment) {
        self.dial_at = now;
    }

    /// Takes the attempt to make at this moment.
    pub(super) fn next_dial(&mut self, now: Moment) -> Option<(ConnectionId, DialTarget)> {
        if self.dial_at > now {
            return None;
        }
        let target = self.waiting.pop_front()?;
        self.is_resting = false;
        self.dial_at = now.after(STAGGER);
        self.last.0 += 1;
        let (connection, give_up_at) = (self.last, now.after(self.connect_timeout));
        self.attempts.push(Attempt { connection, target, give_up_at, is_up: false, hello: None });
        Some((connection, target))
    }

    /// Returns an attempt whose time is over, and its endpoint.
    pub(super) fn overdue(&self, now: Moment) -> Option<(ConnectionId, usize)> {
        let overdue = self.attempts.iter().find(|attempt| attempt.give_up_at <= now)?;
        Some((overdue.connection, overdue.target.endpoint))
    }

    /// Takes note of how many addresses the name of the attempt's endpoint has: each is a target.
    pub(super) fn found(&mut self, connection: ConnectionId, addresses: usize) {
        let Some(attempt) = self.attempt(connection) else { return };
        let endpoint = attempt.target.endpoint;
        let addresses = addresses.clamp(1, ADDRESSES_MAX);
        let known = std::mem::replace(&mut self.addresses[endpoint], addresses);
        self.waiting.retain(|target| target.endpoint != endpoint || target.address < addresses);
        self.waiting.extend((known..addresses).map(|address| DialTarget { endpoint, address }));
    }

    /// Takes note that the transport of an attempt is up. Returns whether the attempt is one of
    /// this search.
    pub(super) fn connected(&mut self, connection: ConnectionId) -> bool {
        let attempt = self.attempt(connection);
        attempt.map(|attempt| attempt.is_up = true).is_some()
    }

    pub(super) fn is_under_way(&self, connection: ConnectionId) -> bool {
        self.attempts.iter().any(|attempt| attempt.connection == connection)
    }

    /// Returns whether this attempt can send its hello, and has not.
    pub(super) fn can_greet(&self, connection: ConnectionId) -> bool {
        let can = |it: &Attempt| it.connection == connection && it.is_up && it.hello.is_none();
        self.attempts.iter().any(can)
    }

    pub(super) fn greets_with(&mut self, connection: ConnectionId, hello: RequestId) {
        if let Some(attempt) = self.attempt(connection) {
            attempt.hello = Some(hello);
        }
    }

    /// Returns whether this is the id of the attempt's hello.
    pub(super) fn has_greeted_with(&self, connection: ConnectionId, id: RequestId) -> bool {
        let has = |it: &Attempt| it.connection == connection && it.hello == Some(id);
        self.attempts.iter().any(has)
    }

    /// Ends the search, since the coordinator has greeted on this attempt. Returns the attempt's
    /// endpoint, and the other attempts.
    pub(super) fn greeted(&mut self, by: ConnectionId) -> Option<(usize, Vec<ConnectionId>)> {
        let endpoint = self.attempt(by)?.target.endpoint;
        self.rounds = 0;
        let others = self.end().into_iter().filter(|other| *other != by).collect();
        Some((endpoint, others))
    }

    /// Takes note of a failed attempt. Returns the rest of the search; `None` if the attempt is
    /// none of it.
    pub(super) fn fail(&mut self, now: Moment, connection: ConnectionId) -> Option<Remaining> {
        let failed = self.attempts.iter().position(|it| it.connection == connection)?;
        let target = self.attempts.remove(failed).target;
        // The last target of the round has had its turn, and attempts that are silent go on.
        if self.waiting.is_empty() {
            self.rest(now);
        } else if !self.is_resting {
            self.dial_at = now;
        } else if target.address < self.addresses[target.endpoint] {
            self.waiting.push_back(target);
        }
        if self.attempts.is_empty() && self.is_resting {
            return Some(Remaining::Nothing { retry_at: self.dial_at });
        }
        Some(Remaining::Attempts)
    }

    /// Ends the search. Returns the attempts that were under way.
    pub(super) fn end(&mut self) -> Vec<ConnectionId> {
        self.waiting.clear();
        self.attempts.drain(..).map(|attempt| attempt.connection).collect()
    }

    /// Returns when something is due.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let dial_at = (!self.waiting.is_empty()).then_some(self.dial_at);
        self.attempts.iter().map(|attempt| attempt.give_up_at).chain(dial_at).min()
    }

    fn attempt(&mut self, connection: ConnectionId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.connection == connection)
    }

    /// Gives every target that is not being dialled its turn in the next round.
    fn rest(&mut self, now: Moment) {
        self.waiting = self.idle_targets().collect();
        self.dial_at = now.after(self.back_off());
        self.is_resting = true;
        self.rounds = self.rounds.saturating_add(1);
    }

    /// The first address of each endpoint before the second of any.
    fn idle_targets(&self) -> impl Iterator<Item = DialTarget> {
        let count = self.addresses.len();
        let round = (0..ADDRESSES_MAX).flat_map(move |address| {
            let endpoints = (0..count).map(move |nth| (self.first + nth) % count);
            endpoints.map(move |endpoint| DialTarget { endpoint, address })
        });
        let exists = |target: &DialTarget| target.address < self.addresses[target.endpoint];
        let is_idle = |target: &DialTarget| self.attempts.iter().all(|it| it.target != *target);
        round.filter(exists).filter(is_idle)
    }

    /// Draws how long to wait before a round: between half and all of a pause that doubles each
    /// time.
    fn back_off(&mut self) -> Duration {
        let doublings = match std::mem::take(&mut self.is_sent_on) {
            true => {
                let late = self.rounds.saturating_sub(ROUNDS_SENT_ON);
                self.rounds.min(DOUBLINGS_SENT_ON + late)
            }
            false => self.rounds,
        };
        let pause = self.back_off_base.saturating_mul(1 << doublings.min(30));
        pause.min(self.back_off_max).mul_f64(self.jitter.random_range(0.5..=1.0))
    }
}

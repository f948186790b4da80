//! The search for a coordinator that greets: which places are dialled, and when.
//!
//! A place is one address of one endpoint. One that takes connections and says nothing (a frozen
//! host, a server that does not serve yet) costs a moment and not the whole time to connect: the
//! next place is dialled beside it, and the first that greets ends the search. One that fails costs
//! nothing. When every place has had its turn, those that failed have it again after a pause, which
//! doubles from round to round, also while a silent one is still waited for.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::event::{ConnectionId, DialTarget, Moment, RequestId};
use super::settings::Settings;

/// How long a place may be silent before the next one is dialled beside it. Too short: a distant
/// coordinator is dialled at all its addresses each time. Too long: a silent place is noticed.
const STAGGER: Duration = Duration::from_millis(250);
/// How many addresses of one endpoint are dialled (BOUNDED).
const ADDRESSES_MAX: usize = 16;

/// What is under way and what comes next.
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
    /// The places whose turn is still to come.
    waiting: VecDeque<DialTarget>,
    /// When the next of them has its turn.
    dial_at: Moment,
    /// Between two rounds.
    is_resting: bool,
    /// Rounds since a coordinator last greeted.
    rounds: u32,
    last: ConnectionId,
}

#[derive(Debug)]
struct Attempt {
    connection: ConnectionId,
    place: DialTarget,
    give_up_at: Moment,
    is_up: bool,
    hello: Option<RequestId>,
}

/// What is left of a search when one attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    /// Other attempts are under way, or due.
    Attempts,
    /// Nothing, until the next round.
    Nothing { retry_at: Moment },
}

impl Search {
    /// A search whose first round begins at once.
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
            last: ConnectionId::default(),
        };
        search.waiting = search.idle_places().collect();
        search
    }

    /// The connection to this endpoint was lost: searches again after a pause, which is returned as
    /// its end, and dials the endpoint last.
    pub(super) fn begin_after(&mut self, now: Moment, lost: usize) -> Moment {
        self.first = (lost + 1) % self.addresses.len();
        self.rest(now);
        self.dial_at
    }

    /// Dials this endpoint before others, which are still to come.
    pub(super) fn prefer(&mut self, endpoint: usize) {
        self.first = endpoint;
        self.waiting.make_contiguous().sort_by_key(|place| place.endpoint != endpoint);
    }

    /// The attempt to make at this moment.
    pub(super) fn next_dial(&mut self, now: Moment) -> Option<(ConnectionId, DialTarget)> {
        if self.dial_at > now {
            return None;
        }
        let place = self.waiting.pop_front()?;
        self.is_resting = false;
        self.dial_at = now.after(STAGGER);
        self.last.0 += 1;
        let (connection, give_up_at) = (self.last, now.after(self.connect_timeout));
        self.attempts.push(Attempt { connection, place, give_up_at, is_up: false, hello: None });
        Some((connection, place))
    }

    /// An attempt that has had its time, and its endpoint.
    pub(super) fn overdue(&self, now: Moment) -> Option<(ConnectionId, usize)> {
        let overdue = self.attempts.iter().find(|attempt| attempt.give_up_at <= now)?;
        Some((overdue.connection, overdue.place.endpoint))
    }

    /// The name of the attempt's endpoint has so many addresses: all of them are places.
    pub(super) fn found(&mut self, connection: ConnectionId, addresses: usize) {
        let Some(attempt) = self.attempt(connection) else { return };
        let endpoint = attempt.place.endpoint;
        let addresses = addresses.clamp(1, ADDRESSES_MAX);
        let known = std::mem::replace(&mut self.addresses[endpoint], addresses);
        self.waiting.retain(|place| place.endpoint != endpoint || place.address < addresses);
        self.waiting.extend((known..addresses).map(|address| DialTarget { endpoint, address }));
    }

    /// The transport of an attempt is up. Whether it is one of this search.
    pub(super) fn connected(&mut self, connection: ConnectionId) -> bool {
        let attempt = self.attempt(connection);
        attempt.map(|attempt| attempt.is_up = true).is_some()
    }

    pub(super) fn is_under_way(&self, connection: ConnectionId) -> bool {
        self.attempts.iter().any(|attempt| attempt.connection == connection)
    }

    /// Whether this attempt can send its hello, and has not.
    pub(super) fn can_greet(&self, connection: ConnectionId) -> bool {
        let can = |it: &Attempt| it.connection == connection && it.is_up && it.hello.is_none();
        self.attempts.iter().any(can)
    }

    pub(super) fn greets_with(&mut self, connection: ConnectionId, hello: RequestId) {
        if let Some(attempt) = self.attempt(connection) {
            attempt.hello = Some(hello);
        }
    }

    /// Whether this is the id of the attempt's hello.
    pub(super) fn has_greeted_with(&self, connection: ConnectionId, id: RequestId) -> bool {
        let has = |it: &Attempt| it.connection == connection && it.hello == Some(id);
        self.attempts.iter().any(has)
    }

    /// The coordinator has greeted on this attempt. Its endpoint, and the attempts that have lost.
    pub(super) fn greeted(&mut self, by: ConnectionId) -> Option<(usize, Vec<ConnectionId>)> {
        let endpoint = self.attempt(by)?.place.endpoint;
        self.rounds = 0;
        let losers = self.end().into_iter().filter(|loser| *loser != by).collect();
        Some((endpoint, losers))
    }

    /// An attempt has failed. What is left; `None` if it is none of this search.
    pub(super) fn fail(&mut self, now: Moment, connection: ConnectionId) -> Option<Remaining> {
        let failed = self.attempts.iter().position(|it| it.connection == connection)?;
        let place = self.attempts.remove(failed).place;
        if self.waiting.is_empty() {
            self.rest(now);
        } else if !self.is_resting {
            self.dial_at = now;
        } else if place.address < self.addresses[place.endpoint] {
            self.waiting.push_back(place);
        }
        if self.attempts.is_empty() && self.is_resting {
            return Some(Remaining::Nothing { retry_at: self.dial_at });
        }
        Some(Remaining::Attempts)
    }

    /// Ends the search. The attempts that were under way.
    pub(super) fn end(&mut self) -> Vec<ConnectionId> {
        self.waiting.clear();
        self.attempts.drain(..).map(|attempt| attempt.connection).collect()
    }

    /// When something is due.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let dial_at = (!self.waiting.is_empty()).then_some(self.dial_at);
        self.attempts.iter().map(|attempt| attempt.give_up_at).chain(dial_at).min()
    }

    fn attempt(&mut self, connection: ConnectionId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.connection == connection)
    }

    /// Every place that is not being dialled has its turn in the next round.
    fn rest(&mut self, now: Moment) {
        self.waiting = self.idle_places().collect();
        self.dial_at = now.after(self.back_off());
        self.is_resting = true;
        self.rounds = self.rounds.saturating_add(1);
    }

    /// The first address of each endpoint before the second of any.
    fn idle_places(&self) -> impl Iterator<Item = DialTarget> {
        let count = self.addresses.len();
        let round = (0..ADDRESSES_MAX).flat_map(move |address| {
            let endpoints = (0..count).map(move |nth| (self.first + nth) % count);
            endpoints.map(move |endpoint| DialTarget { endpoint, address })
        });
        let exists = |place: &DialTarget| place.address < self.addresses[place.endpoint];
        let is_idle = |place: &DialTarget| self.attempts.iter().all(|it| it.place != *place);
        round.filter(exists).filter(is_idle)
    }

    /// How long to wait before a round: between half and all of a pause that doubles each time.
    fn back_off(&mut self) -> Duration {
        let pause = self.back_off_base.saturating_mul(1 << self.rounds.min(30));
        pause.min(self.back_off_max).mul_f64(self.jitter.random_range(0.5..=1.0))
    }
}

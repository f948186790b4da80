//! Events in a model database: the tables of the outbox and the inbox, and the statements of
//! `outbox/relay` on them, each a local transaction of its own.
//!
//! An event's number is drawn when it is put in, and seen when its local transaction commits: a
//! smaller one may turn up after a greater one. MariaDB shows the relay what is not committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handfast_rm_core::relay::{LaneOwner, LaneShares, in_order, shares};

use super::{Database, DatabaseError, Flavour, LocalId, Open, State, UndoKey};
use crate::oracle::Written;

/// Lanes that the keys are spread over.
const LANES: u32 = 4;

/// An event's number in its outbox.
pub(crate) type Seq = i64;

/// Names an event wherever it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId(pub(crate) u64);

/// What a branch tells others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    pub(crate) key: u32,
    pub(crate) units: i64,
}

/// How an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStatus {
    /// Its branch has an undo row (HELD-UNDO).
    Held,
    New,
    Published,
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub(crate) event: Event,
    pub(crate) status: EventStatus,
    /// The branch that emitted it.
    pub(crate) branch: UndoKey,
    claimed_by: Option<String>,
}

/// A claim to be made.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) relay: String,
    /// Of this very claim: only who made it marks what it claimed.
    pub(crate) token: String,
    pub(crate) lanes: Vec<i64>,
    pub(crate) horizon: Seq,
    pub(crate) batch: usize,
}

/// The tables.
#[derive(Debug)]
pub(super) struct Outbox {
    events: BTreeMap<Seq, EventRow>,
    event_last: Seq,
    /// Of local transactions that write events.
    number_last: i64,
    inbox: BTreeSet<EventId>,
    /// Who has each lane, and until when.
    lanes: Vec<(String, u64)>,
    relays: BTreeMap<String, u64>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            events: BTreeMap::new(),
            event_last: 0,
            number_last: 0,
            inbox: BTreeSet::new(),
            lanes: (0..LANES).map(|_| (String::new(), 0)).collect(),
            relays: BTreeMap::new(),
        }
    }
}

/// Which lane sees to a key.
fn lane_of(key: u32) -> i64 {
    i64::from(key % LANES)
}

impl Outbox {
    pub(super) fn apply(&mut self, open: &Open, written: &mut Written) {
        for (seq, row) in &open.events {
            let before = match row {
                Some(row) => self.events.insert(*seq, row.clone()),
                None => self.events.remove(seq),
            };
            written.events.push((*seq, before, row.clone()));
        }
        for id in &open.inbox {
            self.inbox.insert(*id);
            written.inbox.push(*id);
        }
    }
}

impl Database {
    /// Puts an event in.
    pub(crate) fn insert_event(
        &self,
        session: LocalId,
        event: Event,
        branch: UndoKey,
        status: EventStatus,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let State { open, outbox, .. } = &mut *state;
        let open = open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        if open.number.is_none() {
            outbox.number_last += 1;
            open.number = Some(outbox.number_last);
        }
        outbox.event_last += 1;
        let row = EventRow { event, status, branch, claimed_by: None };
        open.events.insert(outbox.event_last, Some(row));
        Ok(())
    }

    /// Takes out what a branch holds.
    pub(crate) fn remove_held(
        &self,
        session: LocalId,
        branch: UndoKey,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let State { open, outbox, .. } = &mut *state;
        let open = open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        let held = |row: &EventRow| row.branch == branch && row.status == EventStatus::Held;
        let gone = outbox.events.iter().filter(|(_, row)| held(row)).map(|(seq, _)| (*seq, None));
        open.events.extend(gone);
        Ok(())
    }

    /// Puts an event into the inbox; whether it was not there. Its row is locked by the caller.
    pub(crate) fn enter_inbox(&self, session: LocalId, id: EventId) -> Result<bool, DatabaseError> {
        let mut state = self.lock();
        let State { open, outbox, .. } = &mut *state;
        let open = open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        Ok(!outbox.inbox.contains(&id) && open.inbox.insert(id))
    }

    /// Renews a relay's lanes, as the product's rules share them; those that it has.
    pub(crate) async fn share_lanes(
        self: &Arc<Self>,
        relay: String,
        lease: u64,
    ) -> Result<Vec<i64>, DatabaseError> {
        let now = self.world.now();
        self.at_once(|state| state.outbox.share_lanes(&relay, now, lease)).await
    }

    /// The oldest transaction that writes events and has not ended, and the greatest event that is
    /// visible.
    pub(crate) async fn look_at_horizon(self: &Arc<Self>) -> Result<(i64, Seq), DatabaseError> {
        self.travel().await?;
        let seen = {
            let state = self.lock();
            let oldest = state.undecided().filter_map(|open| open.number).min();
            let greatest = state.outbox.events.last_key_value().map_or(0, |(seq, _)| *seq);
            (oldest.unwrap_or(state.outbox.number_last + 1), greatest)
        };
        self.answer(seen).await
    }

    /// Draws a number as a transaction that writes events would.
    pub(crate) async fn draw_number(self: &Arc<Self>) -> Result<i64, DatabaseError> {
        let draw = |state: &mut State| {
            state.outbox.number_last += 1;
            state.outbox.number_last
        };
        self.at_once(draw).await
    }

    /// Lets go of events whose branch has no undo row any more (HELD-UNDO).
    pub(crate) async fn release_held(self: &Arc<Self>, lanes: &[i64]) -> Result<(), DatabaseError> {
        let release = |state: &mut State| {
            let State { undo, outbox, .. } = state;
            let held = outbox.events.values_mut().filter(|row| row.status == EventStatus::Held);
            for row in held.filter(|row| lanes.contains(&lane_of(row.event.key))) {
                if !undo.contains_key(&row.branch) {
                    row.status = EventStatus::New;
                }
            }
        };
        self.at_once(release).await
    }

    /// Claims what may be published, in order.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        claim: &Claim,
    ) -> Result<Vec<(Seq, Event)>, DatabaseError> {
        let (now, sees_all) = (self.world.now(), self.flavour == Flavour::MariaDb);
        self.at_once(|state| state.claim(claim, now, sees_all)).await
    }

    /// Marks what was published, and lets go of what was not, as far as it is still claimed.
    pub(crate) async fn settle_claim(
        self: &Arc<Self>,
        token: &str,
        published: &[Seq],
    ) -> Result<(), DatabaseError> {
        let settle = |state: &mut State| {
            let claimed = state.outbox.events.iter_mut();
            for (seq, row) in claimed.filter(|(_, row)| row.claimed_by.as_deref() == Some(token)) {
                row.claimed_by = None;
                if published.contains(seq) {
                    row.status = EventStatus::Published;
                }
            }
        };
        self.at_once(settle).await
    }

    /// A local transaction of one step.
    async fn at_once<T>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T, DatabaseError> {
        // On SQLite it waits for whoever writes.
        let local = self.begin().await?;
        let result = step(&mut self.lock());
        local.roll_back().await?;
        Ok(result)
    }
}

impl Outbox {
    fn share_lanes(&mut self, relay: &str, now: u64, lease: u64) -> Vec<i64> {
        let owner = |(name, until): &(String, u64)| match *until > now {
            true if name == relay => LaneOwner::Ours,
            true => LaneOwner::Others,
            false => LaneOwner::Free,
        };
        let lanes: Vec<(i64, LaneOwner)> = (0..).zip(self.lanes.iter().map(owner)).collect();
        self.relays.retain(|_, until| *until > now);
        self.relays.insert(relay.to_owned(), now + lease);
        let LaneShares { keep, give } = shares(&lanes, self.relays.len());
        for (lane, row) in (0..).zip(&mut self.lanes) {
            if keep.contains(&lane) {
                *row = (relay.to_owned(), now + lease);
            } else if give.contains(&lane) {
                row.1 = 0;
            }
        }
        keep
    }

    fn has_lane(&self, relay: &str, lane: i64, now: u64) -> bool {
        let row = usize::try_from(lane).ok().and_then(|lane| self.lanes.get(lane));
        row.is_some_and(|(owner, until)| owner == relay && *until > now)
    }
}

impl State {
    fn claim(&mut self, claim: &Claim, now: u64, sees_all: bool) -> Vec<(Seq, Event)> {
        let candidates = self.candidates(claim, sees_all);
        let is_new = |row: &EventRow| row.status == EventStatus::New;
        let events = &self.outbox.events;
        let taken = in_order(&candidates, |seq| events.get(&seq).is_some_and(is_new));
        let mut claimed = Vec::with_capacity(taken.len());
        for seq in &taken {
            let Some(row) = self.outbox.events.get(seq) else { continue };
            if !self.outbox.has_lane(&claim.relay, lane_of(row.event.key), now) {
                return Vec::new();
            }
            claimed.push((*seq, row.event));
        }
        for seq in taken {
            if let Some(row) = self.outbox.events.get_mut(&seq) {
                row.claimed_by = Some(claim.token.clone());
            }
        }
        claimed
    }

    /// What could be claimed: number and key of each event.
    fn candidates(&self, claim: &Claim, sees_all: bool) -> Vec<(Seq, i64)> {
        let mut seen: BTreeMap<Seq, &EventRow> =
            self.outbox.events.iter().map(|(seq, row)| (*seq, row)).collect();
        for (seq, row) in self.undecided().filter(|_| sees_all).flat_map(|open| &open.events) {
            match row {
                Some(row) => drop(seen.insert(*seq, row)),
                None => drop(seen.remove(seq)),
            }
        }
        let (mut held_up, mut candidates) = (BTreeSet::new(), Vec::new());
        for (seq, row) in seen {
            let key = row.event.key;
            let ours = seq <= claim.horizon && claim.lanes.contains(&lane_of(key));
            match row.status {
                EventStatus::Held => drop(held_up.insert(key)),
                EventStatus::New if ours && !held_up.contains(&key) => {
                    candidates.push((seq, i64::from(key)));
                }
                EventStatus::New | EventStatus::Published => {}
            }
        }
        candidates.truncate(claim.batch);
        candidates
    }
}

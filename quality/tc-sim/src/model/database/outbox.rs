//! Events in a model database: the tables of the outbox and the inbox, and the statements of
//! `outbox/relay` on them, each a local transaction of its own.
//!
//! An event's number is drawn when it is inserted, and visible when its local transaction commits:
//! a smaller number may appear after a greater one. On MariaDB the relay also sees events that are
//! not committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handfast_rm_core::relay::{LaneOwner, LaneShares, in_order, shares};

use super::{Database, DatabaseError, Flavour, LocalTransactionId, OpenTransaction, State};
use crate::model::values::{Event, EventId, EventRow, EventStatus, RowChanges, Seq, UndoKey};

/// The number of lanes that the keys are spread over.
const LANES: u32 = 4;

/// A request to claim events for publishing.
#[derive(Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) relay: String,
    /// Identifies this claim: only the relay that made it settles its events.
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
    /// The last number drawn by a transaction that writes events.
    number_last: i64,
    inbox: BTreeSet<EventId>,
    /// The relay that owns each lane, and the end of its lease.
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

/// Returns the lane of a key.
fn lane_of(key: u32) -> i64 {
    i64::from(key % LANES)
}

impl Outbox {
    pub(super) fn apply(&mut self, open: &OpenTransaction, written: &mut RowChanges) {
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
    pub(super) fn insert_event(
        &self,
        session: LocalTransactionId,
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

    /// Deletes the events that a branch holds.
    pub(super) fn delete_held_events(
        &self,
        session: LocalTransactionId,
        branch: UndoKey,
    ) -> Result<(), DatabaseError> {
        let mut state = self.lock();
        let State { open, outbox, .. } = &mut *state;
        let open = open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        let held = |row: &EventRow| row.branch == branch && row.status == EventStatus::Held;
        let deleted =
            outbox.events.iter().filter(|(_, row)| held(row)).map(|(seq, _)| (*seq, None));
        open.events.extend(deleted);
        Ok(())
    }

    /// Inserts an event into the inbox, under the lock on its row. Returns whether it was absent.
    pub(super) fn insert_inbox(
        &self,
        session: LocalTransactionId,
        id: EventId,
    ) -> Result<bool, DatabaseError> {
        let mut state = self.lock();
        let State { open, outbox, .. } = &mut *state;
        let open = open.get_mut(&session).ok_or(DatabaseError::Broken)?;
        Ok(!outbox.inbox.contains(&id) && open.inbox.insert(id))
    }

    /// Renews a relay's lanes, as the product's rules share them, and returns those it has.
    pub(crate) async fn share_lanes(
        self: &Arc<Self>,
        relay: String,
        lease: u64,
    ) -> Result<Vec<i64>, DatabaseError> {
        let now = self.world.now();
        self.in_one_step(|state| state.outbox.share_lanes(&relay, now, lease)).await
    }

    /// Returns the number of the oldest open transaction that writes events, and the greatest event
    /// that is visible.
    pub(crate) async fn read_horizon(self: &Arc<Self>) -> Result<(i64, Seq), DatabaseError> {
        self.travel().await?;
        let seen = {
            let state = self.lock();
            // Prepared transactions count: their events may appear at any time.
            let oldest = state.uncommitted().filter_map(|open| open.number).min();
            let greatest = state.outbox.events.last_key_value().map_or(0, |(seq, _)| *seq);
            (oldest.unwrap_or(state.outbox.number_last + 1), greatest)
        };
        self.answer(seen).await
    }

    /// Draws a number as a transaction that writes events does.
    pub(crate) async fn draw_number(self: &Arc<Self>) -> Result<i64, DatabaseError> {
        let draw = |state: &mut State| {
            state.outbox.number_last += 1;
            state.outbox.number_last
        };
        self.in_one_step(draw).await
    }

    /// Releases held events whose branch has no undo row any more (HELD-UNDO).
    pub(crate) async fn release_held_events(
        self: &Arc<Self>,
        lanes: &[i64],
    ) -> Result<(), DatabaseError> {
        let release = |state: &mut State| {
            let State { undo, outbox, .. } = state;
            let held = outbox.events.values_mut().filter(|row| row.status == EventStatus::Held);
            for row in held.filter(|row| lanes.contains(&lane_of(row.event.key))) {
                if !undo.contains_key(&row.branch) {
                    row.status = EventStatus::New;
                }
            }
        };
        self.in_one_step(release).await
    }

    /// Claims events that may be published, in order.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        claim: &ClaimRequest,
    ) -> Result<Vec<(Seq, Event)>, DatabaseError> {
        let (now, sees_all) = (self.world.now(), self.flavour == Flavour::MariaDb);
        self.in_one_step(|state| state.claim(claim, now, sees_all)).await
    }

    /// Ends a claim: marks the events that were published, and frees the others.
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
        self.in_one_step(settle).await
    }

    /// Runs a step as a local transaction of its own.
    async fn in_one_step<T>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut State) -> T,
    ) -> Result<T, DatabaseError> {
        // On SQLite this waits for the writer.
        let local = self.begin().await?;
        let result = step(&mut self.lock());
        // The step has changed the tables themselves: the local transaction only waits and travels.
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
    fn claim(&mut self, claim: &ClaimRequest, now: u64, sees_all: bool) -> Vec<(Seq, Event)> {
        let candidates = self.candidates(claim, sees_all);
        let is_new = |row: &EventRow| row.status == EventStatus::New;
        let events = &self.outbox.events;
        let taken = in_order(&candidates, |seq| events.get(&seq).is_some_and(is_new));
        let mut claimed = Vec::with_capacity(taken.len());
        for seq in &taken {
            let Some(row) = self.outbox.events.get(seq) else { continue };
            // The lease may have ended since the relay was given its lanes.
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

    /// Returns number and key of each event that may be claimed.
    fn candidates(&self, claim: &ClaimRequest, sees_all: bool) -> Vec<(Seq, i64)> {
        let mut seen: BTreeMap<Seq, &EventRow> =
            self.outbox.events.iter().map(|(seq, row)| (*seq, row)).collect();
        for (seq, row) in self.uncommitted().filter(|_| sees_all).flat_map(|open| &open.events) {
            match row {
                Some(row) => drop(seen.insert(*seq, row)),
                None => drop(seen.remove(seq)),
            }
        }
        // An event that is held holds up the later events of its key.
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

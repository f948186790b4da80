//! Whom a call is for, and which due calls of a resource go next, to which process.

use super::call::{ProcessId, ResourceKey};
use super::lane::{CallKey, Lane, Turn};
use super::pending::Addressee;
use super::queue::{Process, Queue};

/// Calls that go next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    pub(super) turn: Turn,
    pub(super) process: ProcessId,
    /// How many of them it may have.
    pub(super) room: usize,
}

impl Queue {
    /// Whom a call is for: one of several that may be the owner after the one that failed it, and
    /// an owner that is alone not again at once.
    pub(super) fn addressee(&self, key: CallKey) -> Addressee {
        let pending = self.calls.get(&key);
        let Some((pending, (resource, owner))) = pending.and_then(|it| Some((it, it.owner()?)))
        else {
            return Addressee::Any;
        };
        let has = |id| self.has(id, resource);
        let is_well = |id| has(id) && self.processes.get(&id).is_some_and(|it| !it.silent);
        let mut well = self.names.owners(owner, is_well);
        let next = match pending.failed_by {
            None => well.next(),
            Some(failed) => {
                well.clone().find(|id| *id > failed).or_else(|| well.find(|id| *id != failed))
            }
        };
        match next {
            Some(owner) => Addressee::Owner(owner),
            None if self.names.owners(owner, has).next().is_some() => Addressee::Any,
            None => Addressee::AnyMeanwhile,
        }
    }

    pub(super) fn has(&self, id: ProcessId, resource: &ResourceKey) -> bool {
        self.processes.get(&id).is_some_and(|process| process.resources.contains(resource))
    }

    /// Rollbacks before commits: their rows stay locked until they are done. What is decided before
    /// what is not. What is for its owner waits until that has room, for no other may be able to do
    /// it, and holds up nothing else.
    pub(super) fn pick(&mut self, resource: &ResourceKey) -> Option<Picked> {
        let lane = self.lanes.get(resource)?;
        let (picked, next) = lane.due.keys().rev().find_map(|&turn| match turn.to {
            Some(process) => {
                let room = self.room(self.processes.get(&process)?)?;
                Some((Picked { turn, process, room }, lane.next))
            }
            None => self.in_turn(lane, turn),
        })?;
        // Only what it is given may cost a process its turn.
        self.lanes.get_mut(resource)?.next = next;
        Some(picked)
    }

    /// The next process in turn that has room, and where the turn goes on; silent ones only where
    /// all are silent, and the one that failed the first of the calls only where it is alone.
    fn in_turn(&self, lane: &Lane, turn: Turn) -> Option<(Picked, usize)> {
        let count = lane.processes.len();
        let in_turn = (0..count).map(|step| (lane.next + step) % count);
        let candidates: Vec<(usize, ProcessId, &Process)> = in_turn
            .filter_map(|at| {
                let id = lane.processes[at];
                self.processes.get(&id).map(|process| (at, id, process))
            })
            .collect();
        let all_silent = candidates.iter().all(|(_, _, process)| process.silent);
        let mut fit: Vec<_> =
            candidates.into_iter().filter(|(_, _, it)| all_silent || !it.silent).collect();
        let first = lane.due.get(&turn).and_then(|keys| keys.first());
        let failed_by = first.and_then(|key| self.calls.get(key)).and_then(|it| it.failed_by);
        fit.sort_by_key(|(_, id, _)| Some(*id) == failed_by);
        let with_room =
            fit.into_iter().find_map(|(at, id, it)| self.room(it).map(|room| (at, id, room)));
        let (at, process, room) = with_room?;
        Some((Picked { turn, process, room }, (at + 1) % count))
    }

    /// How many more calls a process may have, unless it is none.
    fn room(&self, process: &Process) -> Option<usize> {
        let max = process.calls_max.unwrap_or(self.settings.in_flight_max);
        Some(max.saturating_sub(process.in_flight.len())).filter(|room| *room > 0)
    }
}

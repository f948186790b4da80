//! Chooses the process of a call, and the due calls of a resource that are sent next.

use super::call::{ProcessId, ResourceKey};
use super::owed_call::Addressee;
use super::queue::{Process, Queue};
use super::resource_queue::{CallGroup, CallKey, ResourceQueue};

/// The choice of the next batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextBatch {
    pub(super) group: CallGroup,
    pub(super) process: ProcessId,
    /// How many more calls the process may have.
    pub(super) room: usize,
}

impl Queue {
    /// Returns which process a call is for. Among several processes that may be the owner, the one
    /// after the process that failed the call is chosen. A single owner that has just failed the
    /// call is not chosen again at once.
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
            // The owner is connected, so that no registration of it is to be waited for.
            None if self.names.owners(owner, has).next().is_some() => Addressee::Any,
            None => Addressee::AnyMeanwhile,
        }
    }

    pub(super) fn has(&self, id: ProcessId, resource: &ResourceKey) -> bool {
        self.processes.get(&id).is_some_and(|process| process.resources.contains(resource))
    }

    /// Chooses the next batch. Rollbacks go before commits, because their rows stay locked until
    /// the rollback is done. Decisions go before questions. A call for its owner waits until the
    /// owner has room, since no other process may be able to execute it, and delays no other call.
    pub(super) fn pick(&mut self, resource: &ResourceKey) -> Option<NextBatch> {
        let queue = self.queues.get(resource)?;
        let (batch, next) = queue.due.keys().rev().find_map(|&group| match group.to {
            Some(process) => {
                // Without room `?` leads to the next group: an owner delays its own calls alone.
                let room = self.room(self.processes.get(&process)?)?;
                Some((NextBatch { group, process, room }, queue.next))
            }
            None => self.next_in_round(queue, group),
        })?;
        // The round robin advances only when a process is given calls. Looking for a batch must not
        // cost a process its turn.
        self.queues.get_mut(resource)?.next = next;
        Some(batch)
    }

    /// Returns the next process in the round that has room, and the index at which the round
    /// continues. A silent process is chosen only if all are silent. The process that failed the
    /// first of the calls is chosen only if no other has room.
    fn next_in_round(&self, queue: &ResourceQueue, group: CallGroup) -> Option<(NextBatch, usize)> {
        let count = queue.processes.len();
        let indices = (0..count).map(|step| (queue.next + step) % count);
        let candidates: Vec<(usize, ProcessId, &Process)> = indices
            .filter_map(|at| {
                let id = queue.processes[at];
                self.processes.get(&id).map(|process| (at, id, process))
            })
            .collect();
        let all_silent = candidates.iter().all(|(_, _, process)| process.silent);
        let mut fit: Vec<_> =
            candidates.into_iter().filter(|(_, _, it)| all_silent || !it.silent).collect();
        let first = queue.due.get(&group).and_then(|keys| keys.first());
        let failed_by = first.and_then(|key| self.calls.get(key)).and_then(|it| it.failed_by);
        // The sort is stable, so that the others keep the order of the round.
        fit.sort_by_key(|(_, id, _)| Some(*id) == failed_by);
        let with_room =
            fit.into_iter().find_map(|(at, id, it)| self.room(it).map(|room| (at, id, room)));
        let (at, process, room) = with_room?;
        Some((NextBatch { group, process, room }, (at + 1) % count))
    }

    /// Returns how many more calls the process may have, or `None` if it has no room.
    fn room(&self, process: &Process) -> Option<usize> {
        let max = process.calls_max.unwrap_or(self.settings.in_flight_max);
        Some(max.saturating_sub(process.in_flight.len())).filter(|room| *room > 0)
    }
}

//! Chooses the process of a call, and the due calls of a resource that are sent next.

use super::call::{ProcessId, ResourceKey};
use super::owed_call::{Addressee, OwedCall};
use super::queue::{Process, Queue};
use super::resource_queue::{CallGroup, CallKey, ResourceQueue};

/// The number of failures of a call after which it is the turn of a silent process. Too few: one
/// that hangs delays what another would do at the next attempt. Too many: one that is well, and
/// whose earlier call was lost, waits long for what it alone can do.
const FAILURES_A_SILENT_TURN: u32 = 3;

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
        if let Some(owner) = self.silent_owner_in_turn(pending, resource, owner) {
            return Addressee::Owner(owner);
        }
        let is_well = |id| has(id) && !self.is_silent(id);
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

    /// Returns the silent owner that is to be asked about a call that others fail time and again.
    /// It may be well and the only one that can execute the call; without a call it could not show
    /// that.
    fn silent_owner_in_turn(
        &self,
        pending: &OwedCall,
        resource: &ResourceKey,
        owner: &str,
    ) -> Option<ProcessId> {
        let turn = self.turn_of_silent(pending)?;
        let is_silent = |id| self.has(id, resource) && self.is_silent(id);
        let silent: Vec<ProcessId> = self.names.owners(owner, is_silent).collect();
        silent.get(turn % silent.len().max(1)).copied()
    }

    /// Returns how many turns of silent processes a call has had, if another is due.
    fn turn_of_silent(&self, pending: &OwedCall) -> Option<usize> {
        // A silent process that left the call unanswered has had its turn.
        pending.failed_by.filter(|id| !self.is_silent(*id))?;
        let failures = pending.failures;
        let is_due = failures > 0 && failures.is_multiple_of(FAILURES_A_SILENT_TURN);
        is_due.then(|| usize::try_from(failures / FAILURES_A_SILENT_TURN).unwrap_or_default())
    }

    fn is_silent(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.silent)
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
                // Without room `?` leads to the next group: an owner delays only its own calls.
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
    /// continues. A silent process is chosen only if all are silent, or in its turn, and then for
    /// the first of the calls alone. The process that failed the first of the calls is chosen only
    /// if no other has room.
    fn next_in_round(&self, queue: &ResourceQueue, group: CallGroup) -> Option<(NextBatch, usize)> {
        let first = queue.due.get(&group).and_then(|keys| keys.first());
        let first = first.and_then(|key| self.calls.get(key));
        let failed_by = first.and_then(|it| it.failed_by);
        let is_turn = first.is_some_and(|it| self.turn_of_silent(it).is_some());
        let count = queue.processes.len();
        let indices = (0..count).map(|step| (queue.next + step) % count);
        let candidates: Vec<(usize, ProcessId, &Process)> = indices
            .filter_map(|at| {
                let id = queue.processes[at];
                self.processes.get(&id).map(|process| (at, id, process))
            })
            .collect();
        let all_silent = candidates.iter().all(|(_, _, process)| process.silent);
        let may_be_silent = all_silent || is_turn;
        let mut fit: Vec<_> =
            candidates.into_iter().filter(|(_, _, it)| may_be_silent || !it.silent).collect();
        // The sort is stable, so that the others keep the order of the round.
        fit.sort_by_key(|(_, id, it)| (Some(*id) == failed_by, is_turn && !it.silent));
        let with_room =
            fit.into_iter().find_map(|(at, id, it)| self.room(it).map(|room| (at, id, it, room)));
        let (at, process, chosen, room) = with_room?;
        let room = if is_turn && chosen.silent { 1 } else { room };
        Some((NextBatch { group, process, room }, (at + 1) % count))
    }

    /// Returns how many more calls the process may have, or `None` if it has no room.
    fn room(&self, process: &Process) -> Option<usize> {
        let max = process.calls_max.unwrap_or(self.settings.in_flight_max);
        Some(max.saturating_sub(process.in_flight.len())).filter(|room| *room > 0)
    }
}

//! The batches of due calls that go to processes.

use handfast_core::Timestamp;

use super::call::{Call, CallBatch, ProcessId, ResourceKey};
use super::owed_call::{Addressee, CallState, OnFailure};
use super::pick::NextBatch;
use super::queue::Queue;
use super::resource_queue::CallKey;

impl Queue {
    /// Returns the batches to send, and counts their calls as in flight.
    pub fn sends(&mut self, now: Timestamp) -> Vec<CallBatch> {
        let mut batches = Vec::new();
        let ready: Vec<ResourceKey> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.has_due() && !queue.processes.is_empty())
            .map(|(resource, _)| resource.clone())
            .collect();
        for resource in ready {
            while let Some(batch) = self.send(now, &resource) {
                batches.push(batch);
            }
        }
        batches
    }

    /// Returns how many calls were sent again since this was last asked.
    pub fn take_resent(&mut self) -> u64 {
        std::mem::take(&mut self.resent)
    }

    fn send(&mut self, now: Timestamp, resource: &ResourceKey) -> Option<CallBatch> {
        let NextBatch { group, process, room } = self.pick(resource)?;
        let keys = self.queues.get(resource)?.due.get(&group)?;
        let mut bytes = 0;
        let batch: Vec<CallKey> = keys
            .iter()
            .copied()
            .take(room.min(self.settings.batch_branches_max))
            .take_while(|key| {
                // The first call is sent whatever its size, or a larger one would never be.
                let first = bytes == 0;
                bytes += self.calls[key].bytes();
                first || bytes <= self.settings.batch_bytes_max
            })
            .collect();
        let calls = batch.into_iter().map(|key| self.send_to(now, key, process)).collect();
        Some(CallBatch { process, resource: resource.clone(), ask: group.ask, calls })
    }

    fn send_to(&mut self, now: Timestamp, key: CallKey, process: ProcessId) -> Call {
        self.detach(key);
        let until = now.after_ms(self.settings.answer_timeout_ms);
        let pending = self.calls.get_mut(&key).expect("a due call is among the calls");
        let on_failure = match pending.state.addressee() {
            Addressee::AnyMeanwhile => OnFailure::AskOwner,
            Addressee::Any | Addressee::Owner(_) => OnFailure::BackOff,
        };
        pending.state = CallState::InFlight { process, until, on_failure };
        let call = pending.call.clone();
        self.resent += u64::from(std::mem::replace(&mut pending.was_sent, true));
        self.queues.entry(call.resource.clone()).or_default().in_flight += 1;
        self.processes.entry(process).or_default().in_flight.insert(key);
        self.timers.insert((until, key));
        call
    }
}

//! The dispatch queue: which batches are sent after which events. This file holds what its tests
//! share.

mod cost;
mod decisions;
mod order;
mod processes;
mod retries;

use std::sync::Arc;

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Timestamp, Xid};
use handfast_server::dispatch::{
    Ask, CallBatch, CallReply, ProcessId, Queue, ResourceKey, Settings,
};

const FIRST: ProcessId = ProcessId(1);
const SECOND: ProcessId = ProcessId(2);

/// A queue and its time.
struct QueueHarness {
    queue: Queue,
    now: Timestamp,
}

fn settings() -> Settings {
    Settings {
        retry_delay_ms_min: 100,
        retry_delay_ms_max: 1_000,
        answer_timeout_ms: 10_000,
        batch_branches_max: 3,
        batch_bytes_max: 100,
        in_flight_max: 5,
    }
}

fn harness() -> QueueHarness {
    QueueHarness { queue: Queue::new(settings(), 1), now: Timestamp(0) }
}

fn resource(id: &str) -> ResourceKey {
    ResourceKey { id: id.into(), mode: Mode::At }
}

fn call(xid: u64, resource: &str, decision: Decision) -> PhaseTwoCall {
    PhaseTwoCall {
        xid: Xid(xid),
        address: "tc".into(),
        branch: BranchId(1),
        resource: resource.into(),
        mode: Mode::At,
        decision,
        resolution: None,
        application_data: Box::default(),
        attempts: 0,
        step: None,
        registered_by: None,
        trace: None,
    }
}

impl QueueHarness {
    fn call(&mut self, xid: u64, resource: &str) {
        self.queue.call(self.now, call(xid, resource, Decision::Commit));
    }

    fn registered(&mut self, process: ProcessId, resource: &str) {
        self.queue.registered(process, [self::resource(resource)]);
    }

    fn outcome(&mut self, process: ProcessId, xid: u64, outcome: PhaseTwoOutcome) -> Option<u64> {
        self.outcome_of(Decision::Commit, process, xid, outcome)
    }

    fn outcome_of(
        &mut self,
        decision: Decision,
        process: ProcessId,
        xid: u64,
        outcome: PhaseTwoOutcome,
    ) -> Option<u64> {
        let ask = Ask::Finish(decision);
        let answer = CallReply { xid: Xid(xid), branch: BranchId(1), ask, outcome };
        self.queue.outcome(self.now, Some(process), &answer)
    }

    fn refused(&mut self, decision: Decision, process: ProcessId, xid: u64) {
        let refused = PhaseTwoOutcome::Refused { error: "dirty".into(), rows: Arc::default() };
        self.outcome_of(decision, process, xid, refused);
    }

    fn retryable(&mut self, process: ProcessId, xid: u64) {
        self.outcome(process, xid, PhaseTwoOutcome::Retryable { error: "down".into() });
    }

    /// Returns the sent batches, each as `process resource xid xid`.
    fn sends(&mut self) -> Vec<String> {
        let batches = self.queue.sends(self.now);
        let line = |batch: &CallBatch| {
            let xids: Vec<String> = batch.calls.iter().map(|call| call.xid.to_string()).collect();
            format!("{} {} {}", batch.process.0, batch.resource.id, xids.join(" "))
        };
        batches.iter().map(line).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.queue.tick(self.now);
    }
}

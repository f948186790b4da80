//! Claimed resources: a process is assigned to one for as long as the resource has calls.

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Timestamp, Xid};
use handfast_server::dispatch::{Ask, CallReply, ProcessId, Queue, ResourceKey, Settings};

const CLAIMER: ProcessId = ProcessId(1);
const START: Timestamp = Timestamp(0);

fn resource() -> ResourceKey {
    ResourceKey { id: "http://points/debit".into(), mode: Mode::Tcc }
}

fn call(xid: u64) -> PhaseTwoCall {
    PhaseTwoCall {
        xid: Xid(xid),
        address: "tc".into(),
        branch: BranchId(1),
        resource: resource().id,
        mode: Mode::Tcc,
        decision: Decision::Commit,
        resolution: None,
        application_data: Box::default(),
        attempts: 0,
        step: None,
        registered_by: None,
        trace: None,
    }
}

/// Returns a queue with this many calls, of which two may be in flight at a time.
fn owing(calls: u64) -> Queue {
    let mut queue = Queue::new(Settings::default(), 1);
    for xid in 1..=calls {
        queue.call(START, call(xid));
        queue.claimed(CLAIMER, &resource(), 2);
    }
    queue
}

fn done(queue: &mut Queue, xid: u64) {
    let (ask, outcome) = (Ask::Finish(Decision::Commit), PhaseTwoOutcome::Done);
    let answer = CallReply { xid: Xid(xid), branch: BranchId(1), ask, outcome };
    assert!(queue.outcome(START, Some(CLAIMER), &answer).is_some());
}

fn sent(queue: &mut Queue) -> Vec<u64> {
    let batches = queue.sends(START);
    batches.iter().flat_map(|batch| &batch.calls).map(|call| call.xid.0).collect()
}

#[test]
fn calls_in_flight_are_limited_by_the_claim() {
    let mut queue = owing(3);
    assert_eq!(sent(&mut queue), [1, 2]);
    assert_eq!(sent(&mut queue), [0; 0]);
    done(&mut queue, 1);
    assert_eq!(sent(&mut queue), [3]);
}

#[test]
fn a_claimed_resource_without_calls_is_dropped() {
    let mut queue = owing(1);
    assert_eq!(sent(&mut queue), [1]);
    assert_eq!(queue.loads().len(), 1);
    done(&mut queue, 1);
    assert_eq!(queue.loads(), []);
    // A later call is sent as before.
    queue.call(START, call(2));
    queue.claimed(CLAIMER, &resource(), 2);
    assert_eq!(sent(&mut queue), [2]);
    queue.clear();
    assert_eq!(queue.loads(), []);
}

#[test]
fn a_call_waits_while_its_resource_is_not_claimed() {
    let mut queue = owing(1);
    queue.disconnected(CLAIMER);
    assert_eq!(sent(&mut queue), [0; 0]);
    assert_eq!(queue.loads()[0].due, 1);
    queue.claimed(CLAIMER, &resource(), 2);
    assert_eq!(sent(&mut queue), [1]);
}

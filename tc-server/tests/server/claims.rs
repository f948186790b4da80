//! Resources that are claimed: who carries them out is there for as long as something is owed.

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Timestamp, Xid};
use handfast_server::dispatch::{Answer, Ask, ProcessId, Queue, ResourceKey, Settings};

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
    }
}

/// So many calls, of which two may be under way at a time.
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
    let answer = Answer { xid: Xid(xid), branch: BranchId(1), ask, outcome };
    assert!(queue.outcome(START, Some(CLAIMER), &answer).is_some());
}

fn sent(queue: &mut Queue) -> Vec<u64> {
    let batches = queue.sends(START);
    batches.iter().flat_map(|batch| &batch.calls).map(|call| call.xid.0).collect()
}

#[test]
fn no_more_calls_are_under_way_than_are_taken_at_a_time() {
    let mut queue = owing(3);
    assert_eq!(sent(&mut queue), [1, 2]);
    assert_eq!(sent(&mut queue), [0; 0]);
    done(&mut queue, 1);
    assert_eq!(sent(&mut queue), [3]);
}

#[test]
fn nothing_is_left_of_a_resource_of_which_nothing_is_owed() {
    let mut queue = owing(1);
    assert_eq!(sent(&mut queue), [1]);
    assert_eq!(queue.loads().len(), 1);
    done(&mut queue, 1);
    assert_eq!(queue.loads(), []);
    // And what comes later is carried out as before.
    queue.call(START, call(2));
    queue.claimed(CLAIMER, &resource(), 2);
    assert_eq!(sent(&mut queue), [2]);
    queue.clear();
    assert_eq!(queue.loads(), []);
}

#[test]
fn a_call_of_a_resource_that_nobody_claims_any_more_waits() {
    let mut queue = owing(1);
    queue.gone(CLAIMER);
    assert_eq!(sent(&mut queue), [0; 0]);
    assert_eq!(queue.loads()[0].due, 1);
    queue.claimed(CLAIMER, &resource(), 2);
    assert_eq!(sent(&mut queue), [1]);
}

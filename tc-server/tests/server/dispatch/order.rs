//! The order of calls: batches, their limits, and processes in turn.

use handfast_core::{BranchId, Decision, Effect, PhaseTwoCall, PhaseTwoOutcome, Xid};

use super::{FIRST, SECOND, call, harness};

#[test]
fn calls_are_parked_until_a_process_registers() {
    let mut harness = harness();
    harness.call(1, "a");
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!(harness.queue.next_deadline(), None);
    harness.registered(FIRST, "b");
    assert_eq!(harness.sends(), [""; 0]);
    harness.registered(FIRST, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
}

#[test]
fn calls_of_a_resource_go_in_batches_to_processes_in_turn() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    assert_eq!(harness.sends(), ["1 a 1 2 3", "2 a 4 5 6", "1 a 7"]);
}

// Regression: of two processes, the first got every single call, because looking for more calls to
// send after each one cost the other its turn.
#[test]
fn calls_that_come_one_by_one_go_in_turn() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    let mut sent = Vec::new();
    for xid in 1..=4 {
        harness.call(xid, "a");
        sent.extend(harness.sends());
        assert_eq!(harness.sends(), [""; 0]);
    }
    assert_eq!(sent, ["1 a 1", "2 a 2", "1 a 3", "2 a 4"]);
}

/// A rollback releases its rows only when it is done; a commit has released its rows already.
#[test]
fn batches_have_one_decision_and_rollbacks_go_first() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.queue.call(harness.now, call(2, "a", Decision::RollBack));
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["1 a 2", "1 a 1 3"]);
}

#[test]
fn a_batch_is_limited_in_bytes_but_has_at_least_one_call() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    for (xid, bytes) in [(1, 60), (2, 40), (3, 1), (4, 500)] {
        let call = PhaseTwoCall {
            application_data: vec![0; bytes].into(),
            ..call(xid, "a", Decision::Commit)
        };
        harness.queue.call(harness.now, call);
    }
    assert_eq!(harness.sends(), ["1 a 1 2", "1 a 3", "1 a 4"]);
}

#[test]
fn calls_in_flight_are_limited_per_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "b");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    harness.call(8, "b");
    assert_eq!(harness.sends(), ["1 a 1 2 3", "1 a 4 5", "2 b 8"]);
    assert_eq!(harness.queue.in_flight(FIRST), 5);
    harness.outcome(FIRST, 1, PhaseTwoOutcome::Done);
    assert_eq!(harness.sends(), ["1 a 6"]);
}

#[test]
fn loads_count_every_call_once_and_idle_queues_are_dropped() {
    let mut harness = harness();
    harness.call(9, "b");
    harness.registered(FIRST, "a");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    harness.sends();
    harness.retryable(FIRST, 1);
    let load = &harness.queue.loads()[0];
    assert_eq!((load.processes, load.due, load.delayed, load.in_flight), (1, 2, 1, 4));
    (1..=7).for_each(|xid| {
        harness.outcome(FIRST, xid, PhaseTwoOutcome::Done);
    });
    harness.queue.hold(Xid(9));
    harness.queue.disconnected(FIRST);
    assert_eq!(harness.queue.loads(), []);
}

#[test]
fn holding_one_branch_does_not_stop_the_others() {
    let mut harness = harness();
    harness.call(1, "a");
    harness
        .queue
        .call(harness.now, PhaseTwoCall { branch: BranchId(2), ..call(1, "a", Decision::Commit) });
    let hold = Effect::Hold { xid: Xid(1), branch: Some(BranchId(1)) };
    harness.queue.take(harness.now, hold);
    harness.registered(FIRST, "a");
    let sent = harness.queue.sends(harness.now);
    assert_eq!(sent[0].calls.iter().map(|it| it.branch).collect::<Vec<_>>(), [BranchId(2)]);
}

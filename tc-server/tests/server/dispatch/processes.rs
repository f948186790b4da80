//! Processes that come, go, fall silent or answer late.

use handfast_core::PhaseTwoOutcome;

use super::{FIRST, SECOND, harness};

/// The calls go to the process that registers, since the other one has failed them.
#[test]
fn a_registration_makes_delayed_calls_due_at_once() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.retryable(FIRST, 1);
    harness.registered(SECOND, "a");
    assert_eq!(harness.sends(), ["2 a 1"]);
}

#[test]
fn calls_of_a_disconnected_process_go_to_others() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.queue.disconnected(FIRST);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.queue.disconnected(SECOND);
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!(harness.queue.next_deadline(), None);
}

#[test]
fn an_unanswered_call_goes_to_another_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.pass(10_000);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.call(2, "a");
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["2 a 2 3"]);
    // A late answer ends the call, and the process is no longer silent.
    assert!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
    harness.call(4, "a");
    assert_eq!(harness.sends(), ["1 a 4"]);
}

/// Regression: a silent process got no call any more while another one had the resource, whatever
/// became of the calls there.
#[test]
fn a_silent_process_gets_a_call_that_another_fails() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.pass(10_000);
    for _ in 0..3 {
        assert_eq!(harness.sends(), ["2 a 1"]);
        harness.retryable(SECOND, 1);
        harness.pass(1_000);
    }
    harness.call(2, "a");
    assert_eq!(harness.sends(), ["1 a 1", "2 a 2"], "no other call waits with it");
    harness.retryable(FIRST, 1);
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["1 a 3"], "it is not silent any more");
}

#[test]
fn an_unanswered_call_is_resent_to_the_only_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.pass(10_000);
    assert_eq!(harness.sends(), [""; 0]);
    harness.pass(100);
    assert_eq!(harness.sends(), ["1 a 1"]);
    // Regression: a process that registered got the call only after it was unanswered once more.
    harness.registered(SECOND, "a");
    assert_eq!(harness.sends(), ["2 a 1"]);
}

#[test]
fn a_late_failure_of_another_process_changes_nothing() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    harness.sends();
    harness.pass(10_000);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.retryable(FIRST, 1);
    harness.pass(1_000);
    assert_eq!(harness.sends(), [""; 0]);
}

#[test]
fn a_cleared_queue_keeps_its_processes() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.call(2, "a");
    harness.queue.clear();
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!((harness.queue.in_flight(FIRST), harness.queue.next_deadline()), (0, None));
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["1 a 3"]);
}

/// Regression: a live connection was lost. A server that was suspended reads the greetings of
/// connections that are long dead, not always in their order. A live connection that was removed
/// because of one of those never got a call again.
#[test]
fn a_distrusted_process_is_still_called() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.registered(SECOND, "a");
    harness.queue.distrust(FIRST);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.queue.disconnected(SECOND);
    assert_eq!(harness.sends(), ["1 a 1"]);
}

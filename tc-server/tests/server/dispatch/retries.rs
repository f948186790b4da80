//! Pauses between the attempts of a call.

use std::sync::Arc;

use handfast_core::{
    Decision, PhaseTwoCall, PhaseTwoOutcome, Retry, StepCall, StepKind, Timestamp,
};
use handfast_server::dispatch::{Queue, Settings};

use super::{FIRST, QueueHarness, call, harness, settings};

#[test]
fn a_failed_call_is_sent_again_later_and_later() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    for full_ms in [100, 200, 400, 800, 1_000, 1_000] {
        harness.retryable(FIRST, 1);
        let due = harness.queue.next_deadline().unwrap();
        let wait_ms = due.0 - harness.now.0;
        assert!((full_ms / 2..=full_ms).contains(&wait_ms), "{wait_ms} of {full_ms}");
        harness.pass(wait_ms - 1);
        assert_eq!(harness.sends(), [""; 0]);
        harness.pass(1);
        assert_eq!(harness.sends(), ["1 a 1"]);
    }
    harness.pass(7);
    assert_eq!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done), Some(harness.now.0));
    assert_eq!(harness.queue.next_deadline(), None);
}

#[test]
fn attempts_before_a_restart_count_for_the_pause() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.queue.call(harness.now, PhaseTwoCall { attempts: 9, ..call(1, "a", Decision::Commit) });
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.retryable(FIRST, 1);
    assert!(harness.queue.next_deadline().unwrap() >= Timestamp(500));
}

#[test]
fn a_repeated_call_cuts_the_delay_but_is_sent_once() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.call(1, "a");
    assert_eq!(harness.sends(), [""; 0]);
    harness.retryable(FIRST, 1);
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
}

/// Regression: after a pause of length zero a call was never sent again.
#[test]
fn a_pause_of_zero_ends_at_once() {
    let settings = Settings { retry_delay_ms_min: 0, retry_delay_ms_max: 0, ..settings() };
    let mut harness = QueueHarness { queue: Queue::new(settings, 1), now: Timestamp(0) };
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.pass(10_000);
    assert_eq!(harness.sends(), ["1 a 1"]);
}

#[test]
fn a_step_is_retried_with_its_own_pauses() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    let retry = Retry { base_ms: 5_000, factor: 3, cap_ms: 10_000, attempts: None };
    let step = StepCall {
        saga: "s".into(),
        key: "k".into(),
        step: "pay".into(),
        action: "pay".into(),
        kind: StepKind::Pivot,
        outputs: Vec::new(),
        retry,
    };
    let step = Some(Arc::new(step));
    harness.queue.call(harness.now, PhaseTwoCall { step, ..call(1, "a", Decision::Commit) });
    for full_ms in [5_000, 10_000, 10_000] {
        assert_eq!(harness.sends(), ["1 a 1"]);
        harness.retryable(FIRST, 1);
        let due = harness.queue.next_deadline().unwrap();
        let pause_ms = due.0 - harness.now.0;
        assert!((full_ms / 2..=full_ms).contains(&pause_ms), "{pause_ms} of {full_ms}");
        harness.pass(pause_ms);
    }
}

#[test]
fn calls_that_are_sent_again_are_counted() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.call(2, "a");
    harness.sends();
    assert_eq!(harness.queue.take_resent(), 0);
    harness.retryable(FIRST, 1);
    harness.pass(100);
    assert_eq!(harness.sends(), ["1 a 1"]);
    assert_eq!(harness.queue.take_resent(), 1);
    // Both are without an answer: there is no other process.
    harness.pass(10_000);
    harness.pass(1_000);
    assert_eq!(harness.sends(), ["1 a 1 2"]);
    assert_eq!((harness.queue.take_resent(), harness.queue.take_resent()), (2, 0));
    // One that an earlier leader has tried.
    harness.queue.call(harness.now, PhaseTwoCall { attempts: 1, ..call(3, "a", Decision::Commit) });
    assert_eq!(harness.sends(), ["1 a 3"]);
    assert_eq!(harness.queue.take_resent(), 1);
}

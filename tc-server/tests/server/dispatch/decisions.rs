//! Votes, decisions and refusals: which call of a branch counts.

use handfast_core::{
    BranchId, Decision, Effect, Mode, PhaseTwoCall, PhaseTwoOutcome, Resolution, VoteCall,
    VoteRequest, Xid,
};
use handfast_server::dispatch::{Ask, CallReply};

use super::{FIRST, SECOND, call, harness};

/// Regression: a call that stayed in the queue of due questions was sent twice.
#[test]
fn a_due_question_is_replaced_by_the_decision() {
    let mut harness = harness();
    harness.queue.take(harness.now, Effect::Vote(question()));
    harness.call(1, "a");
    harness.registered(FIRST, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    assert_eq!(harness.queue.loads()[0].due, 0);
}

fn question() -> VoteCall {
    VoteCall {
        xid: Xid(1),
        address: "tc".into(),
        branch: BranchId(1),
        resource: "a".into(),
        mode: Mode::At,
        question: VoteRequest::Prepare,
        application_data: Box::default(),
        registered_by: None,
        trace: None,
    }
}

#[test]
fn an_outcome_of_another_decision_is_ignored() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.queue.call(harness.now, call(1, "a", Decision::RollBack));
    harness.sends();
    assert_eq!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done), None);
    assert_eq!(harness.queue.in_flight(FIRST), 1);
}

#[test]
fn a_question_in_flight_is_replaced_by_the_decision() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.queue.take(harness.now, Effect::Vote(question()));
    let asked = harness.queue.sends(harness.now);
    assert_eq!(asked[0].ask, Ask::Vote(VoteRequest::Prepare));
    harness.queue.take(harness.now, Effect::Hold { xid: Xid(1), branch: None });
    harness.queue.take(harness.now, Effect::PhaseTwo(call(1, "a", Decision::Commit)));
    assert_eq!(harness.sends(), ["1 a 1"]);
    // The answer to the question does not count for the decision.
    let (xid, branch, outcome) = (Xid(1), BranchId(1), PhaseTwoOutcome::Done);
    let late = CallReply { xid, branch, ask: Ask::Vote(VoteRequest::Prepare), outcome };
    assert_eq!(harness.queue.outcome(harness.now, Some(FIRST), &late), None);
    assert_eq!(harness.queue.in_flight(FIRST), 1);
    assert!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
}

/// Sent again after it was carried out, a call would find the branch's fence closed.
#[test]
fn data_that_changes_in_flight_is_for_the_next_attempt() {
    fn commit(data: &[u8]) -> PhaseTwoCall {
        PhaseTwoCall { application_data: data.into(), ..call(1, "a", Decision::Commit) }
    }
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.queue.call(harness.now, commit(b"first"));
    harness.sends();
    harness.queue.call(harness.now, commit(b"second"));
    assert_eq!(harness.sends(), [""; 0]);
    harness.retryable(FIRST, 1);
    harness.pass(100_000);
    let sent = harness.queue.sends(harness.now);
    assert_eq!(&*sent[0].calls[0].application_data, b"second");
    harness.queue.call(harness.now, commit(b"third"));
    assert!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
    assert_eq!(harness.sends(), [""; 0]);
}

#[test]
fn a_refused_rollback_is_dropped_until_it_is_called_again() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    let rollback = || call(1, "a", Decision::RollBack);
    harness.queue.call(harness.now, rollback());
    harness.sends();
    harness.refused(Decision::RollBack, FIRST, 1);
    harness.pass(100_000);
    assert_eq!(harness.sends(), [""; 0]);
    harness.queue.call(harness.now, rollback());
    assert_eq!(harness.sends(), ["1 a 1"]);
    // Resolved while the earlier call is in flight: its answer does not count for the later one.
    let resolved = PhaseTwoCall { resolution: Some(Resolution::AcceptCurrent), ..rollback() };
    harness.queue.call(harness.now, resolved);
    harness.refused(Decision::RollBack, FIRST, 1);
    let sent = harness.queue.sends(harness.now);
    assert_eq!(sent[0].calls[0].resolution, Some(Resolution::AcceptCurrent));
}

// Regression: a refused commit was called again only after the next restart. The core does not
// repeat the call, since it relies on the queue for that.
#[test]
fn a_refused_commit_is_sent_again() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.refused(Decision::Commit, FIRST, 1);
    assert_eq!(harness.sends(), [""; 0]);
    harness.pass(100_000);
    assert_eq!(harness.sends(), ["1 a 1"]);
}

#[test]
fn a_held_globals_calls_are_forgotten() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.call(2, "a");
    harness.sends();
    harness.queue.hold(Xid(1));
    harness.queue.disconnected(FIRST);
    harness.registered(SECOND, "a");
    assert_eq!(harness.sends(), ["2 a 2"]);
}

#[test]
fn a_step_is_compensated_while_its_action_is_in_flight() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.queue.call(harness.now, call(1, "a", Decision::RollBack));
    let sent = harness.queue.sends(harness.now);
    assert_eq!((sent.len(), sent[0].ask), (1, Ask::Finish(Decision::RollBack)));
    // The late answer to the action ends nothing.
    assert_eq!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done), None);
    assert_eq!(harness.queue.in_flight(FIRST), 1);
}

#[test]
fn a_decision_after_a_question_is_no_retry() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.queue.take(harness.now, Effect::Vote(question()));
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.call(1, "a");
    // The question goes without an answer; the decision takes its turn.
    harness.pass(10_000);
    harness.pass(1_000);
    assert_eq!(harness.sends(), ["1 a 1"]);
    assert_eq!(harness.queue.take_resent(), 0);
}

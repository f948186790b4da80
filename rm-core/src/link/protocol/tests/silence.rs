//! Silent coordinators, and silence that is none of their doing.

use super::*;

/// A frozen coordinator was noticed by the transport's keep-alive alone, after ten seconds.
#[test]
fn a_silent_coordinator_that_owes_answers_is_replaced() {
    let mut driven = Driven::new(&["frozen", "serves"]);
    driven.greet();
    driven.pass(Duration::from_secs(60));
    assert!(driven.frame().is_empty(), "a link that waits for nothing asks nothing");
    let id = driven.begin();
    assert_eq!(driven.sent_ids(), [id.0]);
    driven.pass(Duration::from_secs(1));
    assert!(driven.announcement().1.is_empty(), "it is asked for a sign of life");
    driven.pass(Duration::from_millis(1_600));
    assert_eq!(driven.hung_up(), [ConnectionId(1)]);
    assert_eq!(driven.dialled(), [0, 1]);
    driven.greet();
    assert_eq!(driven.sent_ids(), [id.0]);
}

#[test]
fn a_coordinator_that_cannot_even_be_asked_is_replaced() {
    let mut driven = Driven::new(&["frozen", "serves"]);
    driven.greet();
    driven.begin();
    // The transport takes no frame: the other side does not read.
    driven.pass(Duration::from_secs(3));
    assert_eq!(driven.dialled()[..2], [0, 1]);
}

/// A request for a lock waits for long, and nothing is wrong with that.
#[test]
fn a_long_wait_is_not_taken_for_a_frozen_coordinator() {
    let mut driven = Driven::ready();
    let id = driven.submit(Ask::AcquireLock(v1::AcquireLockRequest::default()));
    assert_eq!(driven.sent_ids(), [id.0]);
    for _ in 0..20 {
        driven.pass(Duration::from_secs(1));
        let (ask, _) = driven.announcement();
        driven.pass(Duration::from_millis(300));
        driven.answer(ask, Answer::RegisterResources(v1::RegisterResourcesReply::default()));
    }
    assert!(driven.hung_up().is_empty());
    driven.answer(id.0, lock_granted());
    driven.pass(Duration::from_secs(60));
    assert!(driven.frame().is_empty() && driven.hung_up().is_empty());
}

/// A caller that gives up does not end the silence.
#[test]
fn a_frozen_coordinator_is_noticed_although_callers_give_up() {
    let mut driven = Driven::new(&["frozen", "serves"]);
    driven.greet();
    for _ in 0..4 {
        let id = driven.begin();
        driven.frame();
        driven.pass(Duration::from_millis(700));
        driven.protocol.cancel(id);
    }
    driven.pass(Duration::from_millis(200));
    assert_eq!(driven.dialled()[..2], [0, 1]);
}

/// This process was stopped: the answer has come and is not read yet.
#[test]
fn a_process_that_slept_does_not_judge_by_the_silence() {
    let mut driven = Driven::ready();
    let id = driven.begin();
    driven.frame();
    driven.pass(Duration::from_secs(1));
    driven.frame();
    driven.now = driven.now.after(Duration::from_secs(20));
    driven.tick();
    assert!(driven.hung_up().is_empty());
    driven.answer(id.0, begun());
    assert_eq!(driven.ended(id), [Ok(begun())]);
}

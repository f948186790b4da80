//! Coordinators that stop, that are busy, or that name the leader.

use super::*;

#[test]
fn go_away_leads_to_the_leader_if_it_is_one_of_ours() {
    for (leader, next) in [("c", 2), ("c/", 2), ("stranger", 1), ("", 1)] {
        let mut driven = Driven::new(&["a", "b", "c"]);
        driven.greet();
        let unanswered = driven.begin();
        driven.frame();
        let notice = v1::GoAway { reason: "shutdown".to_owned(), leader: leader.to_owned() };
        driven.answer(0, Answer::GoAway(notice));
        assert!(driven.other.iter().any(|event| matches!(event, Event::HangUp { .. })));
        driven.sleep();
        assert_eq!(driven.dialled(), [0, next], "{leader:?}");
        driven.greet();
        assert_eq!(driven.sent_ids(), [unanswered.0]);
    }
}

#[test]
fn a_request_moves_on_from_a_coordinator_that_stops() {
    for code in ["HF-TC-STOPPING", "HF-TC-NOT-LEADING"] {
        let mut driven = Driven::new(&["a", "b"]);
        driven.greet();
        let id = driven.begin();
        driven.frame();
        driven.answer(id.0, refusal(code));
        assert!(driven.ended(id).is_empty(), "{code}");
        driven.sleep();
        driven.greet();
        assert_eq!(driven.sent_ids(), [id.0], "{code}");
    }
}

#[test]
fn a_busy_coordinator_is_asked_again_a_little_later() {
    let mut driven = Driven::ready();
    let id = driven.begin();
    driven.frame();
    driven.answer(id.0, refusal("HF-TC-BUSY"));
    assert!(driven.frame().is_empty());
    driven.sleep();
    assert_eq!(driven.now.0, Duration::from_millis(100));
    assert_eq!(driven.sent_ids(), [id.0]);
    driven.answer(id.0, refusal("HF-TC-BUSY"));
    driven.now = driven.now.after(DEADLINE);
    driven.tick();
    assert_eq!(driven.ended(id), [Err("HF-TM-UNANSWERED".to_owned())]);
    assert!(!driven.sent_ids().contains(&id.0));
}

//! Coordinators that stop, that are busy, or that name the leader.

use super::*;

#[test]
fn go_away_leads_to_the_leader_if_it_is_one_of_ours() {
    for (leader, next) in [("c", 2), ("http://c/", 2), ("stranger", 1), ("", 1)] {
        let mut driven = Driven::new(&["a", "b", "http://c"]);
        driven.greet();
        let unanswered = driven.begin();
        driven.frame();
        driven.answer(0, go_away(leader, 0));
        assert!(driven.other.iter().any(|event| matches!(event, Event::HangUp { .. })));
        driven.sleep();
        assert_eq!(driven.dialled(), [0, next], "{leader:?}");
        driven.greet();
        assert_eq!(driven.sent_ids(), [unanswered.0]);
    }
}

#[test]
fn a_leader_of_a_later_epoch_is_dialled_without_a_pause() {
    let mut driven = Driven::new(&["a", "b"]);
    driven.greet_in(7);
    driven.answer(0, go_away("b", 8));
    let before = driven.now;
    driven.sleep();
    assert_eq!((driven.now, &driven.dialled()[..]), (before, &[0, 1][..]));
}

/// Two coordinators name each other as the leader.
#[test]
fn a_notice_that_is_no_news_is_followed_after_a_pause() {
    let mut driven = Driven::new(&["a", "b"]);
    driven.greet_in(7);
    for (leader, endpoint) in [("b", 1), ("a", 0), ("b", 1)] {
        driven.answer(0, go_away(leader, 8));
        driven.sleep();
        assert_eq!(driven.dialled().last(), Some(&endpoint));
        assert!(driven.protocol.connected(driven.connection()));
        driven.frame();
    }
    assert!(driven.now.0 >= Duration::from_millis(100), "{:?}", driven.now);
}

/// A follower names the leader before it has greeted.
#[test]
fn a_follower_sends_the_client_on_at_once() {
    let mut driven = Driven::new(&["a", "b", "c"]);
    assert!(driven.protocol.connected(driven.connection()));
    driven.frame();
    driven.answer(0, go_away("c", 8));
    driven.sleep();
    assert_eq!((driven.now, &driven.dialled()[..]), (Moment::default(), &[0, 2][..]));
    driven.greet_in(8);
    assert_eq!(driven.protocol.state, State::Ready);
}

/// The next leader is a matter of seconds while coordinators follow. If none comes, the pause
/// doubles again.
#[test]
fn the_pause_stays_short_while_coordinators_follow() {
    let mut driven = Driven::new(&["a", "b"]);
    let mut pauses = Vec::new();
    for _ in 0..14 {
        driven.lose();
        driven.sleep();
        assert!(driven.protocol.connected(driven.connection()));
        driven.frame();
        let before = driven.now;
        driven.answer(0, go_away("away", 8));
        driven.sleep();
        pauses.push(driven.now.0 - before.0);
    }
    for (round, pause) in pauses.into_iter().enumerate() {
        let whole = match round {
            0 | 1 => 100 << round,
            2..=10 => 400,
            later => 400 << (later - 10),
        };
        let whole = Duration::from_millis(whole);
        assert!(pause >= whole / 2 && pause <= whole, "round {round}: {pause:?}");
    }
}

/// A leader that was asleep greets although another one leads.
#[test]
fn a_coordinator_of_an_earlier_epoch_is_left_until_it_must_have_noticed() {
    let mut driven = Driven::new(&["a", "b"]);
    driven.greet_in(8);
    driven.pass(Duration::from_secs(60));
    driven.lose();
    let mut refused = 0;
    while driven.now.0 < Duration::from_secs(70) {
        driven.sleep();
        driven.greet_in(7);
        refused += 1;
        assert!(refused < 100, "each refusal is followed by a pause");
        if driven.protocol.state == State::Ready {
            break;
        }
    }
    assert!(driven.now.0 >= Duration::from_secs(70), "{:?}", driven.now);
    assert!(refused > 2, "it is looked for meanwhile");
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

fn go_away(leader: &str, epoch: u64) -> Answer {
    let (reason, leader) = ("shutdown".to_owned(), leader.to_owned());
    Answer::GoAway(v1::GoAway { reason, leader, epoch })
}

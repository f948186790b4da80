//! Endpoints and their addresses: order, pauses, and the first greeting.

use super::*;

#[test]
fn endpoints_take_turns_and_the_pause_doubles_by_round() {
    let mut driven = Driven::new(&["a", "b"]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        driven.lose();
        let before = driven.now;
        driven.sleep();
        assert_eq!(driven.now, before, "a target that fails costs nothing");
        driven.lose();
        driven.sleep();
        pauses.push(driven.now.0 - before.0);
    }
    assert_eq!(driven.dialled()[..5], [0, 1, 0, 1, 0]);
    for (round, pause) in pauses.into_iter().enumerate() {
        let whole = Duration::from_millis(100 << round).min(Duration::from_secs(5));
        assert!(pause >= whole / 2 && pause <= whole, "round {round}: {pause:?}");
    }
}

#[test]
fn the_back_off_starts_over_after_a_greeting() {
    let mut driven = Driven::new(&["a"]);
    for _ in 0..6 {
        driven.lose();
        driven.sleep();
    }
    driven.greet();
    let before = driven.now;
    driven.lose();
    driven.sleep();
    assert!(driven.now.0 - before.0 <= Duration::from_millis(100));
}

#[test]
fn a_coordinator_that_does_not_greet_in_time_is_left() {
    let mut driven = Driven::new(&["a"]);
    assert!(driven.protocol.connected(driven.connection()));
    driven.frame();
    driven.sleep();
    assert_eq!(driven.now.0, Duration::from_secs(10));
    assert_eq!(driven.hung_up(), [ConnectionId(1)]);
    driven.sleep();
    assert_eq!(driven.dialled(), [0, 0]);
}

/// Regression: a silent endpoint kept a client from connecting for as long as one attempt may take,
/// and at the first start it never connected.
#[test]
fn a_silent_endpoint_costs_a_moment_and_its_attempt_is_dropped() {
    let mut driven = Driven::new(&["silent", "serves"]);
    assert!(driven.protocol.connected(ConnectionId(1)));
    driven.frame();
    driven.pass(Duration::from_millis(300));
    assert_eq!(driven.dialled(), [0, 1]);
    assert!(driven.hung_up().is_empty(), "the first may still greet");
    driven.greet();
    assert_eq!(driven.hung_up(), [ConnectionId(1)]);
    let id = driven.begin();
    assert_eq!(driven.sent_ids(), [id.0]);
    // What the first says from here on counts for nothing.
    driven.fail(ConnectionId(1), ConnectionFailure::Passing(Arc::from("late")));
    let hello = ServerMessage { id: 1, body: Some(Answer::Hello(v1::HelloReply::default())) };
    driven.protocol.receive(driven.now, ConnectionId(1), [hello]);
    assert!(!driven.protocol.connected(ConnectionId(1)));
    driven.answer(id.0, begun());
    assert_eq!(driven.ended(id), [Ok(begun())]);
}

#[test]
fn the_first_to_greet_wins_although_it_was_dialled_first() {
    let mut driven = Driven::new(&["slow", "slower"]);
    assert!(driven.protocol.connected(ConnectionId(1)));
    let hello = driven.sent_ids()[0];
    driven.pass(Duration::from_millis(250));
    assert!(driven.protocol.connected(ConnectionId(2)));
    let greeting =
        ServerMessage { id: hello, body: Some(Answer::Hello(v1::HelloReply::default())) };
    driven.protocol.receive(driven.now, ConnectionId(1), [greeting]);
    driven.drain();
    assert_eq!(driven.hung_up(), [ConnectionId(2)]);
    assert!(driven.protocol.next_frame(ConnectionId(2)).is_none(), "a loser greets no more");
    driven.begin();
    assert_eq!(driven.frame().len(), 1);
}

#[test]
fn every_address_of_every_endpoint_has_its_turn() {
    let mut driven = Driven::new(&["a", "b"]);
    driven.protocol.found(ConnectionId(1), 3);
    driven.pass(Duration::from_secs(2));
    assert_eq!(driven.targets(), [(0, 0), (1, 0), (0, 1), (0, 2)]);
    // Fewer at the next look: what is gone has no turn in the next round.
    driven.protocol.found(ConnectionId(1), 2);
    for attempt in 1..=4 {
        driven.fail(ConnectionId(attempt), ConnectionFailure::Passing(Arc::from("lost")));
    }
    driven.pass(Duration::from_secs(2));
    assert_eq!(driven.targets()[4..], [(0, 0), (1, 0), (0, 1)]);
}

/// The host behind the silent target may stay frozen for hours, and the other be restarted.
#[test]
fn a_failed_target_is_redialled_beside_a_silent_one() {
    let mut driven = Driven::new(&["silent", "starting"]);
    driven.sleep();
    driven.lose();
    driven.sleep();
    driven.lose();
    driven.sleep();
    assert_eq!(driven.dialled(), [0, 1, 1, 1]);
    assert!(driven.now.0 < Duration::from_secs(1), "{:?}", driven.now);
    driven.greet();
    assert_eq!(driven.hung_up(), [ConnectionId(1)]);
}

#[test]
fn a_refusal_is_reported_despite_silent_targets() {
    let mut driven = Driven::new(&["silent", "refuses", "away"]);
    driven.sleep();
    let refused = ConnectionFailure::Unauthenticated(Arc::from("a known token is needed"));
    driven.fail(ConnectionId(2), refused.clone());
    driven.sleep();
    driven.fail(ConnectionId(3), ConnectionFailure::Passing(Arc::from("refused")));
    assert_eq!(driven.failures(), [("missed", refused.clone()), ("missed", refused)]);
}

#[test]
fn a_refused_greeting_is_a_lost_connection() {
    let mut driven = Driven::new(&["a"]);
    assert!(driven.protocol.connected(driven.connection()));
    let hello = driven.sent_ids()[0];
    driven.answer(hello, Answer::Rejected(v1::Rejection::default()));
    assert!(driven.other.iter().any(|event| matches!(event, Event::Disconnected { .. })));
}

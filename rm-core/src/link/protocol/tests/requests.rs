//! Requests: queued, sent again, answered once, expired, refused.

use super::*;

/// A release is answered before it is stored, so a coordinator that crashes may have lost it.
#[test]
fn a_release_that_a_crash_may_have_undone_is_sent_again() {
    let mut driven = Driven::ready();
    let release = |driven: &mut Driven, name: &str, was_held| {
        let request = v1::ReleaseLockRequest { name: name.to_owned(), ..Default::default() };
        let deadline = driven.now.after(DEADLINE);
        let ask = Ask::ReleaseLock(request);
        let id = driven.protocol.submit(driven.now, "release_lock", ask, deadline).unwrap();
        driven.frame();
        driven.answer(id.0, Answer::ReleaseLock(v1::ReleaseLockReply { was_held, current: None }));
        assert_eq!(driven.ended(id).len(), 1);
    };
    release(&mut driven, "long stored", true);
    driven.now = driven.now.after(Duration::from_secs(1));
    release(&mut driven, "stored with a grant", true);
    let grant = driven.submit(Ask::AcquireLock(v1::AcquireLockRequest::default()));
    driven.frame();
    driven.answer(grant.0, lock_granted());
    let early = driven.submit(Ask::AcquireLock(v1::AcquireLockRequest::default()));
    driven.frame();
    release(&mut driven, "one", true);
    release(&mut driven, "not held", false);
    release(&mut driven, "two", true);
    // It was made before either was answered, and tells of neither.
    driven.answer(early.0, lock_granted());
    driven.lose();
    driven.sleep();
    driven.greet();
    let again: Vec<_> = driven.frame().into_iter().map(|(_, ask)| ask).collect();
    let names = again.iter().map(|ask| match ask {
        Some(Ask::ReleaseLock(release)) => release.name.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["one", "two"]);
    driven.lose();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.frame().len(), 2, "they are unanswered");
}

#[test]
fn queued_requests_share_one_frame_after_the_greeting() {
    let mut driven = Driven::new(&["a"]);
    let (first, second) = (driven.begin(), driven.begin());
    assert!(driven.frame().is_empty(), "nothing is sent before the transport is up");
    assert!(driven.protocol.connected(driven.connection()));
    let hello = driven.sent_ids();
    assert_eq!(hello.len(), 1);
    assert!(driven.frame().is_empty(), "nothing is sent before the coordinator has greeted");
    driven.answer(hello[0], Answer::Hello(v1::HelloReply::default()));
    assert_eq!(driven.sent_ids(), [first.0, second.0]);
    assert!(!driven.protocol.wants_to_send());
}

#[test]
fn unanswered_requests_are_resent_under_their_ids() {
    let mut driven = Driven::ready();
    let (answered, unanswered, unsent) = (driven.begin(), driven.begin(), driven.begin());
    driven.protocol.cancel(unsent);
    assert_eq!(driven.sent_ids(), [answered.0, unanswered.0]);
    driven.answer(answered.0, begun());
    driven.lose();
    let waiting = driven.begin();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [unanswered.0, waiting.0]);
    driven.answer(unanswered.0, begun());
    driven.answer(waiting.0, begun());
    for id in [answered, unanswered, waiting] {
        assert_eq!(driven.ended(id), [Ok(begun())]);
    }
    assert!(driven.ended(unsent).is_empty());
}

#[test]
fn doubled_late_and_unknown_answers_change_nothing() {
    let mut driven = Driven::ready();
    let id = driven.begin();
    driven.frame();
    driven.answer(id.0, begun());
    driven.answer(id.0, Answer::Rejected(v1::Rejection::default()));
    driven.answer(999, begun());
    assert_eq!(driven.ended(id), [Ok(begun())]);
    let cancelled = driven.begin();
    driven.frame();
    driven.protocol.cancel(cancelled);
    driven.answer(cancelled.0, begun());
    assert!(driven.ended(cancelled).is_empty());
}

#[test]
fn answers_of_an_earlier_connection_are_not_read() {
    let mut driven = Driven::ready();
    let earlier = driven.protocol.connection;
    let id = driven.begin();
    driven.frame();
    driven.lose();
    driven.sleep();
    driven.greet();
    let message = ServerMessage { id: id.0, body: Some(begun()) };
    driven.protocol.receive(driven.now, earlier, [message]);
    driven.protocol.disconnected(
        driven.now,
        earlier,
        ConnectionFailure::Passing(Arc::from("late")),
    );
    driven.drain();
    assert!(driven.ended(id).is_empty());
    assert_eq!(driven.sent_ids(), [id.0], "the later connection is still up");
}

#[test]
fn an_expired_request_is_unanswered_or_unreachable() {
    let mut driven = Driven::ready();
    let sent = driven.begin();
    driven.frame();
    driven.lose();
    let unsent = driven.begin();
    driven.now = driven.now.after(DEADLINE);
    driven.tick();
    assert_eq!(driven.ended(sent), [Err("HF-TM-UNANSWERED".to_owned())]);
    assert_eq!(driven.ended(unsent), [Err("HF-TM-UNREACHABLE".to_owned())]);
    driven.greet();
    assert!(driven.frame().is_empty(), "what has ended is not sent");
}

#[test]
fn a_full_queue_refuses_until_one_is_answered() {
    let mut driven = Driven::ready();
    let ids: Vec<RequestId> = (0..8).map(|_| driven.begin()).collect();
    assert_eq!(driven.try_begin().unwrap_err().code(), "HF-TM-QUEUE-FULL");
    driven.frame();
    driven.answer(ids[3].0, begun());
    driven.begin();
    assert_eq!(driven.try_begin().unwrap_err().code(), "HF-TM-QUEUE-FULL");
}

#[test]
fn a_request_that_no_frame_can_carry_is_refused() {
    let mut driven = Driven::ready();
    let request = v1::RegisterBranchRequest {
        application_data: vec![0; 3 << 20],
        ..v1::RegisterBranchRequest::default()
    };
    let deadline = driven.now.after(DEADLINE);
    let ask = Ask::RegisterBranch(request);
    let refused = driven.protocol.submit(driven.now, "register", ask, deadline);
    assert_eq!(refused.unwrap_err().code(), "HF-TM-TOO-LARGE");
}

#[test]
fn large_requests_are_spread_over_frames() {
    let mut driven = Driven::ready();
    let deadline = driven.now.after(DEADLINE);
    for _ in 0..3 {
        let request = v1::RegisterBranchRequest {
            application_data: vec![0; 700 << 10],
            ..v1::RegisterBranchRequest::default()
        };
        let ask = Ask::RegisterBranch(request);
        driven.protocol.submit(driven.now, "register", ask, deadline).unwrap();
    }
    assert_eq!(driven.frame().len(), 2);
    assert!(driven.protocol.wants_to_send());
    assert_eq!(driven.frame().len(), 1);
}

#[test]
fn closing_ends_open_requests_and_takes_no_others() {
    let mut driven = Driven::ready();
    let id = driven.begin();
    driven.frame();
    driven.protocol.close();
    driven.drain();
    assert_eq!(driven.ended(id), [Err("HF-TM-CLOSED".to_owned())]);
    assert_eq!(driven.try_begin().unwrap_err().code(), "HF-TM-CLOSED");
    assert!(driven.other.iter().any(|event| matches!(event, Event::HangUp { .. })));
    assert_eq!(driven.protocol.next_deadline(), None);
}

//! Begins with lent XIDs, and the requests that follow them without waiting.

use super::super::super::stock::LentXid;
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

impl Driven {
    /// Greeted, with XIDs from `tc:100` on.
    fn with_lent() -> Self {
        let mut driven = Self::ready();
        driven.receive_loan();
        driven
    }

    fn receive_loan(&mut self) {
        let (id, lent) = self.begin_as("first", 0);
        assert_eq!(lent, None);
        let [(sent, Some(Ask::Begin(request)))] = &self.frame()[..] else { panic!("a begin") };
        assert_eq!((*sent, request.wants, request.lent_xid.as_str()), (id.0, 64, ""));
        let loan = v1::XidLoan {
            first: 100,
            count: 64,
            timeout_ms_default: 60_000,
            timeout_ms_max: 3_600_000,
        };
        let loan = Some(loan);
        let reply = v1::BeginReply { xid: "tc:1".to_owned(), loan, ..v1::BeginReply::default() };
        self.answer(id.0, Answer::Begin(reply));
        assert_eq!(self.ended(id).len(), 1);
    }

    fn begin_as(&mut self, name: &str, timeout_ms: u64) -> (RequestId, Option<LentXid>) {
        let name = name.to_owned();
        let request = v1::BeginRequest { name, timeout_ms, ..v1::BeginRequest::default() };
        self.protocol.begin(self.now, request, DEADLINE).expect("it is taken")
    }

    /// Begins with the lent XID that is next.
    fn begin_ahead(&mut self) -> (RequestId, String) {
        let (id, lent) = self.begin_as("order", 0);
        (id, lent.expect("some are lent").xid)
    }

    fn register(&mut self, xid: &str) -> RequestId {
        self.submit(registration(xid))
    }
}

fn registration(xid: &str) -> Ask {
    let xid = xid.to_owned();
    Ask::RegisterBranch(v1::RegisterBranchRequest { xid, ..Default::default() })
}

fn registered() -> Answer {
    Answer::RegisterBranch(v1::RegisterBranchReply::default())
}

fn begun_as(xid: &str) -> Answer {
    Answer::Begin(v1::BeginReply { xid: xid.to_owned(), ..v1::BeginReply::default() })
}

fn roll_back(xid: &str) -> Ask {
    let decision = v1::Decision::RollBack.into();
    Ask::End(v1::EndRequest { xid: xid.to_owned(), decision, ..v1::EndRequest::default() })
}

#[test]
fn a_begin_and_what_follows_it_share_a_frame() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let registration = driven.register(&xid);
    assert_eq!(xid, "tc:100");
    let frame = driven.frame();
    let [(first, Some(Ask::Begin(request))), (second, Some(Ask::RegisterBranch(_)))] = &frame[..]
    else {
        panic!("{frame:?}")
    };
    assert_eq!((*first, *second), (begin.0, registration.0));
    assert_eq!((request.lent_xid.as_str(), request.wants), ("tc:100", 0));
    driven.answer(begin.0, begun_as(&xid));
    driven.answer(registration.0, registered());
    assert_eq!(driven.ended(begin), [Ok(begun_as(&xid))]);
    assert_eq!(driven.ended(registration), [Ok(registered())]);
}

/// Without a connection its caller hears from the begin that there is none, and a key may find
/// another global.
#[test]
fn no_xid_is_taken_without_a_connection_or_for_a_key() {
    let mut driven = Driven::with_lent();
    let key = "order-42".to_owned();
    let keyed = v1::BeginRequest { key, ..v1::BeginRequest::default() };
    assert_eq!(driven.protocol.begin(driven.now, keyed, DEADLINE).unwrap().1, None);
    driven.lose();
    assert_eq!(driven.begin_as("order", 0).1, None);
    driven.sleep();
    driven.greet();
    driven.frame();
    assert_eq!(driven.begin_as("order", 0).1, None, "the next coordinator lends anew");
}

#[test]
fn an_unanswered_begin_goes_first_to_the_next_coordinator() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let registration = driven.register(&xid);
    driven.frame();
    driven.lose();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [begin.0, registration.0]);
}

/// The coordinator was busy when the begin came, and no longer when the registration did.
#[test]
fn a_request_that_overtakes_its_begin_is_sent_again() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let (registration, end) = (driven.register(&xid), driven.submit(roll_back(&xid)));
    driven.frame();
    driven.answer(begin.0, refusal("HF-TC-BUSY"));
    driven.answer(registration.0, refusal("HF-TC-UNKNOWN-XID"));
    driven.answer(end.0, refusal("HF-TC-UNKNOWN-XID"));
    assert!(driven.ended(registration).is_empty() && driven.ended(end).is_empty());
    driven.sleep();
    assert_eq!(driven.sent_ids(), [begin.0]);
    driven.answer(begin.0, begun_as(&xid));
    assert_eq!(driven.sent_ids(), [registration.0, end.0]);
    driven.answer(registration.0, registered());
    driven.answer(end.0, refusal("HF-TC-UNKNOWN-XID"));
    assert_eq!(driven.ended(registration), [Ok(registered())]);
    assert_eq!(driven.ended(end), [Ok(refusal("HF-TC-UNKNOWN-XID"))], "it has ended since");
}

#[test]
fn what_overtook_its_begin_is_sent_once_to_the_next_coordinator() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let registration = driven.register(&xid);
    driven.frame();
    driven.answer(begin.0, refusal("HF-TC-BUSY"));
    driven.answer(registration.0, refusal("HF-TC-UNKNOWN-XID"));
    driven.lose();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [begin.0, registration.0]);
    driven.answer(begin.0, begun_as(&xid));
    assert!(driven.sent_ids().is_empty());
}

#[test]
fn the_refusal_of_a_begin_answers_what_follows_it() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let sent = driven.register(&xid);
    driven.frame();
    driven.answer(begin.0, refusal("HF-TC-SHARE-REACHED"));
    driven.answer(sent.0, refusal("HF-TC-UNKNOWN-XID"));
    let later = driven.register(&xid);
    let other = driven.register("tc:7");
    driven.answer(later.0, refusal("HF-TC-UNKNOWN-XID"));
    driven.answer(other.0, refusal("HF-TC-UNKNOWN-XID"));
    for request in [begin, sent, later] {
        assert_eq!(driven.ended(request), [Ok(refusal("HF-TC-SHARE-REACHED"))]);
    }
    assert_eq!(driven.ended(other), [Ok(refusal("HF-TC-UNKNOWN-XID"))]);
}

/// The coordinator may have timed the global out by then, and forgotten it.
#[test]
fn a_begin_is_not_repeated_beyond_the_timeout_of_its_global() {
    let mut driven = Driven::with_lent();
    let (begin, lent) = driven.begin_as("order", 2_000);
    assert_eq!(lent.map(|lent| lent.timeout), Some(Duration::from_secs(2)));
    driven.frame();
    driven.lose();
    driven.pass(Duration::from_secs(3));
    assert_eq!(driven.ended(begin), [Err("HF-TM-UNANSWERED".to_owned())]);
    let (_, lent) = driven.begin_as("order", 0);
    assert_eq!(lent, None);
}

#[test]
fn the_coordinators_default_is_the_timeout_of_a_begin_that_names_none() {
    let mut driven = Driven::with_lent();
    assert_eq!(driven.begin_as("order", 0).1.map(|lent| lent.timeout), Some(MINUTE));
    let longest = driven.begin_as("order", u64::MAX).1.map(|lent| lent.timeout);
    assert_eq!(longest, Some(60 * MINUTE));
}

/// Its caller is told that the global has not begun: no branch may join it after that.
#[test]
fn no_registration_outlives_a_begin_without_an_answer() {
    let mut driven = Driven::with_lent();
    let (begin, lent) = driven.begin_as("order", 2_000);
    let xid = lent.expect("some are lent").xid;
    let registration = driven.register(&xid);
    let end = driven.submit(roll_back(&xid));
    driven.frame();
    driven.pass(Duration::from_secs(1));
    driven.lose();
    driven.pass(Duration::from_secs(2));
    let unanswered = [Err("HF-TM-UNANSWERED".to_owned())];
    assert_eq!(
        (driven.ended(begin), driven.ended(registration)),
        (&unanswered[..], &unanswered[..])
    );
    assert!(driven.ended(end).is_empty(), "the global may have begun");
    let (now, deadline) = (driven.now, driven.now.after(DEADLINE));
    let late = driven.protocol.submit(now, "a request", self::registration(&xid), deadline);
    assert_eq!(late.unwrap_err().code(), "HF-TM-UNANSWERED");
}

/// A leader of an earlier version begins a global of its own.
#[test]
fn a_coordinator_that_lends_nothing_refuses_a_lent_xid() {
    let mut driven = Driven::with_lent();
    let (begin, xid) = driven.begin_ahead();
    let registration = driven.register(&xid);
    driven.frame();
    driven.lose();
    driven.sleep();
    driven.greet();
    driven.frame();
    driven.answer(begin.0, begun_as("old:7"));
    driven.answer(registration.0, refusal("HF-TC-UNKNOWN-XID"));
    for request in [begin, registration] {
        let [Ok(Answer::Rejected(refusal))] = driven.ended(request) else { panic!("refused") };
        assert_eq!(refusal.code, "HF-TC-XID-NOT-LENT");
    }
    let frame = driven.frame();
    let [(_, Some(Ask::End(end)))] = &frame[..] else { panic!("{frame:?}") };
    assert_eq!((end.xid.as_str(), end.decision()), ("old:7", v1::Decision::RollBack));
}

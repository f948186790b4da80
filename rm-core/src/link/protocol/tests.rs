//! The state machine against scripted connections on a clock that only the test moves.

use std::collections::BTreeMap;

use handfast_proto::v1::branch_outcome::Result as Ended;
use proptest::prelude::*;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// A protocol, its clock, and everything it has said so far.
struct Driven {
    protocol: Protocol,
    now: Moment,
    /// How each request ended, as often as it did.
    ended: BTreeMap<RequestId, Vec<Result<Answer, String>>>,
    other: Vec<Event>,
}

impl Driven {
    fn new(endpoints: &[&str]) -> Self {
        let settings = Settings {
            client_id: "client".to_owned(),
            application: "tests".to_owned(),
            endpoints: endpoints.iter().copied().map(str::to_owned).collect(),
            connect_timeout: Duration::from_secs(10),
            back_off_base: Duration::from_millis(100),
            back_off_max: Duration::from_secs(5),
            requests_max: 8,
        };
        let protocol = Protocol::new(settings, 7);
        let mut driven =
            Self { protocol, now: Moment::default(), ended: BTreeMap::new(), other: Vec::new() };
        driven.tick();
        driven
    }

    /// One endpoint, greeted.
    fn ready() -> Self {
        let mut driven = Self::new(&["a"]);
        driven.greet();
        driven
    }

    /// Takes the transport up and lets the coordinator greet.
    fn greet(&mut self) -> v1::Hello {
        assert!(self.protocol.connected(self.connection()));
        let mut hello = self.frame();
        let Some((id, Some(Ask::Hello(said)))) = hello.pop() else { panic!("{hello:?}") };
        assert!(hello.is_empty(), "it goes alone: {hello:?}");
        self.answer(id, Answer::Hello(v1::HelloReply::default()));
        said
    }

    /// The next frame, which is an announcement alone.
    fn announcement(&mut self) -> (u64, Vec<Resource>) {
        let frame = self.frame();
        let [(id, Some(Ask::RegisterResources(said)))] = &frame[..] else { panic!("{frame:?}") };
        (*id, said.resources.clone())
    }

    fn submit(&mut self, ask: Ask) -> RequestId {
        let (now, deadline) = (self.now, self.now.after(DEADLINE));
        self.protocol.submit(now, "a request", ask, deadline).expect("it is taken")
    }

    fn begin(&mut self) -> RequestId {
        self.try_begin().expect("the request is taken")
    }

    fn try_begin(&mut self) -> Result<RequestId, RequestError> {
        let ask = Ask::Begin(v1::BeginRequest::default());
        self.protocol.submit(self.now, "begin", ask, self.now.after(DEADLINE))
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        let message = ServerMessage { id, body: Some(answer) };
        self.protocol.receive(self.now, self.connection(), [message]);
        self.drain();
    }

    fn lose(&mut self) {
        self.fail(self.connection(), ConnectionFailure::Passing(Arc::from("lost")));
    }

    fn fail(&mut self, connection: ConnectionId, failure: ConnectionFailure) {
        self.protocol.disconnected(self.now, connection, failure);
        self.drain();
    }

    /// The connection; while there is none, the latest attempt.
    fn connection(&self) -> ConnectionId {
        let attempt = |event: &Event| {
            if let Event::Dial { connection, .. } = event { Some(*connection) } else { None }
        };
        if self.protocol.state == State::Ready {
            self.protocol.connection
        } else {
            self.other.iter().rev().find_map(attempt).unwrap_or_default()
        }
    }

    fn tick(&mut self) {
        self.protocol.tick(self.now);
        self.drain();
    }

    /// Moves the clock to when the protocol wants to be woken.
    fn sleep(&mut self) {
        self.now = self.protocol.next_deadline().expect("something is due").max(self.now);
        self.tick();
    }

    /// The messages of the next frame; none if there is no frame.
    fn frame(&mut self) -> Vec<(u64, Option<Ask>)> {
        let frame = self.protocol.next_frame(self.connection()).unwrap_or_default();
        frame.decoded().messages.into_iter().map(|message| (message.id, message.body)).collect()
    }

    fn sent_ids(&mut self) -> Vec<u64> {
        self.frame().into_iter().map(|(id, _)| id).collect()
    }

    fn drain(&mut self) {
        while let Some(event) = self.protocol.next_event() {
            if let Event::Complete { id, result } = event {
                let result = result.map_err(|error| error.code().to_owned());
                self.ended.entry(id).or_default().push(result);
            } else {
                self.other.push(event);
            }
        }
    }

    fn ended(&self, id: RequestId) -> &[Result<Answer, String>] {
        self.ended.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The endpoints dialled so far.
    fn dialled(&self) -> Vec<usize> {
        self.targets().into_iter().map(|(endpoint, _)| endpoint).collect()
    }

    /// The endpoints dialled so far, with which of their addresses.
    fn targets(&self) -> Vec<(usize, usize)> {
        let target = |event: &Event| {
            let Event::Dial { target, .. } = event else { return None };
            Some((target.endpoint, target.address))
        };
        self.other.iter().filter_map(target).collect()
    }

    fn hung_up(&self) -> Vec<ConnectionId> {
        let hung_up = |event: &Event| {
            if let Event::HangUp { connection } = event { Some(*connection) } else { None }
        };
        self.other.iter().filter_map(hung_up).collect()
    }

    /// The events of the search so far.
    fn failures(&self) -> Vec<(&'static str, ConnectionFailure)> {
        let failure = |event: &Event| {
            if let Event::AttemptFailed { failure } = event {
                return Some(("missed", failure.clone()));
            }
            let Event::Disconnected { failure, .. } = event else { return None };
            Some(("parted", failure.clone()))
        };
        self.other.iter().filter_map(failure).collect()
    }

    /// Lets time pass, with every tick that is due in it.
    fn pass(&mut self, time: Duration) {
        let until = self.now.after(time);
        while let Some(due) = self.protocol.next_deadline().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.tick();
        }
        self.now = until;
    }
}

fn begun() -> Answer {
    Answer::Begin(v1::BeginReply::default())
}

fn resource(id: &str) -> Resource {
    Resource { id: id.to_owned(), mode: v1::Mode::At.into(), label: String::new() }
}

fn lock_granted() -> Answer {
    let granted = v1::LockGranted { fence: 7, waited_ms: 0 };
    Answer::AcquireLock(v1::AcquireLockReply {
        result: Some(v1::acquire_lock_reply::Result::Granted(granted)),
    })
}

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

/// A silent endpoint kept a client from connecting for as long as one attempt may take, and for
/// good at the first start.
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
    // Whatever the first says from here on.
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
fn a_refused_greeting_is_a_lost_connection() {
    let mut driven = Driven::new(&["a"]);
    assert!(driven.protocol.connected(driven.connection()));
    let hello = driven.sent_ids()[0];
    driven.answer(hello, Answer::Rejected(v1::Rejection::default()));
    assert!(driven.other.iter().any(|event| matches!(event, Event::Disconnected { .. })));
}

fn refusal(code: &str) -> Answer {
    Answer::Rejected(v1::Rejection { code: code.to_owned(), ..v1::Rejection::default() })
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

#[test]
fn resources_are_announced_once_per_connection() {
    let mut driven = Driven::new(&["a"]);
    driven.protocol.register_resource(resource("early"));
    driven.protocol.register_resource(resource("early"));
    assert!(driven.greet().resources.is_empty(), "no coordinator has accepted any");
    driven.protocol.register_resource(resource("later"));
    let (id, announced) = driven.announcement();
    assert_eq!(announced, [resource("early"), resource("later")]);
    assert!(driven.frame().is_empty());
    driven.answer(id, Answer::RegisterResources(v1::RegisterResourcesReply::default()));
    driven.protocol.register_resource(resource("unanswered"));
    driven.protocol.register_resource(resource("early"));
    assert_eq!(driven.announcement().1, [resource("unanswered")]);
    driven.lose();
    driven.sleep();
    assert_eq!(driven.greet().resources, [resource("early"), resource("later")]);
    assert_eq!(driven.announcement().1, [resource("unanswered")]);
}

/// With the refused resource in it, `Hello` would be refused at every attempt to connect.
#[test]
fn a_refused_resource_is_reported_and_dropped() {
    let mut driven = Driven::ready();
    for id in ["one", "bad", "two"] {
        driven.protocol.register_resource(resource(id));
    }
    let (id, announced) = driven.announcement();
    assert_eq!(announced.len(), 3);
    driven.answer(id, Answer::Rejected(v1::Rejection::default()));
    for expected in ["one", "bad", "two"] {
        let (id, announced) = driven.announcement();
        assert_eq!(announced, [resource(expected)]);
        let answer = if expected == "bad" {
            Answer::Rejected(v1::Rejection::default())
        } else {
            Answer::RegisterResources(v1::RegisterResourcesReply::default())
        };
        driven.answer(id, answer);
    }
    let refused = |event: &Event| {
        let Event::ResourceRefused { resource, .. } = event else { return None };
        Some(resource.id.clone())
    };
    assert_eq!(Vec::from_iter(driven.other.iter().filter_map(refused)), ["bad"]);
    driven.lose();
    driven.sleep();
    assert_eq!(driven.greet().resources, [resource("one"), resource("two")]);
    assert!(driven.frame().is_empty());
}

fn report(xid: &str) -> Ask {
    Ask::ReportBranch(v1::ReportBranchRequest { xid: xid.to_owned(), ..Default::default() })
}

fn end(xid: &str, decision: v1::Decision) -> Ask {
    let (xid, decision) = (xid.to_owned(), decision.into());
    Ask::End(v1::EndRequest { xid, decision, ..Default::default() })
}

#[test]
fn a_commit_does_not_overtake_a_report() {
    let mut driven = Driven::ready();
    let report = driven.submit(report("x:1"));
    assert_eq!(driven.sent_ids(), [report.0]);
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    let rollback = driven.submit(end("x:1", v1::Decision::RollBack));
    let other = driven.submit(end("x:2", v1::Decision::Commit));
    assert_eq!(driven.sent_ids(), [rollback.0, other.0]);
    // Busy, and then a connection that breaks.
    let busy = v1::Rejection { code: LATER.to_owned(), ..Default::default() };
    driven.answer(report.0, Answer::Rejected(busy));
    assert!(driven.frame().is_empty());
    driven.sleep();
    assert_eq!(driven.sent_ids(), [report.0]);
    driven.lose();
    driven.sleep();
    driven.greet();
    assert_eq!(driven.sent_ids(), [report.0, rollback.0, other.0]);
    driven.answer(report.0, Answer::ReportBranch(v1::ReportBranchReply::default()));
    assert_eq!(driven.sent_ids(), [commit.0]);
}

#[test]
fn a_commit_ends_with_a_report_that_is_never_answered() {
    let mut driven = Driven::ready();
    driven.lose();
    driven.submit(report("x:1"));
    driven.now = driven.now.after(DEADLINE / 2);
    let commit = driven.submit(end("x:1", v1::Decision::Commit));
    driven.now = driven.now.after(DEADLINE / 2);
    driven.tick();
    assert_eq!(driven.ended(commit), [Err("HF-TM-UNREACHABLE".to_owned())]);
    driven.greet();
    assert!(driven.frame().is_empty());
}

/// The outcome of a branch is unknown whether or not there is room to report it.
#[test]
fn a_report_is_taken_where_requests_are_not() {
    let mut driven = Driven::ready();
    while driven.try_begin().is_ok() {}
    driven.submit(report("x:1"));
}

fn outcome(branch_id: u64) -> BranchOutcome {
    let result = Some(Ended::Done(v1::Done {}));
    BranchOutcome { branch_id, result, ..BranchOutcome::default() }
}

#[test]
fn outcomes_share_a_message_and_lost_ones_are_not_repeated() {
    let mut driven = Driven::ready();
    driven.protocol.finished(vec![outcome(1)]);
    driven.protocol.finished(vec![outcome(2), outcome(3)]);
    let all = v1::PhaseTwoOutcome { branches: vec![outcome(1), outcome(2), outcome(3)] };
    assert_eq!(driven.frame(), [(0, Some(Ask::Finished(all)))]);
    driven.lose();
    driven.protocol.finished(vec![outcome(4)]);
    driven.sleep();
    driven.greet();
    let unsent = v1::PhaseTwoOutcome { branches: vec![outcome(4)] };
    assert_eq!(driven.frame(), [(0, Some(Ask::Finished(unsent)))]);
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

/// Something that happens to a link.
#[derive(Clone, Debug)]
enum Step {
    Submit,
    Cancel(usize),
    Connected,
    Greet,
    Lose,
    GoAway,
    Send,
    Answer(usize),
    Busy(usize),
    Sleep,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Submit),
        1 => (0..40usize).prop_map(Step::Cancel),
        2 => Just(Step::Connected),
        3 => Just(Step::Greet),
        1 => Just(Step::Lose),
        1 => Just(Step::GoAway),
        3 => Just(Step::Send),
        4 => (0..40usize).prop_map(Step::Answer),
        1 => (0..40usize).prop_map(Step::Busy),
        2 => Just(Step::Sleep),
        1 => (0..9_000u64).prop_map(Step::Pass),
    ]
}

fn take(
    driven: &mut Driven,
    submitted: &mut Vec<RequestId>,
    cancelled: &mut Vec<RequestId>,
    step: Step,
) {
    let connection = driven.connection();
    match step {
        Step::Submit => submitted.extend(driven.try_begin().ok()),
        Step::Cancel(nth) => {
            if let Some(&id) = submitted.get(nth) {
                driven.protocol.cancel(id);
                cancelled.push(id);
            }
        }
        Step::Connected => {
            driven.protocol.connected(connection);
        }
        Step::Greet => driven.answer(0, Answer::Hello(v1::HelloReply::default())),
        Step::Lose => driven.lose(),
        Step::GoAway => driven.answer(0, Answer::GoAway(v1::GoAway::default())),
        Step::Send => drop(driven.frame()),
        Step::Answer(nth) => {
            if let Some(id) = submitted.get(nth) {
                driven.answer(id.0, begun());
            }
        }
        Step::Busy(nth) => {
            if let Some(id) = submitted.get(nth) {
                driven.answer(id.0, refusal("HF-TC-BUSY"));
            }
        }
        Step::Sleep => {
            if driven.protocol.next_deadline().is_some() {
                driven.sleep();
            }
        }
        Step::Pass(ms) => driven.now = driven.now.after(Duration::from_millis(ms)),
    }
    driven.drain();
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once_unless_it_is_cancelled(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut driven = Driven::new(&["a", "b"]);
        let (mut submitted, mut cancelled) = (Vec::new(), Vec::new());
        for step in steps {
            take(&mut driven, &mut submitted, &mut cancelled, step);
        }
        driven.now = driven.now.after(DEADLINE);
        driven.tick();
        prop_assert!(driven.protocol.idle());
        for id in submitted {
            let times = driven.ended(id).len();
            let allowed = if cancelled.contains(&id) { 0..=1 } else { 1..=1 };
            prop_assert!(allowed.contains(&times), "{id:?} ended {times} times");
        }
    }
}

//! The dispatch queue, as tables of what goes in and what is sent.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use handfast_core::{
    BranchId, Decision, Effect, Mode, PhaseTwoCall, PhaseTwoOutcome, Question, Resolution, Retry,
    StepCall, StepKind, Timestamp, VoteCall, Xid,
};
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::{
    Answer, Ask, CallBatch, CallSink, Dispatcher, NewProcess, ProcessId, Queue, RegisteredResource,
    ResourceKey, Settings,
};

const FIRST: ProcessId = ProcessId(1);
const SECOND: ProcessId = ProcessId(2);

/// A queue and its time.
struct Desk {
    queue: Queue,
    now: Timestamp,
}

fn settings() -> Settings {
    Settings {
        retry_delay_ms_min: 100,
        retry_delay_ms_max: 1_000,
        answer_timeout_ms: 10_000,
        batch_branches_max: 3,
        batch_bytes_max: 100,
        in_flight_max: 5,
    }
}

fn desk() -> Desk {
    Desk { queue: Queue::new(settings(), 1), now: Timestamp(0) }
}

fn resource(id: &str) -> ResourceKey {
    ResourceKey { id: id.into(), mode: Mode::At }
}

fn call(xid: u64, resource: &str, decision: Decision) -> PhaseTwoCall {
    PhaseTwoCall {
        xid: Xid(xid),
        address: "tc".into(),
        branch: BranchId(1),
        resource: resource.into(),
        mode: Mode::At,
        decision,
        resolution: None,
        application_data: Box::default(),
        attempts: 0,
        step: None,
        registered_by: None,
    }
}

impl Desk {
    fn call(&mut self, xid: u64, resource: &str) {
        self.queue.call(self.now, call(xid, resource, Decision::Commit));
    }

    fn registered(&mut self, process: ProcessId, resource: &str) {
        self.queue.registered(process, [self::resource(resource)]);
    }

    fn outcome(&mut self, process: ProcessId, xid: u64, outcome: PhaseTwoOutcome) -> Option<u64> {
        self.outcome_of(Decision::Commit, process, xid, outcome)
    }

    fn outcome_of(
        &mut self,
        decision: Decision,
        process: ProcessId,
        xid: u64,
        outcome: PhaseTwoOutcome,
    ) -> Option<u64> {
        let ask = Ask::Finish(decision);
        let answer = Answer { xid: Xid(xid), branch: BranchId(1), ask, outcome };
        self.queue.outcome(self.now, Some(process), &answer)
    }

    fn refused(&mut self, decision: Decision, process: ProcessId, xid: u64) {
        let refused = PhaseTwoOutcome::Refused { error: "dirty".into(), rows: Arc::default() };
        self.outcome_of(decision, process, xid, refused);
    }

    fn retryable(&mut self, process: ProcessId, xid: u64) {
        self.outcome(process, xid, PhaseTwoOutcome::Retryable { error: "down".into() });
    }

    /// What is sent: `process resource xid xid`.
    fn sends(&mut self) -> Vec<String> {
        let batches = self.queue.sends(self.now);
        let line = |batch: &CallBatch| {
            let xids: Vec<String> = batch.calls.iter().map(|call| call.xid.to_string()).collect();
            format!("{} {} {}", batch.process.0, batch.resource.id, xids.join(" "))
        };
        batches.iter().map(line).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.queue.tick(self.now);
    }
}

#[test]
fn calls_are_parked_without_a_timer_until_a_process_registers() {
    let mut desk = desk();
    desk.call(1, "a");
    assert_eq!(desk.sends(), [""; 0]);
    assert_eq!(desk.queue.next_deadline(), None);
    desk.registered(FIRST, "b");
    assert_eq!(desk.sends(), [""; 0]);
    desk.registered(FIRST, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
}

#[test]
fn calls_of_a_resource_go_in_batches_and_in_turn() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "a");
    (1..=7).for_each(|xid| desk.call(xid, "a"));
    assert_eq!(desk.sends(), ["1 a 1 2 3", "2 a 4 5 6", "1 a 7"]);
}

// Two processes, one call at a time: all of them went to the first, because looking for more to
// send after each call took the other's turn.
#[test]
fn calls_that_come_one_by_one_go_in_turn() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "a");
    let mut sent = Vec::new();
    for xid in 1..=4 {
        desk.call(xid, "a");
        sent.extend(desk.sends());
        assert_eq!(desk.sends(), [""; 0]);
    }
    assert_eq!(sent, ["1 a 1", "2 a 2", "1 a 3", "2 a 4"]);
}

/// Undone rows are let go when a rollback is carried out; a commit has let its rows go already.
#[test]
fn decisions_are_not_mixed_in_a_batch_and_rollbacks_go_first() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.queue.call(desk.now, call(2, "a", Decision::RollBack));
    desk.call(3, "a");
    assert_eq!(desk.sends(), ["1 a 2", "1 a 1 3"]);
}

#[test]
fn a_batch_ends_before_it_is_too_large_and_holds_at_least_one_call() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    for (xid, bytes) in [(1, 60), (2, 40), (3, 1), (4, 500)] {
        let call = PhaseTwoCall {
            application_data: vec![0; bytes].into(),
            ..call(xid, "a", Decision::Commit)
        };
        desk.queue.call(desk.now, call);
    }
    assert_eq!(desk.sends(), ["1 a 1 2", "1 a 3", "1 a 4"]);
}

#[test]
fn a_process_is_given_no_more_than_it_may_owe_and_others_are_not_held_up() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "b");
    (1..=7).for_each(|xid| desk.call(xid, "a"));
    desk.call(8, "b");
    assert_eq!(desk.sends(), ["1 a 1 2 3", "1 a 4 5", "2 b 8"]);
    assert_eq!(desk.queue.in_flight(FIRST), 5);
    desk.outcome(FIRST, 1, PhaseTwoOutcome::Done);
    assert_eq!(desk.sends(), ["1 a 6"]);
}

#[test]
fn a_failed_call_is_sent_again_later_and_later() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    for full_ms in [100, 200, 400, 800, 1_000, 1_000] {
        desk.retryable(FIRST, 1);
        let due = desk.queue.next_deadline().unwrap();
        let wait_ms = due.0 - desk.now.0;
        assert!((full_ms / 2..=full_ms).contains(&wait_ms), "{wait_ms} of {full_ms}");
        desk.pass(wait_ms - 1);
        assert_eq!(desk.sends(), [""; 0]);
        desk.pass(1);
        assert_eq!(desk.sends(), ["1 a 1"]);
    }
    desk.pass(7);
    assert_eq!(desk.outcome(FIRST, 1, PhaseTwoOutcome::Done), Some(desk.now.0));
    assert_eq!(desk.queue.next_deadline(), None);
}

#[test]
fn attempts_before_a_restart_count_for_the_pause() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.queue.call(desk.now, PhaseTwoCall { attempts: 9, ..call(1, "a", Decision::Commit) });
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.retryable(FIRST, 1);
    assert!(desk.queue.next_deadline().unwrap() >= Timestamp(500));
}

/// Of the one that has come, since the other has failed them.
#[test]
fn a_registration_makes_delayed_calls_due_at_once() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.sends();
    desk.retryable(FIRST, 1);
    desk.registered(SECOND, "a");
    assert_eq!(desk.sends(), ["2 a 1"]);
}

/// Left where it was due as a question, a call would have been sent twice.
#[test]
fn a_question_that_is_due_gives_way_to_the_decision() {
    let mut desk = desk();
    desk.queue.take(desk.now, Effect::Vote(question()));
    desk.call(1, "a");
    desk.registered(FIRST, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    assert_eq!(desk.queue.loads()[0].due, 0);
}

fn question() -> VoteCall {
    VoteCall {
        xid: Xid(1),
        address: "tc".into(),
        branch: BranchId(1),
        resource: "a".into(),
        mode: Mode::At,
        question: Question::Prepare,
        application_data: Box::default(),
        registered_by: None,
    }
}

#[test]
fn the_cores_word_makes_a_delayed_call_due_and_leaves_one_in_flight_alone() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.sends();
    desk.call(1, "a");
    assert_eq!(desk.sends(), [""; 0]);
    desk.retryable(FIRST, 1);
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
}

#[test]
fn a_process_that_goes_leaves_its_calls_to_others() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.queue.gone(FIRST);
    assert_eq!(desk.sends(), ["2 a 1"]);
    desk.queue.gone(SECOND);
    assert_eq!(desk.sends(), [""; 0]);
    assert_eq!(desk.queue.next_deadline(), None);
}

#[test]
fn an_unanswered_call_goes_elsewhere_and_the_silent_process_is_passed_over() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.pass(10_000);
    assert_eq!(desk.sends(), ["2 a 1"]);
    desk.call(2, "a");
    desk.call(3, "a");
    assert_eq!(desk.sends(), ["2 a 2 3"]);
    // Late, but well: the call is ended, and the process is heard from again.
    assert!(desk.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
    desk.call(4, "a");
    assert_eq!(desk.sends(), ["1 a 4"]);
}

#[test]
fn where_there_is_no_one_else_an_unanswered_call_is_sent_again_after_a_pause() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.sends();
    desk.pass(10_000);
    assert_eq!(desk.sends(), [""; 0]);
    desk.pass(100);
    assert_eq!(desk.sends(), ["1 a 1"]);
    // Lost was the time until that one was unanswered too: whoever comes takes it over.
    desk.registered(SECOND, "a");
    assert_eq!(desk.sends(), ["2 a 1"]);
}

/// Lost was the timer of a pause of nothing: the call was never sent again.
#[test]
fn a_pause_of_nothing_is_over_at_once() {
    let settings = Settings { retry_delay_ms_min: 0, retry_delay_ms_max: 0, ..settings() };
    let mut desk = Desk { queue: Queue::new(settings, 1), now: Timestamp(0) };
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.pass(10_000);
    assert_eq!(desk.sends(), ["1 a 1"]);
}

#[test]
fn a_late_failure_of_another_process_changes_nothing() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.registered(SECOND, "a");
    desk.call(1, "a");
    desk.sends();
    desk.pass(10_000);
    assert_eq!(desk.sends(), ["2 a 1"]);
    desk.retryable(FIRST, 1);
    desk.pass(1_000);
    assert_eq!(desk.sends(), [""; 0]);
}

#[test]
fn an_outcome_of_another_decision_is_ignored() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.queue.call(desk.now, call(1, "a", Decision::RollBack));
    desk.sends();
    assert_eq!(desk.outcome(FIRST, 1, PhaseTwoOutcome::Done), None);
    assert_eq!(desk.queue.in_flight(FIRST), 1);
}

#[test]
fn a_question_gives_way_to_the_decision() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.queue.take(desk.now, Effect::Vote(question()));
    let asked = desk.queue.sends(desk.now);
    assert_eq!(asked[0].ask, Ask::Vote(Question::Prepare));
    desk.queue.take(desk.now, Effect::Hold { xid: Xid(1), branch: None });
    desk.queue.take(desk.now, Effect::PhaseTwo(call(1, "a", Decision::Commit)));
    assert_eq!(desk.sends(), ["1 a 1"]);
    // The answer to the question is none to the decision.
    let (xid, branch, outcome) = (Xid(1), BranchId(1), PhaseTwoOutcome::Done);
    let late = Answer { xid, branch, ask: Ask::Vote(Question::Prepare), outcome };
    assert_eq!(desk.queue.outcome(desk.now, Some(FIRST), &late), None);
    assert_eq!(desk.queue.in_flight(FIRST), 1);
    assert!(desk.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
}

#[test]
fn a_refused_rollback_is_dropped_and_comes_back_with_a_resolution() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    let rollback = || call(1, "a", Decision::RollBack);
    desk.queue.call(desk.now, rollback());
    desk.sends();
    desk.refused(Decision::RollBack, FIRST, 1);
    desk.pass(100_000);
    assert_eq!(desk.sends(), [""; 0]);
    desk.queue.call(desk.now, rollback());
    assert_eq!(desk.sends(), ["1 a 1"]);
    // Resolved while the earlier call is in flight: its answer does not count for the later one.
    let resolved = PhaseTwoCall { resolution: Some(Resolution::AcceptCurrent), ..rollback() };
    desk.queue.call(desk.now, resolved);
    desk.refused(Decision::RollBack, FIRST, 1);
    let sent = desk.queue.sends(desk.now);
    assert_eq!(sent[0].calls[0].resolution, Some(Resolution::AcceptCurrent));
}

// The core asks for no second call, since it counts on this one being made again: a commit that a
// process refused was not asked for before the next restart.
#[test]
fn a_refused_commit_is_sent_again() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.sends();
    desk.refused(Decision::Commit, FIRST, 1);
    assert_eq!(desk.sends(), [""; 0]);
    desk.pass(100_000);
    assert_eq!(desk.sends(), ["1 a 1"]);
}

#[test]
fn a_held_globals_calls_are_forgotten() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.call(2, "a");
    desk.sends();
    desk.queue.hold(Xid(1));
    desk.queue.gone(FIRST);
    desk.registered(SECOND, "a");
    assert_eq!(desk.sends(), ["2 a 2"]);
}

#[test]
fn a_cleared_queue_owes_nothing_and_knows_its_processes() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    desk.sends();
    desk.call(2, "a");
    desk.queue.clear();
    assert_eq!(desk.sends(), [""; 0]);
    assert_eq!((desk.queue.in_flight(FIRST), desk.queue.next_deadline()), (0, None));
    desk.call(3, "a");
    assert_eq!(desk.sends(), ["1 a 3"]);
}

#[test]
fn loads_count_every_call_once_and_idle_lanes_go() {
    let mut desk = desk();
    desk.call(9, "b");
    desk.registered(FIRST, "a");
    (1..=7).for_each(|xid| desk.call(xid, "a"));
    desk.sends();
    desk.retryable(FIRST, 1);
    let load = &desk.queue.loads()[0];
    assert_eq!((load.processes, load.due, load.delayed, load.in_flight), (1, 2, 1, 4));
    (1..=7).for_each(|xid| {
        desk.outcome(FIRST, xid, PhaseTwoOutcome::Done);
    });
    desk.queue.hold(Xid(9));
    desk.queue.gone(FIRST);
    assert_eq!(desk.queue.loads(), []);
}

/// A server that stood still reads the greetings of connections that are long dead, the newest not
/// always last: given up for one of those, the live one was never sent anything again.
#[test]
fn a_process_that_is_heard_from_elsewhere_is_not_given_up() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.registered(SECOND, "a");
    desk.queue.doubt(FIRST);
    assert_eq!(desk.sends(), ["2 a 1"]);
    desk.queue.gone(SECOND);
    assert_eq!(desk.sends(), ["1 a 1"]);
}

#[test]
fn a_step_is_taken_back_while_its_action_is_in_flight() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1 a 1"]);
    desk.queue.call(desk.now, call(1, "a", Decision::RollBack));
    let sent = desk.queue.sends(desk.now);
    assert_eq!((sent.len(), sent[0].ask), (1, Ask::Finish(Decision::RollBack)));
    // The late answer to the action ends nothing.
    assert_eq!(desk.outcome(FIRST, 1, PhaseTwoOutcome::Done), None);
    assert_eq!(desk.queue.in_flight(FIRST), 1);
}

#[test]
fn one_branch_is_held_and_the_others_go_on() {
    let mut desk = desk();
    desk.call(1, "a");
    desk.queue
        .call(desk.now, PhaseTwoCall { branch: BranchId(2), ..call(1, "a", Decision::Commit) });
    let hold = Effect::Hold { xid: Xid(1), branch: Some(BranchId(1)) };
    desk.queue.take(desk.now, hold);
    desk.registered(FIRST, "a");
    let sent = desk.queue.sends(desk.now);
    assert_eq!(sent[0].calls.iter().map(|it| it.branch).collect::<Vec<_>>(), [BranchId(2)]);
}

#[test]
fn a_step_is_tried_again_in_its_own_rhythm() {
    let mut desk = desk();
    desk.registered(FIRST, "a");
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
    desk.queue.call(desk.now, PhaseTwoCall { step, ..call(1, "a", Decision::Commit) });
    for full_ms in [5_000, 10_000, 10_000] {
        assert_eq!(desk.sends(), ["1 a 1"]);
        desk.retryable(FIRST, 1);
        let due = desk.queue.next_deadline().unwrap();
        let pause_ms = due.0 - desk.now.0;
        assert!((full_ms / 2..=full_ms).contains(&pause_ms), "{pause_ms} of {full_ms}");
        desk.pass(pause_ms);
    }
}

/// Enough for what takes as long as its parts, and too little where each looks at all the others.
const PATIENCE: Duration = Duration::from_secs(20);
const MANY: u64 = 100_000;

/// What is done on a thread of its own, unless it takes too long.
fn within_patience<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(PATIENCE).expect("it takes too long, under a lock that all wait for")
}

#[derive(Debug)]
struct Nowhere;

impl CallSink for Nowhere {
    fn put(&self, _batch: CallBatch) {}
}

#[test]
fn a_long_list_of_resources_is_not_compared_with_itself() {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
    let (dispatcher, _timer) = Dispatcher::prepare(clock, settings(), 1);
    let of_process = |client: &str| NewProcess {
        client_id: client.into(),
        application: "shop".into(),
        agent: "test".into(),
        peer: "nowhere".into(),
    };
    let seat = dispatcher.connect(of_process("a"), Arc::new(Nowhere));
    let (seat, processes) = within_patience(move || {
        // Twice, since the second time all of them are there.
        for label in ["earlier", "later"] {
            let key = |at: u64| resource(&format!("sqlite:{at}"));
            let with_label = |key| RegisteredResource { key, label: Some(label.into()) };
            seat.register((0..MANY).map(key).map(with_label).collect());
        }
        (seat, dispatcher.processes())
    });
    let resources = &processes[0].resources;
    assert_eq!(resources.len() as u64, MANY);
    assert!(resources.iter().all(|it| it.label.as_deref() == Some("later")));
    drop(seat);
}

#[test]
fn the_calls_of_a_silent_process_are_looked_through_once_a_list() {
    let many = 20_000;
    let sent = within_patience(move || {
        let settings = Settings { in_flight_max: 1_000_000, ..settings() };
        let mut desk = Desk { queue: Queue::new(settings, 1), now: Timestamp(0) };
        let resources = || (1..=many).map(|at| resource(&format!("sqlite:{at}")));
        desk.queue.registered(FIRST, resources());
        for at in 1..=many {
            desk.call(at, &format!("sqlite:{at}"));
        }
        // It answers none, and has them all again for want of a better one.
        for _ in 0..2 {
            assert_eq!(desk.queue.sends(desk.now).len() as u64, many);
            desk.now = desk.now.after_ms(10_000);
            desk.queue.tick(desk.now);
            desk.now = desk.now.after_ms(2_000);
            desk.queue.tick(desk.now);
        }
        assert_eq!(desk.queue.sends(desk.now).len() as u64, many);
        desk.queue.registered(SECOND, resources());
        desk.queue.sends(desk.now)
    });
    assert_eq!(sent.len() as u64, many);
    assert!(sent.iter().all(|batch| batch.process == SECOND));
}

//! The dispatch queue: which batches are sent after which events.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use handfast_core::{
    BranchId, Decision, Effect, Mode, PhaseTwoCall, PhaseTwoOutcome, Resolution, Retry, StepCall,
    StepKind, Timestamp, VoteCall, VoteRequest, Xid,
};
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::{
    Ask, CallBatch, CallReply, CallSink, Dispatcher, NewProcess, ProcessId, Queue,
    RegisteredResource, ResourceKey, Settings,
};

const FIRST: ProcessId = ProcessId(1);
const SECOND: ProcessId = ProcessId(2);

/// A queue and its time.
struct QueueHarness {
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

fn harness() -> QueueHarness {
    QueueHarness { queue: Queue::new(settings(), 1), now: Timestamp(0) }
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

impl QueueHarness {
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
        let answer = CallReply { xid: Xid(xid), branch: BranchId(1), ask, outcome };
        self.queue.outcome(self.now, Some(process), &answer)
    }

    fn refused(&mut self, decision: Decision, process: ProcessId, xid: u64) {
        let refused = PhaseTwoOutcome::Refused { error: "dirty".into(), rows: Arc::default() };
        self.outcome_of(decision, process, xid, refused);
    }

    fn retryable(&mut self, process: ProcessId, xid: u64) {
        self.outcome(process, xid, PhaseTwoOutcome::Retryable { error: "down".into() });
    }

    /// Returns the sent batches, each as `process resource xid xid`.
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
fn calls_are_parked_until_a_process_registers() {
    let mut harness = harness();
    harness.call(1, "a");
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!(harness.queue.next_deadline(), None);
    harness.registered(FIRST, "b");
    assert_eq!(harness.sends(), [""; 0]);
    harness.registered(FIRST, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
}

#[test]
fn calls_of_a_resource_go_in_batches_to_processes_in_turn() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    assert_eq!(harness.sends(), ["1 a 1 2 3", "2 a 4 5 6", "1 a 7"]);
}

// Regression: of two processes, the first got every single call, because looking for more calls to
// send after each one cost the other its turn.
#[test]
fn calls_that_come_one_by_one_go_in_turn() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    let mut sent = Vec::new();
    for xid in 1..=4 {
        harness.call(xid, "a");
        sent.extend(harness.sends());
        assert_eq!(harness.sends(), [""; 0]);
    }
    assert_eq!(sent, ["1 a 1", "2 a 2", "1 a 3", "2 a 4"]);
}

/// A rollback releases its rows only when it is done; a commit has released its rows already.
#[test]
fn batches_have_one_decision_and_rollbacks_go_first() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.queue.call(harness.now, call(2, "a", Decision::RollBack));
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["1 a 2", "1 a 1 3"]);
}

#[test]
fn a_batch_is_limited_in_bytes_but_has_at_least_one_call() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    for (xid, bytes) in [(1, 60), (2, 40), (3, 1), (4, 500)] {
        let call = PhaseTwoCall {
            application_data: vec![0; bytes].into(),
            ..call(xid, "a", Decision::Commit)
        };
        harness.queue.call(harness.now, call);
    }
    assert_eq!(harness.sends(), ["1 a 1 2", "1 a 3", "1 a 4"]);
}

#[test]
fn calls_in_flight_are_limited_per_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "b");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    harness.call(8, "b");
    assert_eq!(harness.sends(), ["1 a 1 2 3", "1 a 4 5", "2 b 8"]);
    assert_eq!(harness.queue.in_flight(FIRST), 5);
    harness.outcome(FIRST, 1, PhaseTwoOutcome::Done);
    assert_eq!(harness.sends(), ["1 a 6"]);
}

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

/// The calls go to the process that registers, since the other one has failed them.
#[test]
fn a_registration_makes_delayed_calls_due_at_once() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.retryable(FIRST, 1);
    harness.registered(SECOND, "a");
    assert_eq!(harness.sends(), ["2 a 1"]);
}

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
    }
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

#[test]
fn calls_of_a_disconnected_process_go_to_others() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.queue.disconnected(FIRST);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.queue.disconnected(SECOND);
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!(harness.queue.next_deadline(), None);
}

#[test]
fn an_unanswered_call_goes_to_another_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.pass(10_000);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.call(2, "a");
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["2 a 2 3"]);
    // A late answer ends the call, and the process is no longer silent.
    assert!(harness.outcome(FIRST, 1, PhaseTwoOutcome::Done).is_some());
    harness.call(4, "a");
    assert_eq!(harness.sends(), ["1 a 4"]);
}

#[test]
fn an_unanswered_call_is_resent_to_the_only_process() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.pass(10_000);
    assert_eq!(harness.sends(), [""; 0]);
    harness.pass(100);
    assert_eq!(harness.sends(), ["1 a 1"]);
    // Regression: a process that registered got the call only after it was unanswered once more.
    harness.registered(SECOND, "a");
    assert_eq!(harness.sends(), ["2 a 1"]);
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
fn a_late_failure_of_another_process_changes_nothing() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.registered(SECOND, "a");
    harness.call(1, "a");
    harness.sends();
    harness.pass(10_000);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.retryable(FIRST, 1);
    harness.pass(1_000);
    assert_eq!(harness.sends(), [""; 0]);
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
fn a_cleared_queue_keeps_its_processes() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    harness.sends();
    harness.call(2, "a");
    harness.queue.clear();
    assert_eq!(harness.sends(), [""; 0]);
    assert_eq!((harness.queue.in_flight(FIRST), harness.queue.next_deadline()), (0, None));
    harness.call(3, "a");
    assert_eq!(harness.sends(), ["1 a 3"]);
}

#[test]
fn loads_count_every_call_once_and_idle_queues_are_dropped() {
    let mut harness = harness();
    harness.call(9, "b");
    harness.registered(FIRST, "a");
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    harness.sends();
    harness.retryable(FIRST, 1);
    let load = &harness.queue.loads()[0];
    assert_eq!((load.processes, load.due, load.delayed, load.in_flight), (1, 2, 1, 4));
    (1..=7).for_each(|xid| {
        harness.outcome(FIRST, xid, PhaseTwoOutcome::Done);
    });
    harness.queue.hold(Xid(9));
    harness.queue.disconnected(FIRST);
    assert_eq!(harness.queue.loads(), []);
}

/// Regression: a live connection was lost. A server that was suspended reads the greetings of
/// connections that are long dead, not always in their order. A live connection that was removed
/// because of one of those never got a call again.
#[test]
fn a_distrusted_process_is_still_called() {
    let mut harness = harness();
    harness.registered(FIRST, "a");
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1 a 1"]);
    harness.registered(SECOND, "a");
    harness.queue.distrust(FIRST);
    assert_eq!(harness.sends(), ["2 a 1"]);
    harness.queue.disconnected(SECOND);
    assert_eq!(harness.sends(), ["1 a 1"]);
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
fn holding_one_branch_does_not_stop_the_others() {
    let mut harness = harness();
    harness.call(1, "a");
    harness
        .queue
        .call(harness.now, PhaseTwoCall { branch: BranchId(2), ..call(1, "a", Decision::Commit) });
    let hold = Effect::Hold { xid: Xid(1), branch: Some(BranchId(1)) };
    harness.queue.take(harness.now, hold);
    harness.registered(FIRST, "a");
    let sent = harness.queue.sends(harness.now);
    assert_eq!(sent[0].calls.iter().map(|it| it.branch).collect::<Vec<_>>(), [BranchId(2)]);
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

/// Enough for work that is linear in the number of its parts, and too short for quadratic work.
const TIMEOUT: Duration = Duration::from_secs(20);
const MANY: u64 = 100_000;

/// Runs work on a thread of its own, and fails if it takes too long.
fn within_timeout<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(TIMEOUT).expect("the work ends in time, since it holds the dispatcher's lock")
}

#[derive(Debug)]
struct DiscardingSink;

impl CallSink for DiscardingSink {
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
    let registration = dispatcher.connect(of_process("a"), Arc::new(DiscardingSink));
    let (registration, processes) = within_timeout(move || {
        // Twice, since the second time all of them are registered already.
        for label in ["earlier", "later"] {
            let key = |at: u64| resource(&format!("sqlite:{at}"));
            let with_label = |key| RegisteredResource { key, label: Some(label.into()) };
            registration.register((0..MANY).map(key).map(with_label).collect());
        }
        (registration, dispatcher.processes())
    });
    let resources = &processes[0].resources;
    assert_eq!(resources.len() as u64, MANY);
    assert!(resources.iter().all(|it| it.label.as_deref() == Some("later")));
    drop(registration);
}

#[test]
fn calls_of_a_silent_process_are_scanned_once_per_list() {
    let many = 20_000;
    let sent = within_timeout(move || {
        let settings = Settings { in_flight_max: 1_000_000, ..settings() };
        let mut harness = QueueHarness { queue: Queue::new(settings, 1), now: Timestamp(0) };
        let resources = || (1..=many).map(|at| resource(&format!("sqlite:{at}")));
        harness.queue.registered(FIRST, resources());
        for at in 1..=many {
            harness.call(at, &format!("sqlite:{at}"));
        }
        // The process answers none, and gets them all again since there is no other process.
        for _ in 0..2 {
            assert_eq!(harness.queue.sends(harness.now).len() as u64, many);
            harness.now = harness.now.after_ms(10_000);
            harness.queue.tick(harness.now);
            harness.now = harness.now.after_ms(2_000);
            harness.queue.tick(harness.now);
        }
        assert_eq!(harness.queue.sends(harness.now).len() as u64, many);
        harness.queue.registered(SECOND, resources());
        harness.queue.sends(harness.now)
    });
    assert_eq!(sent.len() as u64, many);
    assert!(sent.iter().all(|batch| batch.process == SECOND));
}

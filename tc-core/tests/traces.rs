//! Where a request stands in a trace comes back with the calls that follow from it, also from the
//! records, and changes nothing that is decided.

use std::sync::Arc;

use handfast_core::{
    BranchId, CallTrace, Change, Command, Coordinator, Correlation, DecidedBy, Decision, Effect,
    Epoch, Holding, Labels, Limits, LoanTerms, LockWait, Mode, NewBranch, Outcome, PhaseTwoOutcome,
    Record, Reply, ReplyWhen, Request, RequestTrace, Retry, SagaDefinition, SagaStatus, SpanPlace,
    StepDefinition, StepKind, Timestamp, TracedCommand, VoteCall, VotingRounds, Xid,
};

const TRACE: [u8; 16] = [7; 16];
const BEGIN: u8 = 1;
const REGISTER: u8 = 2;
const END: u8 = 3;

/// A coordinator and what it has stored.
struct Stage {
    coordinator: Coordinator,
    records: Vec<Record>,
    calls: Vec<handfast_core::PhaseTwoCall>,
    questions: Vec<VoteCall>,
    now: Timestamp,
}

/// The client's span of a request has this number, the coordinator's ten more.
fn trace(number: u8) -> RequestTrace {
    RequestTrace { client: place(number), own: [number + 10; 8] }
}

fn place(number: u8) -> SpanPlace {
    SpanPlace { trace_id: TRACE, span_id: [number; 8] }
}

impl Stage {
    fn new() -> Self {
        let coordinator = Coordinator::load(Epoch(1), "tc".into(), Limits::default(), []);
        let coordinator = coordinator.expect("no records");
        let (records, calls, questions) = (Vec::new(), Vec::new(), Vec::new());
        Self { coordinator, records, calls, questions, now: Timestamp(1_000) }
    }

    fn ask(&mut self, traced: Option<u8>, command: Command) -> Reply {
        self.decide(traced, command).expect("each of these requests is answered at once")
    }

    fn decide(&mut self, traced: Option<u8>, command: Command) -> Option<Reply> {
        let command = match traced {
            Some(number) => {
                Command::Traced(Box::new(TracedCommand { trace: trace(number), command }))
            }
            None => command,
        };
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(Correlation(1)), command };
        self.coordinator.decide(self.now, request, &mut out);
        self.store(out.changes);
        let mut replies = Vec::new();
        for effect in out.effects {
            match effect {
                Effect::Reply { reply, .. } => replies.push(reply),
                Effect::PhaseTwo(call) => self.calls.push(call),
                Effect::Vote(call) => self.questions.push(call),
                Effect::Hold { .. } | Effect::Alert(_) => {}
            }
        }
        replies.pop()
    }

    fn store(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.records.retain(|record| record.key() != change.key());
            if let Change::Put(record) = change {
                self.records.push(record);
            }
        }
    }

    fn begin(&mut self, traced: Option<u8>) -> Xid {
        let (application, name) = ("shop".into(), "order".into());
        let labels = Labels::NONE;
        let begin = Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels,
            key: None,
            loan: LoanTerms::default(),
        };
        let Reply::Begun { xid, .. } = self.ask(traced, begin) else { panic!("not begun") };
        xid
    }

    fn register(&mut self, traced: Option<u8>, xid: Xid) {
        self.register_as(Mode::At, traced, xid);
    }

    fn register_as(&mut self, mode: Mode, traced: Option<u8>, xid: Xid) {
        let branch = NewBranch {
            id: BranchId(1),
            resource: "stock".into(),
            mode,
            rows: Vec::new(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
        let reply = self.ask(traced, Command::RegisterBranch { xid, branch, wait });
        assert!(matches!(reply, Reply::Registered { .. }), "{reply:?}");
    }

    fn end(&mut self, traced: Option<u8>, xid: Xid, by: DecidedBy) {
        let decision = match by {
            DecidedBy::Operator => Decision::RollBack,
            DecidedBy::Client => Decision::Commit,
        };
        let (rounds, reply_when) = (VotingRounds::PrepareOnly, ReplyWhen::Decided);
        let end = Command::End { xid, decision, rounds, by, reason: Arc::from(""), reply_when };
        let reply = self.ask(traced, end);
        assert!(matches!(reply, Reply::Ended(_)), "{reply:?}");
    }

    /// Starts a saga of two steps, or finds it.
    fn start_saga(&mut self, traced: Option<u8>) -> Xid {
        let step = |name: &str, group| StepDefinition {
            name: name.into(),
            parent: None,
            group,
            kind: StepKind::Compensable,
            resource: "stock".into(),
            action: name.into(),
            input: Arc::default(),
            takes: Vec::new(),
            retry: Retry::DEFAULT,
            timeout_ms: None,
        };
        let definition = SagaDefinition {
            name: "place-order".into(),
            timeout_ms: None,
            steps: vec![step("deduct", 0), step("pay", 1)],
            children: Vec::new(),
        };
        let start = Command::StartSaga {
            application: "shop".into(),
            key: "order-42".into(),
            definition: Arc::new(definition),
            labels: Labels::NONE,
        };
        let Reply::Saga(saga) = self.ask(traced, start) else { panic!("not started") };
        saga.xid
    }

    /// Ends the step that is called, in the direction in which the saga goes.
    fn finish_step(&mut self, xid: Xid, step: u64, decision: Decision, outcome: PhaseTwoOutcome) {
        let branch = BranchId(step);
        self.ask(None, Command::FinishPhaseTwo { xid, branch, decision, outcome });
    }

    /// The only call of phase two since the last time.
    fn call(&mut self) -> Option<CallTrace> {
        let [call] = &*self.calls else { panic!("{:?}", self.calls) };
        let trace = call.trace.as_deref().cloned();
        self.calls.clear();
        trace
    }

    /// The next coordinator takes over, and owes the call.
    fn restart(&mut self) {
        let records = self.records.clone();
        let next = Coordinator::load(Epoch(2), "tc".into(), Limits::default(), records);
        self.coordinator = next.expect("what was stored fits");
        let mut out = Outcome::default();
        self.coordinator.owed(&mut out);
        for effect in out.effects {
            let Effect::PhaseTwo(call) = effect else { panic!("{effect:?}") };
            self.calls.push(call);
        }
    }
}

#[test]
fn a_call_follows_from_the_decision_and_the_registration() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.register(Some(REGISTER), xid);
    stage.end(Some(END), xid, DecidedBy::Client);
    let of_this_leader = stage.call().expect("a trace");
    assert_eq!(of_this_leader.parent, place(END + 10));
    assert_eq!(of_this_leader.decision, Some(place(END + 10)));
    assert_eq!(of_this_leader.registration, Some(trace(REGISTER)));
    assert_eq!(of_this_leader.decided_at, Timestamp(1_000));

    // The span of the decision may be lost with the process that took it.
    stage.restart();
    let of_the_next = stage.call().expect("a trace");
    assert_eq!(of_the_next, CallTrace { parent: place(END), ..of_this_leader });
}

#[test]
fn what_stands_in_no_trace_is_left_out() {
    for (begin, register, end, parent) in [
        (None, None, None, None),
        (Some(BEGIN), None, None, Some(place(BEGIN))),
        (None, Some(REGISTER), None, Some(place(REGISTER + 10))),
        (None, None, Some(END), Some(place(END + 10))),
    ] {
        let mut stage = Stage::new();
        let xid = stage.begin(begin);
        stage.register(register, xid);
        stage.end(end, xid, DecidedBy::Client);
        assert_eq!(stage.call().map(|trace| trace.parent), parent);
    }
}

#[test]
fn a_decision_is_noted_once() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.register(Some(REGISTER), xid);
    stage.end(None, xid, DecidedBy::Operator);
    assert_eq!(stage.call().map(|trace| trace.parent), Some(place(BEGIN)));
    let end = Command::End {
        xid,
        decision: Decision::RollBack,
        rounds: VotingRounds::PrepareOnly,
        by: DecidedBy::Client,
        reason: Arc::from(""),
        reply_when: ReplyWhen::Decided,
    };
    stage.ask(Some(END), end);
    stage.restart();
    assert_eq!(stage.call().map(|trace| trace.parent), Some(place(BEGIN)));
}

#[test]
fn a_finished_global_stands_in_no_trace() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.end(Some(END), xid, DecidedBy::Client);
    let [Record::Global(record)] = &*stage.records else { panic!("{:?}", stage.records) };
    assert_eq!(record.trace, None);
}

#[test]
fn the_steps_of_a_saga_follow_from_its_start() {
    let mut stage = Stage::new();
    let xid = stage.start_saga(Some(BEGIN));
    let expected = CallTrace {
        parent: place(BEGIN),
        decided_at: Timestamp(1_000),
        decision: Some(place(BEGIN + 10)),
        registration: None,
    };
    assert_eq!(stage.call(), Some(expected.clone()));

    // The record has the place: the next coordinator calls the step that it finds under way.
    stage.restart();
    assert_eq!(stage.call(), Some(expected.clone()));
    stage.finish_step(xid, 1, Decision::Commit, PhaseTwoOutcome::Done);
    assert_eq!(stage.call(), Some(expected.clone()));
    let refused = PhaseTwoOutcome::Refused { error: "no funds".into(), rows: Arc::default() };
    stage.finish_step(xid, 2, Decision::Commit, refused);
    assert_eq!(stage.call(), Some(expected.clone()), "the compensation of the second step");
    stage.finish_step(xid, 2, Decision::RollBack, PhaseTwoOutcome::Done);
    assert_eq!(stage.call(), Some(expected), "that of the first");
}

/// A request that finds a saga stands in another trace, and the steps stay where they were.
#[test]
fn a_saga_stays_in_the_trace_that_it_was_started_in() {
    for (first, second) in [(Some(BEGIN), Some(END)), (None, Some(END)), (Some(BEGIN), None)] {
        let mut stage = Stage::new();
        let xid = stage.start_saga(first);
        let of_the_first = stage.call();
        assert_eq!(of_the_first.as_ref().map(|trace| trace.parent), first.map(place));
        assert_eq!(stage.start_saga(second), xid);
        stage.restart();
        assert_eq!(stage.call(), of_the_first);
    }
}

#[test]
fn an_ended_saga_stands_in_no_trace() {
    let mut stage = Stage::new();
    let xid = stage.start_saga(Some(BEGIN));
    for step in [1, 2] {
        stage.finish_step(xid, step, Decision::Commit, PhaseTwoOutcome::Done);
    }
    let [Record::Saga(saga)] = &*stage.records else { panic!("{:?}", stage.records) };
    assert_eq!((saga.status(), &saga.trace), (SagaStatus::Completed, &None));
}

/// A participant is asked when the commit is, however long ago the global began.
#[test]
fn a_question_before_a_commit_follows_from_the_request_for_it() {
    let mut stage = Stage::new();
    let xid = stage.begin(Some(BEGIN));
    stage.register_as(Mode::TwoPhase, Some(REGISTER), xid);
    stage.now = Timestamp(31_000);
    let commit = Command::End {
        xid,
        decision: Decision::Commit,
        rounds: VotingRounds::CanCommitFirst,
        by: DecidedBy::Client,
        reason: Arc::from(""),
        reply_when: ReplyWhen::Decided,
    };
    assert_eq!(stage.decide(Some(END), commit), None, "it is answered after the votes");
    let [question] = &*stage.questions else { panic!("{:?}", stage.questions) };
    let expected = CallTrace {
        parent: place(END + 10),
        decided_at: stage.now,
        decision: Some(place(END + 10)),
        registration: Some(trace(REGISTER)),
    };
    assert_eq!(question.trace.as_deref(), Some(&expected));
}
